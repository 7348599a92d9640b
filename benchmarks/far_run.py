"""`scripts/bench far`: a backlog over a long link, with the source or the target at its far end.

Both copiers read and write through `link.c`, which delays and throttles. Besides the records per
second, the table has the used share of the link's rate, and the CPU of the copier, the brokers and
the link. On a small machine, this CPU may be the limit instead of the link.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import psutil

from benchmarks.ballast import Ballast
from benchmarks.copier import Copier
from benchmarks.launches import TUNED, FlowFile, mirror_maker_launch, twinlog_launch
from benchmarks.link import FAR, Link, far_cluster, open_link
from benchmarks.load import Backlog, fill
from benchmarks.progress import Progress
from benchmarks.results import MIRROR_MAKER, TWINLOG
from benchmarks.scale import FULL, positive
from benchmarks.stage import Stage, new_cluster, open_stage
from benchmarks.table import render_table
from benchmarks.watch import RemoteTopic, wait_for_first_record, watch_copy
from twinlog.sandbox.kafka_jars import mirror_maker_jars

__all__ = ["main"]

SYSTEMS: Final = {"mm2": MIRROR_MAKER, "twinlog": TWINLOG}
SIDES: Final = ("source", "target")
HEAD: Final = (
    "far",
    "partitions",
    "copier",
    "records/s",
    "on the wire",
    "share of the link",
    "peak memory",
    "cores: copier",
    "source",
    "target",
    "link",
)
MIB: Final = 2**20


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench far", description=__doc__)
    parser.add_argument("--side", choices=SIDES, nargs="*", default=SIDES)
    parser.add_argument("--partitions", type=positive, nargs="*", default=[1, 4], metavar="N")
    parser.add_argument("--records", type=positive, default=1_000_000, metavar="N", help="of 1 KB")
    parser.add_argument("--delay-ms", type=float, default=50, metavar="MS", help="each way")
    parser.add_argument("--mbit", type=float, default=1000, metavar="N", help="0: no limit")
    parser.add_argument("--window-kb", type=int, default=0, metavar="N", help="of a connection")
    parser.add_argument("--only", choices=SYSTEMS, nargs="*", default=list(SYSTEMS))
    parser.add_argument("--rounds", type=positive, default=1, metavar="N")
    parser.add_argument("--key", action="append", default=[], metavar="KEY=VALUE", help="for both")
    options = parser.parse_args(arguments)
    link = Link(delay_ms=options.delay_ms, mbit=options.mbit, window_kb=options.window_kb)
    keys = dict(key.split("=", 1) for key in options.key)
    progress, lines = Progress(), list[tuple[str, ...]]()
    with ExitStack() as stack:
        (source, source_port), (target, target_port) = (
            far_cluster(side, new_cluster) for side in SIDES
        )
        stage = stack.enter_context(
            open_stage(replace(FULL, partitions=1), [], progress, source=source, target=target)
        )
        ends = {
            side: FarEnd(
                bootstrap=f"127.0.0.1:{port}",
                process=stack.enter_context(
                    open_link(link, port, cluster.ports[1][FAR], stage.folder)
                ),
            )
            for side, cluster, port in zip(
                SIDES, (source, target), (source_port, target_port), strict=True
            )
        }
        run = FarRun(stage=stage, ends=ends, link=link, keys=keys, records=options.records)
        for partitions in options.partitions:
            progress.say(f"writing {options.records:,} records into {partitions} partitions")
            run.fill(partitions)
        for _ in range(options.rounds):
            for partitions in options.partitions:
                for side in options.side:
                    for system in options.only:
                        progress.say(f"{side} at {link}, {partitions} partitions: {system}")
                        lines.append(run.measure(side, partitions, SYSTEMS[system]))
                        progress.say("  " + ", ".join(lines[-1]))
    print(render_table(HEAD, lines, frozenset((1, *range(3, len(HEAD))))))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FarEnd:
    """A cluster that is accessed through a link."""

    bootstrap: str
    process: psutil.Process
    """The process of the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRun:
    """Copies a backlog with a link to the source or the target."""

    stage: Stage
    ends: Mapping[str, FarEnd]
    link: Link
    keys: Mapping[str, str]
    records: int

    def fill(self, partitions: int) -> None:
        """Create the topic with this number of partitions, and write the backlog into it."""
        topic = _topic(partitions)
        self.stage.source_topics.create(topic, partitions)
        backlog = Backlog(
            topic=topic,
            partitions=partitions,
            records=self.records,
            age_s=0,
            seed=self.stage.scale.seed,
        )
        fill(self.stage.source.bootstrap, backlog)

    def measure(self, side: str, partitions: int, system: str) -> tuple[str, ...]:
        """Copy the backlog, and return the cells of the table's row."""
        stage, topic = self.stage, _topic(partitions)
        at = {"source": stage.source.bootstrap, "target": stage.target.bootstrap}
        at[side] = self.ends[side].bootstrap
        flow = FlowFile(
            alias=stage.next_alias(),
            source=at["source"],
            target=at["target"],
            topic=topic,
            tasks=partitions,
            more=self.keys,
        )
        if system == MIRROR_MAKER:
            launch = mirror_maker_launch(flow, TUNED, mirror_maker_jars(), stage.folder)
        else:
            launch = twinlog_launch(flow, stage.folder)
        stage.read_source_log(topic)
        remote = RemoteTopic(
            topics=stage.target_topics, name=flow.remote_topic, partitions=partitions
        )
        ballast = replace(stage.scale, backlog_records=self.records).ballast_bytes("backlog")
        with Ballast(ballast), Copier(launch) as copier:
            wait_for_first_record(copier, remote)
            before = self._cpu_s(side)
            numbers = watch_copy(copier, remote, self.records)
            used = [now - then for now, then in zip(self._cpu_s(side), before, strict=True)]
        wire = stage.bytes_on_disk(remote) / self.records * numbers.records / numbers.copy_s
        stage.clean(flow.alias)
        limit = self.link.mbit * 1e6 / 8
        return (
            side,
            str(partitions),
            system,
            f"{numbers.records / numbers.copy_s:,.0f}",
            f"{wire / 1e6:.1f} MB/s",
            f"{wire / limit:.0%}" if limit else "-",
            f"{numbers.peak_pss_bytes / MIB:,.0f} MiB",
            *(f"{one / numbers.copy_s:.2f}" for one in (numbers.cpu_s, *used)),
        )

    def _cpu_s(self, side: str) -> list[float]:
        """Return the CPU seconds that both brokers and the link have used so far."""
        brokers = [
            psutil.Process(pid)
            for cluster in (self.stage.source, self.stage.target)
            for pid in cluster.broker_pids.values()
        ]
        times = [one.cpu_times() for one in (*brokers, self.ends[side].process)]
        return [one.user + one.system for one in times]


def _topic(partitions: int) -> str:
    return f"far-{partitions}"
