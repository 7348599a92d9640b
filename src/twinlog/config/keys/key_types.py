"""The fields of a configuration key."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum


class KeyKind(StrEnum):
    """Type of a value."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    STRING = "string"
    CHOICE = "choice"
    LIST = "list"
    NAMES = "names"
    """A list of regular expressions, each matched against whole names."""


class KeyScope(StrEnum):
    """Where a key is looked up."""

    FLOW = "flow"
    """`A->B.key`, or `key` for every flow."""
    TARGET = "target"
    """`A->B.key`, else `B.key`, else `key`. Only Twinlog's own keys have this scope."""
    PROCESS = "process"
    """`key` alone, read once."""


class Support(StrEnum):
    """Whether a key has an effect in Twinlog."""

    ACTS = "acts"
    NO_MEANING = "no meaning"
    """Accepted without effect."""


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """One key: its type, default, effect and scope."""

    name: str
    kind: KeyKind
    default: str | None
    support: Support
    meaning: str
    _: KW_ONLY
    scope: KeyScope = KeyScope.FLOW
    low: int | None = None
    choices: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Deprecated names, accepted with a warning, and read only without the current name."""


OWN_PREFIX = "twinlog."
