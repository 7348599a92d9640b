"""Removes this process's secrets from texts that leave it: log lines and events.

Twinlog's own texts contain no secrets, but it also passes on texts of others. A library's exception
may quote its input (`http.client` a URL with its query), a broker or endpoint may return what it
was sent, and a person may enter a secret as the reason of a command. Logs are collected, and events
are stored in the target's state topic, which other users may read.

Log formatters belong to the lowest layer, and are created before a configuration is read. So the
functions that know the secrets are registered here later. Lanes register nothing, because their
reports pass through the driver's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
