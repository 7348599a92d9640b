"""Removes this process's secrets from texts that leave it: log lines and events.

Twinlog's own texts contain no secrets. But a text may come from elsewhere: a library's exception
quotes its input (`http.client` a URL with its query), a broker or endpoint returns what it was
sent, a person enters a reason. Logs are collected, and events are in the target's state topic,
where everyone who may read the topic sees them.

Formatters are created before a configuration is read, and in the lowest layer. So the functions
that know the secrets are registered here. Lanes register nothing: their reports pass through the
driver's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_cleaners: tuple[Callable[[str], str], ...] = ()


def without_secrets(text: str) -> str:
    """Return the text as it may leave this process, unchanged if no secret is registered."""
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
        _cleaners = tuple(one for one in _cleaners if one is not clean)
