"""Java's inline flags, and what `.`, `^`, `$` and `\\Z` mean under them, in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from twinlog.config.regex.classes import ANY

_LINE_END = r"[\n\r\x85\u2028\u2029]"
_INSIDE_CRLF = r"(?<=\r)(?=\n)"
_FIELDS = {
    "i": "ignore_case",
    "m": "multi_line",
    "s": "dot_all",
    "d": "unix_lines",
    "x": "comments",
}


@dataclass(frozen=True, slots=True)
class RegexFlags:
    """The flags that hold at one point of an expression."""

    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    unix_lines: bool = False
    comments: bool = False

    def changed(self, letter: str, *, on: bool) -> Self | None:
        """With one flag set or cleared; None when there is no such flag here."""
        return replace(self, **{_FIELDS[letter]: on}) if letter in _FIELDS else None

    def anchor(self, special: str) -> str | None:
        """`.`, `^` and `$`; None for anything else."""
        match special:
            case ".":
                return self._any_char()
            case "^":
                return self._line_start()
            case "$":
                return self._line_end()
        return None

    def last_line_end(self) -> str:
        """`\\Z`: the end, or the line end before it."""
        if self.unix_lines:
            return r"(?=\n?\Z)"
        return rf"(?:(?!{_INSIDE_CRLF})(?=(?:\r\n|{_LINE_END})?\Z))"

    def _any_char(self) -> str:
        if self.dot_all:
            return ANY
        return r"[^\n]" if self.unix_lines else rf"[^{_LINE_END[1:]}"

    def _line_start(self) -> str:
        if not self.multi_line:
            return r"(?:\A)"
        # unlike Python's, it does not match behind a line end at the very end
        if self.unix_lines:
            return r"(?:(?!\Z)(?:\A|(?<=\n)))"
        return rf"(?:(?!\Z)(?:\A|(?<={_LINE_END})(?!{_INSIDE_CRLF})))"

    def _line_end(self) -> str:
        if not self.multi_line:
            return self.last_line_end()
        if self.unix_lines:
            return r"(?=\n|\Z)"
        return rf"(?:(?!{_INSIDE_CRLF})(?={_LINE_END}|\Z))"
