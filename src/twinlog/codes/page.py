"""Writes docs/codes.md from the tables, so that the page cannot lag behind them.

python -m twinlog.codes.page > docs/codes.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from twinlog.codes.catalogue import PARTITION_CODES
from twinlog.codes.command_codes import COMMAND_CODES
from twinlog.codes.condition import Condition
from twinlog.codes.dataframe_codes import DATAFRAME_CODES
from twinlog.codes.flow_codes import FLOW_CODES
from twinlog.codes.process_codes import PROCESS_CODES
from twinlog.codes.request_codes import REQUEST_CODES
from twinlog.codes.states import FLOW_STATES, GUARANTEES, PARTITION_STATES
from twinlog.codes.warning_codes import WARNING_CODES

_TOP: Final = """\
# States and codes

What a flow and a partition say of themselves, what each code means, and what to do. The tables are
made from `src/twinlog/codes/` (`python -m twinlog.codes.page`); a test fails when they are not
current. `twinlog explain CODE` prints the row of a code.

## States

Of a flow:

"""
_CODES: Final = """\
## Codes

A code stands in brackets at the end of a message. It never changes its meaning, so alerts may match
it. Whose fault it is, as a rule: of the source or the target, of one of the two clusters (the
message names it), of another writer, of the setup (configuration, rights, a command), of the host,
or of nobody. A side under "at risk" lacks records, or holds the only copy of some: save them before
anything is deleted there. The last column says when it is retried by itself: soon (after a pause
that grows), within 30 s, or not at all.

### One partition stops, the others are copied

"""


def page() -> str:
    """The whole page."""
    lines = [
        *_states(FLOW_STATES),
        "",
        "Of a partition:",
        "",
        *_states(PARTITION_STATES),
        "",
        "Lag is in records, and in time as the age of the last copied record while others wait.",
        "",
        "What a flow guarantees, by what its target's brokers can do:",
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
    yield from _retried(PARTITION_CODES)
    yield from ("", "### A flow does not run", "")
    yield from _retried(FLOW_CODES)
    yield from ("", "### This process", "")
    yield from _retried(PROCESS_CODES)
    yield from ("", "### A command", "")
    yield from _ended(COMMAND_CODES)
    yield from ("", "### DataFrames", "")
    yield from _ended(DATAFRAME_CODES)
    yield from ("", "### Requests over HTTP", "")
    yield "| code | status | what happened | what to do |"
    yield "| --- | --- | --- | --- |"
    for row in REQUEST_CODES:
        yield f"| {_names(row)} | {row.status} | {row.meaning} | {row.advice} |"
    yield from ("", "### Notes and warnings", "")
    yield "| code | what it says | what to do |"
    yield "| --- | --- | --- |"
    for row in WARNING_CODES:
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


if __name__ == "__main__":
    sys.stdout.write(page())
