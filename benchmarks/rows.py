"""The rows of the report: medians of both copiers, their ratio, and the goal of the ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.results import MIRROR_MAKER, TWINLOG, RunResult
from benchmarks.scale import STEADY_CASES
from benchmarks.summary import median, ratio

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The bounds of the ratio Twinlog / MirrorMaker 2, or of Twinlog's number alone."""

    text: str
    at_least: float | None = None
    at_most: float | None = None
    alone: bool = False
    """If True, the bounds apply to Twinlog's number, and MirrorMaker 2's number does not matter."""

    def met_by(self, value: float) -> bool:
        """Return True if the ratio (or Twinlog's number) meets the goal."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The definition of a row: the cases, and the number of each run that the row has."""

    cases: tuple[str, ...]
    name: str
    unit: str
    value: Callable[[RunResult], float | None]
    digits: int
    goal: Goal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row with its numbers. A number is None if it was not measured."""

    case: str
    name: str
    unit: str
    digits: int
    theirs: float | None
    ours: float | None
    ratio: float | None
    goal: str
    verdict: str
    """`met`, `MISSED`, `not measured`, or empty for a row without a goal."""


NOISE: Final = 0.1
"""Share by which two runs of the same program may differ without a cause."""
AS_GOOD_MORE: Final = Goal(text="at least 0.9x", at_least=1 - NOISE)
AS_GOOD_LESS: Final = Goal(text="at most 1.1x", at_most=1 + NOISE)


def _throughput(case: str, of: str = "", goal: Goal | None = None) -> Measure:
    return Measure(
        cases=(case,),
        name=f"throughput{of}",
        unit="records/s",
        value=lambda run: run.records_per_s,
        digits=0,
        goal=goal,
    )


def _cpu(case: str, goal: Goal | None = None) -> Measure:
    return Measure(
        cases=(case,),
        name="CPU per GB of payload",
        unit="s/GB",
        value=lambda run: run.cpu_s_per_gb,
        digits=2,
        goal=goal,
    )


def _latency(case: str, name: str, part: str, digits: int, goal: Goal | None = None) -> Measure:
    return Measure(
        cases=(case,),
        name=name,
        unit="ms",
        value=lambda run: getattr(run.latency, part) if run.latency else None,
        digits=digits,
        goal=goal,
    )


def _steady(case: str) -> Iterator[Measure]:
    yield _latency(case, "p50", "p50", 1, Goal(text="at most 0.8x", at_most=0.8))
    yield _latency(case, "p99", "p99", 1, Goal(text="at most 0.6x", at_most=0.6))
    yield _latency(case, "p99.9", "p99_9", 1, Goal(text="at most 1x", at_most=1))
    yield Measure(
        cases=(case,),
        name="CPU during the window",
        unit="s",
        value=lambda run: run.cpu_s,
        digits=1,
        goal=Goal(text="at most 1/3", at_most=1 / 3),
    )


_GROUPS_S: Final = Goal(text="under 5 s", at_most=5, alone=True)

MEASURES: Final = (
    _throughput("backlog", goal=Goal(text="at least 5x", at_least=5)),
    _cpu("backlog", Goal(text="at most 1/20", at_most=1 / 20)),
    Measure(
        cases=("backlog",),
        name="peak memory (PSS)",
        unit="MiB",
        value=lambda run: None if run.peak_pss_bytes is None else run.peak_pss_bytes / _MIB,
        digits=0,
        goal=Goal(text="at most 1/4", at_most=1 / 4),
    ),
    _throughput("small", ", one record per batch", Goal(text="at least 5x", at_least=5)),
    _cpu("small"),
    _throughput("tls", ", TLS on both clusters", Goal(text="at least 4x", at_least=4)),
    _cpu("tls"),
    _throughput("unprotected", ", records older than a day"),
    _cpu("unprotected"),
    *(measure for case in STEADY_CASES for measure in _steady(case)),
    Measure(
        cases=("groups",),
        name="all groups checkpointed",
        unit="s",
        value=lambda run: run.checkpointed_s,
        digits=2,
        goal=_GROUPS_S,
    ),
    Measure(
        cases=("groups",),
        name="all groups committed there",
        unit="s",
        value=lambda run: run.committed_s,
        digits=2,
        goal=_GROUPS_S,
    ),
    _latency("groups", "commit to checkpoint, p50", "p50", 0),
    _latency(
        "groups",
        "commit to checkpoint, p99",
        "p99",
        0,
        Goal(text="within 1 s", at_most=1000, alone=True),
    ),
    Measure(
        cases=("startup", "backlog"),
        name="start to first record",
        unit="s",
        value=lambda run: run.first_record_s,
        digits=1,
        goal=Goal(text="at most 1x", at_most=1),
    ),
)


def make_rows(
    runs: Iterable[RunResult],
    cases: Sequence[str],
    *,
    reference: str = MIRROR_MAKER,
) -> list[Row]:
    """Return one row for each measure of the requested cases.

    `reference` is the system to compare with. The goals in MEASURES are for a comparison with
    MirrorMaker 2. If `reference` is another version of Twinlog, the goal is that no row is worse by
    more than `NOISE`.
    """
    usable = [run for run in runs if not run.is_warm_up]
    wanted = [measure for measure in MEASURES if measure.cases[0] in cases]
    return [_row(measure, usable, reference) for measure in wanted]


def _row(measure: Measure, runs: Sequence[RunResult], reference: str) -> Row:
    def of(system: str) -> float | None:
        return median(
            measure.value(run)
            for run in runs
            if run.system == system and run.case in measure.cases and not run.failure
        )

    theirs, ours = of(reference), of(TWINLOG)
    quotient = ratio(ours, theirs)
    goal = measure.goal
    if reference != MIRROR_MAKER:
        goal = AS_GOOD_MORE if measure.unit == "records/s" else AS_GOOD_LESS
    return Row(
        case=measure.cases[0],
        name=measure.name,
        unit=measure.unit,
        digits=measure.digits,
        theirs=theirs,
        ours=ours,
        ratio=quotient,
        goal=goal.text if goal else "",
        verdict=_verdict(goal, quotient, ours),
    )


def _verdict(goal: Goal | None, quotient: float | None, ours: float | None) -> str:
    if goal is None:
        return ""
    value = ours if goal.alone else quotient
    if value is None:
        return "not measured"
    return "met" if goal.met_by(value) else "MISSED"
