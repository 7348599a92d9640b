"""The secrets of the configuration that holds now, taken out of every line that is logged.

Of a configuration that was replaced they stay known: flows end with it, and their errors are of it.
A support bundle goes to strangers and also leaves out whatever a config provider returned. These
lines are for who runs the mirror, and names of brokers and topics often come from providers. So
only what stands under a key that names a secret counts, and passwords in URLs. A password that
somebody replaced in a provider's file is known from the next reading of the configuration on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.values.origin import Setting, is_secret
from twinlog.control.support.secret_scrubber import SecretScrubber, settings_of


class CurrentSecrets:
    """For any thread; `current` returns the configuration that holds."""

    def __init__(self, current: Callable[[], MirrorConfig]) -> None:
        self._current = current
        self._known: dict[tuple[str, str], Setting] = {}
        """By key and value: clusters and their clients have the same ones."""
        self._made: tuple[MirrorConfig | None, SecretScrubber] = (None, SecretScrubber())

    def clean(self, text: str) -> str:
        """The text without them."""
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
