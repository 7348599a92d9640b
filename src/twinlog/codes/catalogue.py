"""The fields of a code, the rows of `codes.toml`, and their lookup by name and by trait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cache
from pathlib import Path
from typing import Any, Final


class Retry(StrEnum):
    """When Twinlog itself retries what has stopped."""

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
    """Properties of codes on which decisions of the driver and of commands depend."""

    CAN_BE_SKIPPED = auto()
    """A single record or batch can cause it, and `twinlog topic skip` can skip it."""
    ANOTHER_TOPIC = auto()
    """A topic was replaced, so the known position of the copy is no longer valid."""
    ANOTHER_SOURCE = auto()
    """The source no longer has the records that were copied."""
    STALE_PLAN = auto()
    """Topic discovery may resolve it, because it finds new topic IDs, max.message.bytes or
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
    """One row of docs/codes.md. Its texts are Markdown."""

    codes: tuple[str, ...]
    """Several codes if they share the meaning and the advice."""
    meaning: str
    advice: str = ""
    """What to do. Empty if the message itself has it."""
    retry: Retry = Retry.NO
    fault: Fault = Fault.SETUP
    at_risk: AtRisk = AtRisk.NONE
    traits: frozenset[Trait] = frozenset()
    """Includes the traits that others imply."""
    status: int = 0
    """HTTP status of the response, or 0 if the error's class decides."""


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def _closure(names: Iterable[str]) -> frozenset[Trait]:
    """Return the named traits and all that they imply."""
    traits = [Trait[name] for name in names]
    implied = (_closure(implied.name for implied in IMPLIED.get(trait, ())) for trait in traits)
    return frozenset(traits).union(*implied)


_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "codes": tuple,
    "meaning": _unwrapped,
    "advice": _unwrapped,
    "retry": Retry,
    "fault": Fault,
    "at_risk": AtRisk,
    "traits": _closure,
    "status": int,
}


@cache
def tables() -> Mapping[str, tuple[Condition, ...]]:
    """Return the rows by table, which is named for the thing that stops: partition, flow, process,
    command, dataframe or request; for warnings nothing stops.

    The file is read by the first call, because most commands need no row.
    """
    import tomllib

    text = Path(__file__).with_name("codes.toml").read_text(encoding="utf-8")
    return {
        table: tuple(
            Condition(**{key: _READ[key](value) for key, value in row.items()}) for row in rows
        )
        for table, rows in tomllib.loads(text).items()
    }


@cache
def conditions() -> Mapping[str, Condition]:
    """Return all rows by code."""
    return {code: row for rows in tables().values() for row in rows for code in row.codes}


def with_trait(trait: Trait) -> frozenset[str]:
    return frozenset(code for code, row in conditions().items() if trait in row.traits)


def has(code: str, trait: Trait) -> bool:
    """Return True if the code has the trait. An unknown code has none."""
    row = conditions().get(code)
    return row is not None and trait in row.traits
