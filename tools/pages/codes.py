"""Generates docs/codes.md from the tables of codes and states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from twinlog.codes import FLOW_STATES, GUARANTEES, PARTITION_STATES, Condition, tables

_TOP: Final = """\
# States and codes

The states of flows and partitions, the meaning of each code, and what to do. The tables are
generated from `src/twinlog/codes/` (`python -m tools.pages`); a test fails if they are out of date.
`twinlog explain CODE` prints the row of a code.

## States

States of a flow:

"""
_CODES: Final = """\
## Codes

A code is printed in brackets at the end of a message. Its meaning never changes, so alerts can
match it. The column "fault" names the usual cause: the source, the target, one of the two clusters
(the message names it), another writer, the setup (configuration, permissions or a command), the
host, or nobody. The side under "at risk" lacks records or holds the only copy of some: save those
before you delete anything there. The last column shows when Twinlog retries automatically: soon
(after a growing pause), within 30 s, or not at all.

### One partition stops, the others are copied

"""


def render() -> str:
    """Return the text of docs/codes.md."""
    lines = [
        *_states(FLOW_STATES),
        "",
        "States of a partition:",
        "",
        *_states(PARTITION_STATES),
        "",
        "Lag is given in records, and in time as the age of the last copied record if more "
        "are waiting.",
        "",
        "Delivery guarantees of a flow. They depend on the features of the target's brokers:",
        "",
        *_states(GUARANTEES, "guarantee"),
        "",
    ]
    return _TOP + "\n".join(lines) + "\n" + _CODES + "\n".join(_tables()) + "\n"


def _states(states: Mapping[Any, str], name: str = "state") -> Iterator[str]:
    yield f"| {name} | meaning |"
    yield "| --- | --- |"
    for state, meaning in states.items():
        yield f"| `{state}` | {meaning} |"


def _tables() -> Iterator[str]:
    yield from _retried(tables()["partition"])
    yield from ("", "### A flow does not run", "")
    yield from _retried(tables()["flow"])
    yield from ("", "### This process", "")
    yield from _retried(tables()["process"])
    yield from ("", "### A command", "")
    yield from _ended(tables()["command"])
    yield from ("", "### DataFrames", "")
    yield from _ended(tables()["dataframe"])
    yield from ("", "### Requests over HTTP", "")
    yield "| code | status | what happened | what to do |"
    yield "| --- | --- | --- | --- |"
    for row in tables()["request"]:
        yield f"| {_names(row)} | {row.status} | {row.meaning} | {row.advice} |"
    yield from ("", "### Notes and warnings", "")
    yield "| code | meaning | what to do |"
    yield "| --- | --- | --- |"
    for row in tables()["warning"]:
        yield f"| {_names(row)} | {row.meaning} | {row.advice} |"


def _retried(rows: Iterable[Condition]) -> Iterator[str]:
    yield "| code | what happened | what to do | fault | at risk | retried |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        cells = (_names(row), row.meaning, row.advice, row.fault, row.at_risk, row.retry)
        yield f"| {' | '.join(cells)} |"


def _ended(rows: Iterable[Condition]) -> Iterator[str]:
    yield "| code | what happened | what to do | fault | at risk |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        yield f"| {' | '.join((_names(row), row.meaning, row.advice, row.fault, row.at_risk))} |"


def _names(row: Condition) -> str:
    return ", ".join(f"`{code}`" for code in row.codes)
