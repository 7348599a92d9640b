"""What knows this process's secrets, for whoever writes texts that leave it: log and events.

Nothing of ours writes a secret. But a text may be of somebody else: an exception of a library
quotes what it could not use (`http.client` a URL with its query), a broker or an endpoint answers
with what it was sent, a person gives a reason. A log is collected, and events lie in the target's
state topic, where whoever may read the topic reads them.

Formatters come before a configuration is read, and at the bottom, so what knows its secrets is
registered here. Lanes register nothing: what they report passes the driver's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_cleaners: tuple[Callable[[str], str], ...] = ()


def without_secrets(text: str) -> str:
    """The text as it may leave this process; as it is where nobody knows a secret."""
    for clean in _cleaners:
        text = clean(text)
    return text


@contextmanager
def hiding(clean: Callable[[str], str]) -> Iterator[None]:
    """While the block lasts, in every thread."""
    global _cleaners  # noqa: PLW0603 (as logging itself: of the process)
    _cleaners = (*_cleaners, clean)
    try:
        yield
    finally:
        _cleaners = tuple(one for one in _cleaners if one is not clean)
