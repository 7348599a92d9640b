"""Removes the secrets of the current configuration from every line that is logged.

Secrets of a replaced configuration stay known, because its flows may still log errors.

Log lines are for the operator of the mirror, and names of brokers and topics often come from config
providers. Only values of keys that name a secret and passwords in URLs are therefore removed. A
support bundle goes to outsiders and also hides every value that a config provider returned. A
password that is changed in a provider's file is known from the next read of the configuration on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.values.origin import Setting, is_secret
from twinlog.control.support.secret_scrubber import SecretScrubber, settings_of


class CurrentSecrets:
    """Thread-safe; `current` returns the current configuration."""

    def __init__(self, current: Callable[[], MirrorConfig]) -> None:
        self._current = current
        self._known: dict[tuple[str, str], Setting] = {}
        """By key and value, because clusters and their clients share settings."""
        self._made: tuple[MirrorConfig | None, SecretScrubber] = (None, SecretScrubber())

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        config, scrubber = self._made
        now = self._current()
        if now is not config:
            found = filter(None, map(_secret, settings_of(now)))
            self._known |= {(one.key, one.value): one for one in found}
            scrubber = SecretScrubber(list(self._known.values()))
            self._made = (now, scrubber)
        return scrubber.clean(text)


def _secret(setting: Setting) -> Setting | None:
    may_hold_one = is_secret(setting.key) or "://" in setting.value
    return replace(setting, from_provider=False) if may_hold_one else None
