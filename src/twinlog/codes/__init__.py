"""Catalogue of the codes and states of flows, partitions, commands and requests.

A code is printed in brackets at the end of a message and is part of the interface. Read
`condition.py` first (the fields of a code), then the tables: codes of partitions (`log_codes`,
`topic_codes`), flows, this process, commands, DataFrames, HTTP requests and warnings; then
`catalogue.py` (lookup by name and by trait) and `states.py`. `page.py` generates docs/codes.md.

A new code is one row: its meaning, what to do, whether it is retried (set by the `Fate` that it is
raised with), where the cause is, which side is at risk, and the traits that rules use. Codes are
raised as plain strings (`twinlog.errors`); a test compares them with the tables. This package
imports no other part of Twinlog, and lanes do not load it.
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
