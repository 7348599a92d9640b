"""Names of states are defined only in `twinlog.codes`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from twinlog.codes import (
    FLOW_STATES,
    GUARANTEES,
    PARTITION_STATES,
    FlowState,
    Guarantee,
    PartitionState,
    conditions,
)
from twinlog.mirror.copy.partition import CopyState

SOURCE = Path(__file__).resolve().parents[2] / "src" / "twinlog"

# a code of the catalog may have the name of a state, and `exact` is also an ordinary word
STATES = {*FlowState, *PartitionState, *Guarantee} - {*conditions(), Guarantee.EXACT}

HOMES = {
    "codes/__init__.py",
    "mirror/copy/partition.py",  # CopyState: lanes do not import codes
    "control/web/connect.py",  # names of Kafka Connect's own states
    "config/regex/linear.py",  # AT_END: one of the operations of `re`
}


def spelled(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Constant(value=str(text)) if text in STATES:
                yield text


def test_no_other_file_spells_a_state() -> None:
    files = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
    found = {name: words for name, path in files.items() if (words := [*spelled(path)])}
    assert {name: words for name, words in found.items() if name not in HOMES} == {}
    assert {*HOMES} == {*found}


def test_states_of_copies_are_those_of_partitions() -> None:
    assert {*CopyState} <= {*PartitionState}


def test_every_state_has_a_meaning() -> None:
    assert {*FLOW_STATES} == {*FlowState}
    assert {*PARTITION_STATES} == {*PartitionState}
    assert {*GUARANTEES} == {*Guarantee}
