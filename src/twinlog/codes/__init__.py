"""Catalogue of the codes and states of flows, partitions, commands and requests.

A code is printed in brackets at the end of a message and is part of the interface. Read
`catalogue.py` first (the fields of a code, lookup by name and by trait), then `codes.toml`: codes
of partitions, flows, this process, commands, DataFrames, HTTP requests and warnings; then
`states.py`. docs/codes.md is generated from them.

A new code is one row: its meaning, what to do, whether it is retried (set by the `Fate` that it is
raised with), where the cause is, which side is at risk, and the traits that rules use. Codes are
raised as plain strings (`twinlog.errors`); a test compares them with the tables. This package
imports no other part of Twinlog, and lanes do not load it.
"""

from __future__ import annotations

from twinlog.codes.catalogue import (
    AtRisk,
    Condition,
    Fault,
    Retry,
    Trait,
    conditions,
    has,
    tables,
    with_trait,
)
from twinlog.codes.states import NOT_MIRRORED, FlowState, Guarantee, PartitionState

__all__ = [
    "NOT_MIRRORED",
    "AtRisk",
    "Condition",
    "Fault",
    "FlowState",
    "Guarantee",
    "PartitionState",
    "Retry",
    "Trait",
    "conditions",
    "has",
    "tables",
    "with_trait",
]
