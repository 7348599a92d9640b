"""`scripts/bench transforms`: compares a flow with transforms and Spark's own connector.

Both read a topic of one cluster, apply the same function, and write to the other cluster: Twinlog
exactly once, Spark's own source and sink at least once. For a backlog, the time between the first
and the last record on the target is measured. A row with a rate shows the time from a record's
timestamp to its arrival.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.ballast import Ballast
from benchmarks.copier import Copier, Launch
from benchmarks.frames_run import PRODUCER
from benchmarks.latency_run import steady_load, watch_steady
from benchmarks.launches import FlowFile, log_of, twinlog_launch
from benchmarks.load import DIFFERENT_VALUES
from benchmarks.others import Others
from benchmarks.own_spark import OWN_SPARK, OwnSpark, own_spark
from benchmarks.payload import make_values
from benchmarks.progress import Progress
from benchmarks.results import TWINLOG
from benchmarks.scale import FULL, positive
from benchmarks.stage import BACKLOG_TOPIC, STEADY_TOPIC, Stage, open_stage
from benchmarks.table import render_table
from benchmarks.watch import RemoteTopic, watch_copy

__all__ = ["main"]

SPARK: Final = "Spark's own"
SYSTEMS: Final = {"spark": SPARK, "twinlog": TWINLOG}
FILTERED: Final = "filter_and_mask"
STEADY: Final = "mask"
BACKLOGS: Final = (FILTERED, "python_udf", "arrow_udf")
HEAD: Final = ("function", "copier", "rows/s", "CPU of a row", "memory", "p50", "p99", "others")
_JOB: Final = Path(__file__).with_name("transform_job.py")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench transforms", description=__doc__)
    parser.add_argument("--functions", nargs="*", choices=BACKLOGS, default=BACKLOGS)
    parser.add_argument("--records", type=positive, default=600_000, metavar="N", help="of 1 KB")
    parser.add_argument("--rate", type=int, default=500, help="steady records/s; 0: no such row")
    parser.add_argument("--only", choices=SYSTEMS, nargs="*", default=list(SYSTEMS))
    parser.add_argument("--rounds", type=positive, default=1, metavar="N")
    options = parser.parse_args(arguments)
    progress, lines = Progress(), list[tuple[str, ...]]()
    scale = replace(FULL, backlog_records=options.records, rate=options.rate, window_s=30)
    with ExitStack() as stack:
        own = own_spark(progress)
        stage = stack.enter_context(open_stage(scale, ["backlog"], progress))
        run = TransformRun(stage=stage, own=own)
        for _ in range(options.rounds):
            for system in map(SYSTEMS.__getitem__, options.only):
                for function in options.functions:
                    progress.say(f"backlog, {function}: {system}")
                    lines.append(run.backlog(system, function))
                if options.rate:
                    progress.say(f"{options.rate} records/s, {STEADY}: {system}")
                    lines.append(run.steady(system))
    print(f"{options.records:,} records of 1 KB, lz4; Spark's own connector of {OWN_SPARK}")
    print(render_table(HEAD, lines, frozenset(range(2, len(HEAD)))))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRun:
    """Measures copies with transforms."""

    stage: Stage
    own: OwnSpark

    def backlog(self, system: str, function: str) -> tuple[str, ...]:
        """Copy the backlog, and return the cells of the table's row."""
        flow = self._flow(BACKLOG_TOPIC)
        remote, launch = self._prepared(system, flow, function)
        self.stage.read_source_log(flow.topic)
        ballast = Ballast(self.stage.scale.ballast_bytes("backlog"))
        with ballast, Others() as others, Copier(launch) as copier:
            numbers = watch_copy(copier, remote, self._expected(function))
            share = others.share()
        self.stage.clean(flow.alias)
        return (
            function,
            system,
            f"{numbers.records / numbers.copy_s:,.0f}",
            f"{numbers.cpu_s / numbers.cpu_records * 1e6:.0f} us",
            f"{numbers.peak_pss_bytes / 2**20:,.0f} MiB",
            "",
            "",
            f"{share:.0%}",
        )

    def steady(self, system: str) -> tuple[str, ...]:
        """Copy records at a steady rate, and return the cells of the table's row."""
        scale = self.stage.scale
        flow = self._flow(f"{STEADY_TOPIC}-{self.stage.next_alias()}")
        self.stage.source_topics.create(flow.topic, scale.partitions)
        remote, launch = self._prepared(system, flow, STEADY)
        with (
            Others() as others,
            steady_load(flow.source, flow.topic, scale),
            Copier(launch) as copier,
        ):
            numbers = watch_steady(copier, remote, flow.target, scale)
            share = others.share()
        self.stage.clean(flow.alias)
        # Spark's own sink gives each record a new timestamp, so its latency is unknown
        latency = (f"{numbers.latency.p50:,.0f} ms", f"{numbers.latency.p99:,.0f} ms")
        return (
            f"{STEADY}, {scale.rate}/s",
            system,
            f"{numbers.latency.records / scale.window_s:,.0f}",
            f"{numbers.cpu_s / numbers.latency.records * 1e6:.0f} us",
            f"{numbers.pss_bytes / 2**20:,.0f} MiB",
            *(latency if system == TWINLOG else ("", "")),
            f"{share:.0%}",
        )

    def _flow(self, topic: str) -> FlowFile:
        return FlowFile(
            alias=self.stage.next_alias(),
            source=self.stage.source.bootstrap,
            target=self.stage.target.bootstrap,
            topic=topic,
            tasks=self.stage.scale.partitions,
        )

    def _prepared(self, system: str, flow: FlowFile, function: str) -> tuple[RemoteTopic, Launch]:
        stage = self.stage
        remote = stage.remote(flow.alias, flow.topic)
        folder = stage.folder / flow.alias
        folder.mkdir()
        job = Path(shutil.copy(_JOB, folder))
        if system == TWINLOG:
            prefix = f"{flow.alias}->B.twinlog.transforms"
            keys = {
                prefix: "change",
                f"{prefix}.change.topics": flow.topic,
                f"{prefix}.change.function": f"{job.stem}:{function}",
            }
            launch = twinlog_launch(replace(flow, more=keys), stage.folder)
            environment = {**launch.environment, "PYTHONPATH": str(folder)}
            return remote, replace(launch, environment=environment)
        stage.target_topics.create(remote.name, remote.partitions)
        task = {
            "source": flow.source,
            "target": flow.target,
            "topic": flow.topic,
            "into": remote.name,
            "function": function,
            "producer": PRODUCER,
            "checkpoint": str(folder / "checkpoint"),
            "jars": ",".join(map(str, self.own.jars)),
        }
        python = str(self.own.python)
        return remote, Launch(
            system=system,
            command=[python, str(job), json.dumps(task)],
            log=log_of(flow.alias, stage.folder),
            environment={"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    def _expected(self, function: str) -> int:
        records, scale = self.stage.backlog_records, self.stage.scale
        if function != FILTERED:
            return records
        values = make_values(DIFFERENT_VALUES, scale.seed)
        kept = [bool(json.loads(value)["state"] != "returned") for value in values]
        whole, rest = divmod(records, len(kept))
        return whole * sum(kept) + sum(kept[:rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
