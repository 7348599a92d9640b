r"""Makes text safe to show and to pass on: escapes characters that a terminal or log would
interpret, and removes this process's secrets.

**Characters.** Group names are chosen by any user who may join a group, and topic names and error
messages come from brokers. Such texts may contain commands that set a terminal's title, clipboard
or screen. They may also contain a line end, after which a forged line of Twinlog's log may follow.
So all output for people passes through `shown`. Control characters (C0, DEL, C1) become text like
`\x1b`. Bidirectional marks, line and paragraph separators and lone surrogates become text like
`\u202e`. Other characters do not change. Backslashes are not escaped, because the result is for
reading, not for parsing. Output for programs (JSON, metrics) has its own escapes and is exact.

**Secrets.** Twinlog's own texts contain no secrets, but it also passes on foreign texts. An
exception of a library may quote its input (`http.client` quotes a URL with its query). A broker or
endpoint may quote a request, and a person may enter a secret as the reason of a command. Logs are
collected, and events are stored in the target's state topic, which other users may read.

Log formatters belong to the lowest layer, and are created before a configuration is read. So the
functions that remove the configured secrets are registered later (`redacting`). Lanes register no
functions, because their reports pass through the driver's log.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_cleaners: tuple[Callable[[str], str], ...] = ()


def without_secrets(text: str) -> str:
    """Return the text after all registered functions have removed their secrets."""
    for clean in _cleaners:
        text = clean(text)
    return text


@contextmanager
def redacting(clean: Callable[[str], str]) -> Iterator[None]:
    """Make `without_secrets` apply `clean` while the block runs, in every thread."""
    global _cleaners  # noqa: PLW0603 (as logging itself: of the process)
    _cleaners = (*_cleaners, clean)
    try:
        yield
    finally:
        _cleaners = tuple(cleaner for cleaner in _cleaners if cleaner is not clean)


_CONTROL_CHARACTERS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks of writing direction
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff]"  # lone surrogates, which cannot be encoded
)


def shown(text: str) -> str:
    """Return the text as one line, with characters escaped that terminals or logs interpret."""
    return _CONTROL_CHARACTERS.sub(_written_out, text)


def shown_lines(text: str) -> str:
    """Escape text like `shown`, but keep its line ends and tabs."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown_in_json(text: str) -> str:
    """Return JSON in which the characters that `shown` escapes are JSON escapes."""
    return _CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class ShownFormatter(logging.Formatter):
    """Formats a log record as one line, with its time in UTC. A traceback follows in indented
    lines, so that none of them looks like a log record.

    An exception's message may contain line ends and secrets, which are replaced.
    """

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        parts = [shown(self.formatMessage(record))]
        # format the traceback again; the text that the record caches may be from another formatter
        if record.exc_info:
            parts.append(set_in(self.formatException(record.exc_info)))
        if record.stack_info:
            parts.append(set_in(self.formatStack(record.stack_info)))
        return without_secrets("\n".join(parts))


def set_in(text: str) -> str:
    """Indent the lines of a traceback by two columns, and escape them like `shown_lines`."""
    return "\n".join(f"  {line}" for line in shown_lines(text).split("\n"))
