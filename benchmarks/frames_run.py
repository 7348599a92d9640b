"""`scripts/bench frames`: compares DataFrames of Twinlog with Spark's own Kafka source and sink."""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.copier import CopierFailed, end_session
from benchmarks.frames_table import MICRO_BATCH, Step, frames_table
from benchmarks.latency_run import steady_load
from benchmarks.load import Backlog, fill
from benchmarks.others import Others
from benchmarks.own_spark import OWN_SPARK, OwnSpark, own_spark
from benchmarks.process_tree import ProcessTree
from benchmarks.progress import Progress
from benchmarks.scale import FULL, positive
from benchmarks.stage import BACKLOG_TOPIC, BROKER_HEAP_MB, STEADY_TOPIC
from benchmarks.topics import Topics
from twinlog.sandbox.brokers import LocalCluster

__all__ = ["FORMATS", "main", "parse"]

FORMATS: Final = ("kafka", "twinlog")
DRIVER_MEMORY: Final = "2g"
PRODUCER: Final = {
    "kafka.compression.type": "lz4",
    "kafka.batch.size": "65536",
    "kafka.linger.ms": "20",
}
QUICK_RECORDS: Final = 20_000
LOOK_S: Final = 0.1
LOOKS_PER_MEMORY: Final = 5
"""Number of CPU measurements per memory measurement, which stops a process for a moment."""
_JOB: Final = Path(__file__).resolve().with_name("frames_job.py")
_OUTPUT: Final = _JOB.parent.parent / "build" / "bench-frames.json"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. A usage error ends the process."""
    parser = argparse.ArgumentParser(prog="scripts/bench frames", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, 20,000 records: it works")
    parser.add_argument("--records", type=positive, metavar="N", help="instead of 2,000,000")
    parser.add_argument("--rounds", type=positive, metavar="N", help="instead of 3")
    parser.add_argument("--only", choices=FORMATS, help="one side alone")
    parser.add_argument("--output", type=Path, default=_OUTPUT, metavar="FILE")
    options = parser.parse_args(arguments)
    records, rounds = (QUICK_RECORDS, 1) if options.quick else (FULL.backlog_records, 3)
    options.records = options.records or records
    options.rounds = options.rounds or rounds
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    options = parse(arguments)
    progress, steps = Progress(), list[Step]()
    own = own_spark(progress)
    formats = [options.only] if options.only else list(FORMATS)
    with _filled(options.records, progress) as place:
        for number in range(1, options.rounds + 1):
            # the order of the formats alternates between rounds
            for one in formats if number % 2 else reversed(formats):
                progress.say(f"round {number}: format({one})")
                steps += _run(place, own, one, number, options.records)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps([asdict(one) for one in steps], indent=1) + "\n")
    print(f"{options.records:,} records of 1 KB, lz4; Spark's own source and sink of {OWN_SPARK}")
    print(frames_table(steps))
    progress.say(f"numbers of every step: {options.output}")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    cluster: LocalCluster
    topics: Topics
    folder: Path


@contextmanager
def _filled(records: int, progress: Progress) -> Iterator[_Place]:
    folder = Path(tempfile.mkdtemp(prefix="twinlog-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        config = {"log.segment.delete.delay.ms": "1000"}
        cluster = LocalCluster("source", config=config, heap_mb=BROKER_HEAP_MB)
        stack.enter_context(cluster)
        topics = Topics(cluster.bootstrap)
        progress.say(f"writing {records:,} records of 1 KB")
        for topic in (BACKLOG_TOPIC, STEADY_TOPIC):
            topics.create(topic, FULL.partitions)
        backlog = Backlog(
            topic=BACKLOG_TOPIC, partitions=FULL.partitions, records=records, age_s=0, seed=1
        )
        fill(cluster.bootstrap, backlog)
        yield _Place(cluster=cluster, topics=topics, folder=folder)


def _run(place: _Place, own: OwnSpark, one: str, number: int, records: int) -> list[Step]:
    folder = place.folder / f"{number}-{one}"
    folder.mkdir()
    into = f"into-{number}-{one}"
    place.topics.create(into, FULL.partitions)
    _read_log(place.cluster)
    task = {
        "format": one,
        "bootstrap": place.cluster.bootstrap,
        "topic": BACKLOG_TOPIC,
        "steady": STEADY_TOPIC,
        "into": into,
        "records": records,
        "folder": str(folder),
        "driver_memory": DRIVER_MEMORY,
        "jars": ",".join(map(str, own.jars)) if one == "kafka" else "",
        "producer": PRODUCER,
    }
    python = str(own.python) if one == "kafka" else sys.executable
    try:
        with _Job(python, task, folder / "log") as job:
            found = _steps(job, place.cluster.bootstrap)
            steps = [replace(step, round=number, format=one) for step in found]
        _check_written(place, into, records)
        return steps
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        place.topics.delete([into])


def _read_log(cluster: LocalCluster) -> None:
    """Read the topic's log, so that it is in the page cache for both formats."""
    for file in cluster.data_folder(1).glob(f"{BACKLOG_TOPIC}-*/*.log"):
        with file.open("rb", buffering=0) as log:
            while log.read(2**20):
                pass


def _check_written(place: _Place, into: str, records: int) -> None:
    """Raise CopierFailed unless all records were written. The offsets may include one transaction
    marker per partition.
    """
    found = place.topics.log_end_sum(into, FULL.partitions) or 0
    if not records <= found <= records + FULL.partitions:
        raise CopierFailed(f"{found:,} offsets were written, and {records:,} records were to be")


class _Job:
    """Runs `frames_job` in its own session, and measures its processes."""

    def __init__(self, python: str, task: Mapping[str, Any], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, str(_JOB), json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # without PYTHONPATH, so that the other Spark does not import this package's modules
                env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
                | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        self.tree = ProcessTree(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_session(self._process)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the job, which continues after the caller has processed each line.
        Raises CopierFailed if the job fails.
        """
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        looks = 0
        while True:
            ready, _, _ = select.select([self._process.stdout], [], [], LOOK_S)
            if not ready:
                looks += 1
                if looks % LOOKS_PER_MEMORY:
                    self.tree.look()
                else:
                    self.tree.pss_bytes()
                continue
            line = self._process.stdout.readline()
            if not line:
                break
            yield json.loads(line)
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        if self._process.wait(60):
            said = self._log.read_text(errors="replace")[-2000:]
            raise CopierFailed(f"exit code {self._process.returncode}: {said}")


def _steps(job: _Job, bootstrap: str) -> Iterator[Step]:
    with ExitStack() as stack:
        cpu_s, share = 0.0, None
        for said in job.lines():
            if said.get("event") == "begin":
                if said["step"] == MICRO_BATCH:
                    stack.enter_context(steady_load(bootstrap, STEADY_TOPIC, FULL))
                job.tree.peak_pss_bytes = 0
                share, cpu_s = stack.enter_context(Others()), job.tree.cpu_s()
                continue
            spent = job.tree.cpu_s() - cpu_s
            job.tree.pss_bytes()
            yield Step(
                round=0,
                format="",
                name=said["step"],
                seconds=said["seconds"],
                rows=said.get("rows", 0),
                cpu_s=spent,
                peak_pss_bytes=job.tree.peak_pss_bytes,
                used_by_others=share.share() if share else 0.0,
                times_ms=said.get("times_ms", []),
            )
            stack.close()
            share = None
