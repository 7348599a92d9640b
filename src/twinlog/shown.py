r"""Makes text safe to show and to pass on: escapes characters that a terminal or log would
interpret, and removes this process's secrets.

**Characters.** Anyone who may join a group chooses its name, and topic names and error messages
come from brokers. Some characters are commands to a terminal (set its title, its clipboard, the
content of the screen), and a line end begins a line that looks like one of Twinlog's. So all output
for people passes through `shown`. Control characters (C0, DEL, C1) become text like `\x1b`.
Bidirectional marks, line and paragraph separators and lone surrogates become text like `\u202e`.
Nothing else changes, and backslashes are not doubled, because the result is for reading, not for
parsing. Output for programs (JSON, metrics) has its own escapes and is exact.

**Secrets.** Twinlog's own texts contain no secrets, but it also passes on texts of others. A
library's exception may quote its input (`http.client` a URL with its query), a broker or endpoint
may return what it was sent, and a person may enter a secret as the reason of a command. Logs are
collected, and events are stored in the target's state topic, which other users may read.

Log formatters belong to the lowest layer, and are created before a configuration is read. So the
functions that know the secrets are registered here later. Lanes register nothing, because their
reports pass through the driver's log.
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
    """Return the text with all registered secrets replaced."""
    for clean in _cleaners:
        text = clean(text)
    return text


@contextmanager
def hiding(clean: Callable[[str], str]) -> Iterator[None]:
    """Apply `clean` to all texts while the block runs, in every thread."""
    global _cleaners  # noqa: PLW0603 (as logging itself: of the process)
    _cleaners = (*_cleaners, clean)
    try:
        yield
    finally:
        _cleaners = tuple(cleaner for cleaner in _cleaners if cleaner is not clean)


_OBEYED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff]"  # halves of surrogate pairs: no stream can write them
)


def shown(text: str) -> str:
    """Return the text on one line, with interpreted characters escaped."""
    return _OBEYED.sub(_written_out, text)


def shown_lines(text: str) -> str:
    """Return the same for text that may have several lines and tabs of Twinlog's own."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown_in_json(text: str) -> str:
    """Return JSON with these characters as JSON escapes, so that it parses to the original."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class ShownFormatter(logging.Formatter):
    """Writes a record as one line, with its time in UTC. A traceback after it is indented, so that
    none of its lines looks like a record.

    The message of an exception may contain line ends and secrets. Both are replaced.
    """

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        parts = [shown(self.formatMessage(record))]
        # the record caches a traceback, but another formatter may have written it
        if record.exc_info:
            parts.append(set_in(self.formatException(record.exc_info)))
        if record.stack_info:
            parts.append(set_in(self.formatStack(record.stack_info)))
        return without_secrets("\n".join(parts))


def set_in(text: str) -> str:
    """Indent a traceback by two columns."""
    return "\n".join(f"  {line}" for line in shown_lines(text).split("\n"))
