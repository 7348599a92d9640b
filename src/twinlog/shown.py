"""Text of others as people may see it: what a terminal or a log would obey is written out.

Groups may be named anything by whoever may join them, topics and messages come from brokers that
are not ours. A terminal takes some characters as commands (its title, its clipboard, what stands on
the screen), and a line end begins a line that looks like our own. So everything that is written for
people goes through `shown`: control characters (C0, DEL, C1) become `\\x1b`, marks that turn the
direction of writing, line and paragraph separators and halves of surrogate pairs become `\\u202e`.
Nothing else changes, and backslashes are not doubled: it is for reading, not for reading back.
What programs read (JSON, metrics) has escapes of its own and is exact.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from twinlog.hidden import without_secrets

_OBEYED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff]"  # halves of surrogate pairs: no stream can write them
)


def shown(text: str) -> str:
    """The text on one line, obeyed by nobody."""
    return _OBEYED.sub(_written_out, text)


def shown_lines(text: str) -> str:
    """The same for text of several lines and tabs, which are our own."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown_in_json(text: str) -> str:
    """JSON with the same characters as its own escapes: it reads back as it was."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class ShownFormatter(logging.Formatter):
    """A record is one line; a traceback below it is set in, so that no line of it looks like one.

    An exception's message may have line ends of others in it, and secrets, which are left out.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        parts = [shown(self.formatMessage(record))]
        # not the record's own copy of the traceback: other formatters wrote it
        if record.exc_info:
            parts.append(set_in(self.formatException(record.exc_info)))
        if record.stack_info:
            parts.append(set_in(self.formatStack(record.stack_info)))
        return without_secrets("\n".join(parts))


def set_in(text: str) -> str:
    """A traceback, two columns in."""
    return "\n".join(f"  {line}" for line in shown_lines(text).split("\n"))
