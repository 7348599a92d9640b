"""Settings from the command line: they stand behind the last line of a file.

`--set KEY=VALUE` is one more line of it, so that MirrorMaker 2's precedence holds: `A->B.topics` in
the file still wins over `--set topics=..`. A flag of one of our own keys is meant for the whole
run, so it also wins over that key's lines of flows and clusters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.config.values.origin import Setting, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One setting of the command line."""

    flag: str
    """As it was written, for messages: `--set`."""
    key: str
    value: str = field(repr=False)
    everywhere: bool = False
    """It also replaces `A->B.key` and `B.key`."""


def with_overrides(settings: Settings, overrides: Iterable[Override]) -> Settings:
    """The settings with those of the command line in their places."""
    found = dict(settings)
    for one in overrides:
        if one.everywhere:
            for key in [key for key in found if key.endswith(f".{one.key}")]:
                del found[key]
        found[one.key] = Setting(key=one.key, value=one.value, file=one.flag)
    return Settings(found)
