"""The fields of a code: meaning, advice, retry, fault, risk and traits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final


class Retry(StrEnum):
    """When the stopped part is retried automatically."""

    SOON = "soon"
    """After a growing pause of at most 30 s, because the cause may be temporary."""
    LATER = "within 30 s"
    """It resumes within 30 s after the cause is fixed."""
    NO = "no"
    """The command ends and has to be run again, or nothing stopped."""


class Fault(StrEnum):
    """The usual location of the cause."""

    SOURCE = "source"
    TARGET = "target"
    CLUSTER = "cluster"
    """The source or the target; the message names it."""
    WRITER = "other writer"
    """Another program writes to a remote topic or an internal topic."""
    SETUP = "setup"
    """The configuration, permissions, or a command."""
    HOST = "host"
    """This machine, Spark, or the network between its processes."""
    TWINLOG = "Twinlog"
    NOBODY = "nobody"
    """Part of normal operation."""


class AtRisk(StrEnum):
    """The side that lacks records or holds the only copy of some. Save them before deleting
    anything there.
    """

    NONE = ""
    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"


class Trait(Enum):
    """Properties of a code that the driver and commands decide by."""

    CAN_BE_SKIPPED = auto()
    """A single record or batch can cause it, and `twinlog topic skip` can skip it."""
    ANOTHER_TOPIC = auto()
    """A topic was replaced, so the known position of the copy is no longer valid."""
    ANOTHER_SOURCE = auto()
    """The source no longer has the records that were copied."""
    STALE_PLAN = auto()
    """Topic discovery may resolve it, for example with new topic IDs, a new max.message.bytes or
    LogAppendTime.
    """
    LOG_FINDING = auto()
    """A cold start may report it wrongly if one of the two logs grows while it compares them."""
    NO_OFFSETS = auto()
    """Offsets on the target must not be used."""
    NOT_OURS = auto()
    """The remote topic may belong to another writer or hold the only copy of records, so it is not
    changed.
    """
    REPAIRABLE = auto()
    """The two logs differ; an operator may accept the difference with `twinlog repair`."""
    AWAY = auto()
    """A cluster does not respond."""
    MAY_PASS = auto()
    """Users or lanes may resolve it; only topic discovery detects that."""


IMPLIED: Final = {
    Trait.ANOTHER_TOPIC: (Trait.ANOTHER_SOURCE, Trait.STALE_PLAN),
    Trait.LOG_FINDING: (Trait.NO_OFFSETS,),
    Trait.NO_OFFSETS: (Trait.NOT_OURS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One row of docs/codes.md; its texts are Markdown."""

    codes: tuple[str, ...]
    """Several codes if they share the meaning and the advice."""
    meaning: str
    advice: str = ""
    """Empty if the message already says what to do."""
    retry: Retry = Retry.NO
    fault: Fault = Fault.SETUP
    at_risk: AtRisk = AtRisk.NONE
    traits: tuple[Trait, ...] = ()
    status: int = 0
    """HTTP status of the response, or 0 if the error's class decides."""

    def has(self, trait: Trait) -> bool:
        """Return True if the row has the trait or one that implies it."""
        return any(trait in _closure(one) for one in self.traits)


def _closure(trait: Trait) -> set[Trait]:
    return {trait}.union(*map(_closure, IMPLIED.get(trait, ())))
