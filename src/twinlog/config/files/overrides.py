"""Settings from the command line.

`--set KEY=VALUE` is added after the last line of the file, so MirrorMaker 2's precedence applies:
`A->B.topics` in the file takes precedence over `--set topics=..`. A flag for one of Twinlog's own
keys applies to the whole process, so it also replaces the key's lines for flows and clusters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.config.values.origin import Setting, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One setting of the command line."""

    flag: str
    """The flag as given, for messages, such as `--set`."""
    key: str
    value: str = field(repr=False)
    everywhere: bool = False
    """True if the setting also replaces `A->B.key` and `B.key`."""


def with_overrides(settings: Settings, overrides: Iterable[Override]) -> Settings:
    """Return `settings` with the settings of the command line, which replace settings of the same
    key.
    """
    overridden = dict(settings)
    for override in overrides:
        if override.everywhere:
            for key in [key for key in overridden if key.endswith(f".{override.key}")]:
                del overridden[key]
        overridden[override.key] = Setting(
            key=override.key, value=override.value, file=override.flag
        )
    return Settings(overridden)
