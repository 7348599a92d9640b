"""`scripts/bench plane`: measures the cost of a mirror's control plane.

A backlog is copied in turns without a port (`--listen off`), with a port that no client uses, and
with a port from which 100 clients request all flows every two seconds. `--before PROGRAM` adds
another `twinlog` to the turns, for example one of an older release.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.ballast import Ballast
from benchmarks.clients import Polling
from benchmarks.copier import Copier, CopierFailed
from benchmarks.launches import FlowFile, twinlog_launch
from benchmarks.others import TOO_MUCH, Others
from benchmarks.progress import Progress
from benchmarks.rows import Goal
from benchmarks.scale import FULL
from benchmarks.stage import BACKLOG_TOPIC, Stage, open_stage
from benchmarks.summary import median, ratio
from benchmarks.table import render_table
from benchmarks.watch import watch_copy

__all__ = ["Cost", "main", "report"]

BEFORE: Final = "before"
OFF: Final = "--listen off"
SERVED: Final = "served"
POLLED: Final = "polled"

ORDER: Final = (BEFORE, OFF, SERVED, POLLED)

RECORDS: Final = 8_000_000
"""Records of the backlog. Their copy takes 15 s, so that the one-time cost of the first request is
small in comparison.
"""
IDLE_S: Final = 10.0
"""Time between the copy and the measurement of memory, in seconds, so that the copy's memory is
freed. Requests cost the same in this time, and the measurement has no noise of the copy.
"""
MIB: Final = 2**20

LITTLE: Final = Goal(text="at most 1.10x", at_most=1.10)
KEPT: Final = Goal(text="at least 0.95x", at_least=0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One run."""

    variant: str
    first_record_s: float
    records_per_s: float
    cpu_s: float
    """CPU seconds of all processes of the mirror, from the first to the last record."""
    idle_bytes: int
    """PSS of all processes of the mirror after the copy."""
    idle_cores: float
    """CPU seconds per second of all processes of the mirror after the copy."""
    answered: int = 0
    client_cores: float = 0.0
    """CPU seconds per second of the clients, which run on the same machine."""
    used_by_others: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    unit: str
    digits: int
    goals: dict[str, tuple[str, Goal]]
    """For each variant with a goal: the variant to compare with, and the goal."""


ROWS: Final = {
    "first_record_s": _Row(
        name="start to first record",
        unit="s",
        digits=2,
        goals={SERVED: (OFF, LITTLE)},
    ),
    "idle_mib": _Row(
        name="memory at the end of the topic (PSS)",
        unit="MiB",
        digits=0,
        goals={SERVED: (OFF, LITTLE), POLLED: (OFF, LITTLE)},
    ),
    "records_per_s": _Row(
        name="throughput",
        unit="records/s",
        digits=0,
        goals={POLLED: (SERVED, KEPT)},
    ),
    "cpu_s": _Row(name="CPU of the copy", unit="s", digits=1, goals={}),
    "idle_cores": _Row(name="CPU at the end of the topic", unit="cores", digits=3, goals={}),
}


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench plane", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--records", type=int, default=RECORDS, metavar="N")
    parser.add_argument("--clients", type=int, default=100, metavar="N")
    parser.add_argument("--before", type=Path, metavar="PROGRAM", help="another twinlog")
    options = parser.parse_args(arguments)
    progress = Progress()
    scale = replace(FULL, backlog_records=options.records)
    variants = [*([BEFORE] if options.before else []), OFF, SERVED, POLLED]
    costs: list[Cost] = []
    with open_stage(scale, ["backlog"], progress) as stage:
        # round 0 does not count, because the brokers' JVMs compile their code in it
        for number in range(options.rounds + 1):
            turn = number % len(variants)
            for variant in variants[turn:] + variants[:turn]:
                progress.say(f"round {number}/{options.rounds}: {variant}")
                cost = _measured(stage, variant, options.clients, options.before)
                progress.say(
                    f"  first record after {cost.first_record_s:.2f} s; "
                    f"{cost.records_per_s:,.0f} records/s; {cost.idle_bytes / MIB:,.0f} MiB; "
                    f"CPU {cost.cpu_s:.1f} s, then {cost.idle_cores:.3f} cores; "
                    f"{cost.answered:,} requests answered, by clients that take "
                    f"{cost.client_cores:.3f} cores; "
                    f"{cost.used_by_others:.0%} of the machine was used by others"
                )
                costs += [cost] if number else []
    print(report(costs))
    return 0


