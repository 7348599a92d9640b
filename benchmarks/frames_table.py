"""Formats the results of `scripts/bench frames` as a table: Spark's number, Twinlog's, ratio and
goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.others import TOO_MUCH
from benchmarks.summary import median
from benchmarks.table import render_table

__all__ = ["MICRO_BATCH", "Step", "frames_table"]

MICRO_BATCH: Final = "micro-batch"
_HEAD: Final = ("step", "measure", "Spark's own", "Twinlog", "ratio", "goal", "")
_RIGHT: Final = frozenset((2, 3, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The measurements of one step in one process."""

    round: int
    format: str
    name: str
    seconds: float
    rows: int = 0
    cpu_s: float = 0.0
    peak_pss_bytes: int = 0
    used_by_others: float = 0.0
    times_ms: list[Mapping[str, float]] = field(default_factory=list)
    """For each micro-batch, the parts of its duration in ms, by Spark's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    step: str
    measure: str
    of: Callable[[Step], Iterable[float]]
    digits: int = 1
    goal: str = ""
    is_met: Callable[[float, float], bool] = lambda _theirs, _ours: True


def _rate(step: Step) -> Iterable[float]:
    return (step.rows / step.seconds,)


def _cpu(step: Step) -> Iterable[float]:
    return (step.cpu_s / step.rows * 1e6,)


def _memory(step: Step) -> Iterable[float]:
    return (step.peak_pss_bytes / 2**20,)


def _seconds(step: Step) -> Iterable[float]:
    return (step.seconds,)


def _part(name: str) -> Callable[[Step], Iterable[float]]:
    return lambda step: [one[name] for one in step.times_ms if name in one]


def _bulk(step: str, *, goal: str = "1x") -> tuple[_Row, ...]:
    return (
        _Row(
            step=step,
            measure="rows/s",
            of=_rate,
            digits=0,
            goal=goal,
            is_met=lambda theirs, ours: ours >= theirs,
        ),
        _Row(step=step, measure="CPU (us/row)", of=_cpu, digits=2),
        _Row(step=step, measure="peak memory (MiB, PSS)", of=_memory, digits=0),
    )


_ROWS: Final = (
    _Row(step="session", measure="s", of=_seconds, digits=2),
    _Row(
        step="first row",
        measure="s",
        of=_seconds,
        digits=2,
        goal="4 s more",
        is_met=lambda theirs, ours: ours <= theirs + 4,
    ),
    _Row(
        step="next row",
        measure="s",
        of=_seconds,
        digits=2,
        goal="1 s more",
        is_met=lambda theirs, ours: ours <= theirs + 1,
    ),
    *_bulk("count"),
    *_bulk("count again"),
    *_bulk("to Parquet"),
    *_bulk("from Parquet"),
    _Row(
        step=MICRO_BATCH,
        measure="p50 (ms)",
        of=_part("triggerExecution"),
        digits=0,
        goal="1.3x",
        is_met=lambda theirs, ours: ours <= 1.3 * theirs,
    ),
    _Row(step=MICRO_BATCH, measure="p50 of addBatch (ms)", of=_part("addBatch"), digits=0),
    _Row(step=MICRO_BATCH, measure="p50 of latestOffset (ms)", of=_part("latestOffset"), digits=0),
    _Row(
        step=MICRO_BATCH, measure="p50 of queryPlanning (ms)", of=_part("queryPlanning"), digits=0
    ),
    _Row(step=MICRO_BATCH, measure="peak memory (MiB, PSS)", of=_memory, digits=0),
)


def frames_table(steps: Sequence[Step]) -> str:
    """Return a table of the medians of all rounds, with a note about steps that other processes
    have disturbed.
    """
    cells = [_cells(row, steps) for row in _ROWS]
    disturbed = sorted(
        f"{one.round} {one.format} {one.name} {one.used_by_others:.0%}"
        for one in steps
        if one.used_by_others > TOO_MUCH
    )
    notes = "NOT COMPARABLE: others used the machine's CPU (round, format, step, share): "
    return render_table(_HEAD, cells, _RIGHT) + (
        f"\n\n{notes}{', '.join(disturbed)}" if disturbed else ""
    )


def _cells(row: _Row, steps: Sequence[Step]) -> tuple[str, ...]:
    theirs, ours = (
        median(
            number
            for step in steps
            if step.format == name and step.name == row.step
            for number in row.of(step)
        )
        for name in ("kafka", "twinlog")
    )
    both = theirs is not None and ours is not None
    return (
        row.step,
        row.measure,
        *("-" if one is None else f"{one:,.{row.digits}f}" for one in (theirs, ours)),
        f"{ours / theirs:.2f}x" if both and theirs else "-",  # type: ignore[operator]
        row.goal,
        ("met" if row.is_met(theirs, ours) else "missed") if both and row.goal else "",  # type: ignore[arg-type]
    )
