"""What flows and partitions say of themselves: codes and states, each named once.

A code stands in brackets at the end of a message and is part of the interface. Read `condition.py`
(what is known of a code), then the tables: codes of a partition (`log_codes`, `topic_codes`), of a
flow, of this process, of commands, of DataFrames, of requests over HTTP, and of warnings; then
`catalogue.py` (all by name, and what rules ask of them) and `states.py`. `page.py` makes
docs/codes.md of all of it.

A new code is one row: what it means, what to do, whether it is retried (the `Fate` that it is
raised with decides), whose fault it is, which side may lose records, and the traits that rules go
by. Codes are raised as plain strings where a trouble is found (`twinlog.errors`); a test compares
them with the tables. Nothing here imports anything of Twinlog, and no lane loads it.
"""

from __future__ import annotations

from twinlog.codes.catalogue import CONDITIONS, has, with_trait
from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait
from twinlog.codes.states import NOT_MIRRORED, FlowState, Guarantee, PartitionState

__all__ = [
    "CONDITIONS",
    "NOT_MIRRORED",
    "AtRisk",
    "Condition",
    "Fault",
    "FlowState",
    "Guarantee",
    "PartitionState",
    "Retry",
    "Trait",
    "has",
    "with_trait",
]
