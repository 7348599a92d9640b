"""What any configuration file says before its values are read: settings with their lines."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.config.origin import Settings
from twinlog.config.properties import DuplicateKey
from twinlog.config.schema import ConfigWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class RawConfig:
    """A file under the keys of mm2.properties; variables (`${..}`) are still variables."""

    file: str
    settings: Settings
    duplicates: tuple[DuplicateKey, ...] = ()
    warnings: tuple[ConfigWarning, ...] = ()
    """About what the file's own format says and nothing here needs."""
    is_latin_1: bool = False
    """Read as Java reads properties, so that characters beyond ASCII are seldom what was meant."""
