"""What is known of a code: what happened, what to do, whether it is retried, whose fault it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final


class Retry(StrEnum):
    """When that which stopped is tried again, without anybody's doing."""

    SOON = "soon"
    """After a pause that grows, to half a minute at most: it may pass by itself."""
    LATER = "within 30 s"
    """It resumes once the cause is gone."""
    NO = "no"
    """It ends, and the command is run again; or nothing stopped."""


class Fault(StrEnum):
    """Where the cause is, as a rule."""

    SOURCE = "source"
    TARGET = "target"
    CLUSTER = "cluster"
    """One of both: the message names it."""
    WRITER = "other writer"
    """Another program writes where only the copy should."""
    SETUP = "setup"
    """The configuration, rights, or a command."""
    HOST = "host"
    """This machine, Spark, or the network of its processes."""
    TWINLOG = "Twinlog"
    NOBODY = "nobody"
    """It belongs to normal operation."""


class AtRisk(StrEnum):
    """Which side lacks records, or holds the only copy of some: nothing is deleted there before it
    is saved.
    """

    NONE = ""
    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"


class Trait(Enum):
    """What a rule of the driver or of a command goes by."""

    CAN_BE_SKIPPED = auto()
    """One record, or one batch, can do this to a partition."""
    ANOTHER_TOPIC = auto()
    """How far the copy was is no position any more."""
    ANOTHER_SOURCE = auto()
    """The source does not hold what was copied."""
    STALE_PLAN = auto()
    """Topic discovery may end it: other topic ids, another max.message.bytes, LogAppendTime."""
    LOG_FINDING = auto()
    """A cold start may believe to see it in two logs of which one grows while it compares them."""
    NO_OFFSETS = auto()
    """Nobody may build on an offset of the target."""
    NOT_OURS = auto()
    """The remote topic may be somebody else's, or the only copy of something: nothing touches it.
    """
    REPAIRABLE = auto()
    """Both logs disagree; somebody may decide to accept it."""
    AWAY = auto()
    """A cluster does not answer."""
    MAY_PASS = auto()
    """It ends by what people or lanes do, and only discovery can tell."""


IMPLIED: Final = {
    Trait.ANOTHER_TOPIC: (Trait.ANOTHER_SOURCE, Trait.STALE_PLAN),
    Trait.LOG_FINDING: (Trait.NO_OFFSETS,),
    Trait.NO_OFFSETS: (Trait.NOT_OURS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One row of docs/codes.md; texts are Markdown."""

    codes: tuple[str, ...]
    """More than one where all of them ask for the same."""
    meaning: str
    advice: str = ""
    """Empty where the message itself says all."""
    retry: Retry = Retry.NO
    fault: Fault = Fault.SETUP
    at_risk: AtRisk = AtRisk.NONE
    traits: tuple[Trait, ...] = ()
    status: int = 0
    """Of HTTP, where a request is answered with it; 0: the error's class says it."""

    def has(self, trait: Trait) -> bool:
        """Whether the row names it, or one that implies it."""
        return any(trait in _closure(one) for one in self.traits)


def _closure(trait: Trait) -> set[Trait]:
    return {trait}.union(*map(_closure, IMPLIED.get(trait, ())))
