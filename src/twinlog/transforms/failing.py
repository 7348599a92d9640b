"""Finds the record on which a transform fails, and describes the failure without the record's
values.

The text of Spark's error contains a Python traceback or an error condition of Spark. Both may
contain values of the record. So only names are used: the exception's class and its line in the
code, or the name of Spark's error condition. Texts of `twinlog.transforms.rows.failure` contain no
values, so they are returned, without the record that they name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from twinlog.records.lent import RangePart

_TRACE: Final = "Traceback (most recent call last):\n"
_FRAME: Final = re.compile(r'^ +File "([^"\n]+)", line (\d+), in (\S+)$')
_CLASS: Final = re.compile(r"[^\W\d][\w.]*")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_CRASHED: Final = "Python worker exited unexpectedly"
_LOST_TASK: Final = "most recent failure: "
_JAVA: Final = re.compile(r"\b[\w.$]+(?:Exception|Error)\b")


def first_failure(
    first: int, end: int, why: Callable[[int, int], str | None]
) -> tuple[int, str] | None:
    """Return the first record in [first, end) on which a transform fails, with the reason.

    `why` must return why the transform fails for the records in a range, or None if it succeeds.
    The caller knows that it fails for [first, end). Returns None if it does not fail for any single
    record.
    """
    while end - first > 1:
        middle = (first + end) // 2
        if why(first, middle) is None:
            first = middle
        else:
            end = middle
    reason = why(first, end)
    return None if reason is None else (first, reason)


def described(text: str, part: RangePart) -> str:
    """Return why a job failed, without values. `part`: the records of the job."""
    _, is_python, rest = text.rpartition(_TRACE)
    if is_python and (raised := _python(rest)):
        return raised
    own = re.escape(f"{part.topic}-{part.partition} offset {part.first}: ")
    if user_error := re.search(
        rf"\[USER_RAISED_EXCEPTION\] {own}([^\n]*?)(?: SQLSTATE: \w+)?$", text, re.M
    ):
        return user_error[1]
    if _CRASHED in text:
        return f"{_CRASHED}, perhaps because it needs too much memory"
    cause = text.partition(_LOST_TASK)[2] or text
    for pattern in (_CONDITION, _JAVA):
        if match := pattern.search(cause):
            return match[match.lastindex or 0]
    return "unknown error"


def _python(trace: str) -> str | None:
    """Return class and line of the exception from the last part of a traceback, or None."""
    location = ""
    for line in trace.split("\n"):
        if frame := _FRAME.match(line):
            location = f" ({PurePath(frame[1]).name}, line {frame[2]}, in {frame[3]})"
        elif not line.startswith(" "):
            kind = _CLASS.match(line)
            return f"{kind[0]}{location}" if kind else None
    return None
