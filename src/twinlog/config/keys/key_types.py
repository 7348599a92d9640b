"""What is written down about one configuration key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KeyKind(StrEnum):
    """How a value is read."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    STRING = "string"
    CHOICE = "choice"
    LIST = "list"
    NAMES = "names"
    """A list of regular expressions for whole names."""


class KeyScope(StrEnum):
    """Where a key is looked up."""

    FLOW = "flow"
    """`A->B.key`, or `key` for every flow."""
    TARGET = "target"
    """`A->B.key`, else `B.key`, else `key`: only our own keys are read so."""
    PROCESS = "process"
    """`key` alone, read once."""


class Support(StrEnum):
    """What setting a key does here."""

    ACTS = "acts"
    NO_MEANING = "no meaning"
    """Accepted, and there is nothing to set here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDefinition:
    """One key: its type, its default, where it applies and what it does here."""

    name: str
    kind: KeyKind
    meaning: str
    default: str | None = None
    scope: KeyScope = KeyScope.FLOW
    support: Support = Support.ACTS
    low: int | None = None
    choices: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Older names, accepted with a warning; they count only where the new name is absent."""

    @property
    def own(self) -> bool:
        return self.name.startswith(OWN_PREFIX)


OWN_PREFIX = "twinlog."
