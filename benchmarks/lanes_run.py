"""`scripts/bench lanes`: measures the memory of a mirror with different numbers of lanes, up to 32.

A topic of 32 partitions is copied with `tasks.max = 32`, which leads to as many lanes as cores, and
with several values of `--lanes`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.copier import Copier
from benchmarks.launches import FlowFile, twinlog_launch
from benchmarks.progress import Progress
from benchmarks.scale import FULL
from benchmarks.stage import BACKLOG_TOPIC, Stage, open_stage
from benchmarks.table import render_table
from benchmarks.watch import watch_copy

__all__ = ["main"]

PARTITIONS: Final = 32
IDLE_S: Final = 10.0
MIB: Final = 2**20


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench lanes", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N", help="of 1 KB")
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 2, 8, 32], metavar="N")
    options = parser.parse_args(arguments)
    progress = Progress()
    scale = replace(FULL, backlog_records=options.records, partitions=PARTITIONS)
    lines = []
    with open_stage(scale, ["backlog"], progress) as stage:
        for lanes in (None, *options.lanes):
            name = f"tasks.max = {PARTITIONS}" if lanes is None else f"--lanes {lanes}"
            progress.say(name)
            lines.append((name, *_measured(stage, lanes)))
    print(render_table(("mirror", "idle, MiB", "peak of the copy, MiB"), lines, frozenset((1, 2))))
    return 0


def _measured(stage: Stage, lanes: int | None) -> tuple[str, str]:
    """Return the memory (PSS) of all processes after the copy, and its maximum during the copy, in
    MiB.
    """
    flow = FlowFile(
        alias=stage.next_alias(),
        source=stage.source.bootstrap,
        target=stage.target.bootstrap,
        topic=BACKLOG_TOPIC,
        tasks=PARTITIONS,
    )
    launch = twinlog_launch(flow, stage.folder)
    words = [] if lanes is None else ["--lanes", str(lanes)]
    launch = replace(launch, command=[*launch.command, "--listen", "off", *words])
    with Copier(launch) as copier:
        numbers = watch_copy(copier, stage.remote(flow.alias, flow.topic), stage.backlog_records)
        until = time.monotonic() + IDLE_S
        while time.monotonic() < until:
            copier.check()
            time.sleep(0.1)
        idle_bytes = copier.tree.pss_bytes()
    stage.clean(flow.alias)
    return f"{idle_bytes / MIB:,.0f}", f"{numbers.peak_pss_bytes / MIB:,.0f}"