def _measured(stage: Stage, variant: str, clients: int, before: Path | None) -> Cost:
    flow = FlowFile(
        alias=stage.next_alias(),
        source=stage.source.bootstrap,
        target=stage.target.bootstrap,
        topic=BACKLOG_TOPIC,
        tasks=stage.scale.partitions,
    )
    port = _free_port()
    launch = twinlog_launch(flow, stage.folder)
    words = list(launch.command)
    if variant == BEFORE:
        words[0] = str(before)
    words += ["--listen", "off" if variant == OFF else f"127.0.0.1:{port}"]
    remote = stage.remote(flow.alias, flow.topic)
    stage.read_source_log(flow.topic)
    with Ballast(stage.scale.ballast_bytes("backlog")), Others() as others:
        with (
            Copier(replace(launch, command=words)) as copier,
            _asked(port, clients if variant == POLLED else 0) as polling,
        ):
            numbers = watch_copy(copier, remote, stage.backlog_records)
            began, cpu_s = time.monotonic(), copier.tree.cpu_s()
            while time.monotonic() < began + IDLE_S:
                copier.check()
                copier.tree.look()
                time.sleep(0.1)
            idle_cores = (copier.tree.cpu_s() - cpu_s) / (time.monotonic() - began)
            idle_bytes = copier.tree.pss_bytes()
        share = others.share()
    stage.clean(flow.alias)
    if numbers.excess_records:
        raise CopierFailed(f"{variant}: {numbers.excess_records:,} records too many")
    if polling is not None and not polling.answered:
        raise CopierFailed(f"{variant}: no request was answered")
    return Cost(
        variant=variant,
        first_record_s=numbers.first_record_s,
        records_per_s=numbers.records / numbers.copy_s,
        cpu_s=numbers.cpu_s,
        idle_bytes=idle_bytes,
        idle_cores=idle_cores,
        answered=polling.answered if polling else 0,
        client_cores=polling.cores if polling else 0.0,
        used_by_others=share,
    )


@contextmanager
def _asked(port: int, clients: int) -> Iterator[Polling | None]:
    if not clients:
        yield None
        return
    with Polling(port, clients) as polling:
        yield polling


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def report(costs: Sequence[Cost]) -> str:
    """Return a table of the medians of each variant, with the goals and if they are met."""
    lines = []
    for name, row in ROWS.items():
        values = {
            variant: median(_value(cost, name) for cost in costs if cost.variant == variant)
            for variant in sorted({cost.variant for cost in costs}, key=ORDER.index)
        }
        for variant, value in values.items():
            if value is None:
                continue
            with_goal = variant in row.goals
            base, goal = row.goals.get(variant, (OFF, None))
            base = BEFORE if base == OFF and BEFORE in values else base
            quotient = ratio(value, values.get(base))
            verdict = ""
            if goal is not None and quotient is not None:
                verdict = "met" if goal.met_by(quotient) else "MISSED"
            lines.append(
                (
                    f"{row.name} ({row.unit})",
                    variant,
                    f"{value:,.{row.digits}f}",
                    f"{quotient:.2f}x" if with_goal and quotient is not None else "",
                    f"of {base}: {goal.text}" if goal else "",
                    verdict,
                )
            )
    text = render_table(
        ("measure", "mirror", "median", "ratio", "goal", ""), lines, frozenset((2, 3))
    )
    worst = max((cost.used_by_others for cost in costs), default=0.0)
    if worst >= TOO_MUCH:
        text += f"\nNOT COMPARABLE: others used up to {worst:.0%} of the machine"
    return text


def _value(cost: Cost, name: str) -> float:
    return cost.idle_bytes / MIB if name == "idle_mib" else float(getattr(cost, name))
