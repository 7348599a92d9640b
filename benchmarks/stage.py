"""The environment of all runs: two new clusters, with the source topics filled."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.group_run import RECORDS_EACH
from benchmarks.load import Backlog, fill
from benchmarks.progress import Progress
from benchmarks.scale import Scale
from benchmarks.topics import Topics
from benchmarks.watch import RemoteTopic
from tests.support.sandbox_security import SandboxSecurity
from twinlog.sandbox.brokers import LocalCluster

__all__ = [
    "BACKLOG_TOPIC",
    "BROKER_HEAP_MB",
    "GROUPS_TOPIC",
    "HEAD_TOPIC",
    "OLD_TOPIC",
    "SMALL_TOPIC",
    "STEADY_TOPIC",
    "Stage",
    "new_cluster",
    "open_stage",
]

BACKLOG_TOPIC: Final = "orders"
OLD_TOPIC: Final = "old-orders"
SMALL_TOPIC: Final = "small-orders"
STEADY_TOPIC: Final = "steady"
GROUPS_TOPIC: Final = "grouped"
HEAD_TOPIC: Final = "head"

BROKER_HEAP_MB: Final = 1024
_BROKER_CONFIG: Final = {
    # deletes segments of deleted topics before the next run writes
    "log.segment.delete.delay.ms": "1000",
}
NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})
_OFFSET_SYNCS: Final = "mm2-offset-syncs.B.internal"
_TWO_DAYS_S: Final = 2 * 24 * 3600.0
_WARM_UP_RECORDS: Final = 800_000
_STARTUP_RECORDS: Final = 10_000


@dataclass(slots=True)
class Stage:
    """The two clusters, a folder for files, and a new alias for each run."""

    source: LocalCluster
    target: LocalCluster
    folder: Path
    scale: Scale
    backlog_records: int
    """Number of records in the backlog topic. Small if only the start is measured."""
    source_topics: Topics = field(init=False)
    target_topics: Topics = field(init=False)
    _runs: int = 0

    def __post_init__(self) -> None:
        self.source_topics = Topics(self.source.bootstrap)
        self.target_topics = Topics(self.target.bootstrap)

    def next_alias(self) -> str:
        """Return the next of A1, A2, ... Names of remote and internal topics contain the alias, so
        all topics of a run are new.
        """
        self._runs += 1
        return f"A{self._runs}"

    def remote(self, alias: str, topic: str) -> RemoteTopic:
        """Return the remote topic of a source topic for this alias."""
        grouped = topic == GROUPS_TOPIC
        return RemoteTopic(
            topics=self.target_topics,
            name=f"{alias}.{topic}",
            partitions=self.scale.group_partitions if grouped else self.scale.partitions,
        )

    def bytes_on_disk(self, remote: RemoteTopic) -> int:
        """Return the size of the remote topic's log segments in bytes."""
        data = self.target.data_folder(1)
        folders = (data / f"{remote.name}-{each}" for each in range(remote.partitions))
        return sum(file.stat().st_size for one in folders for file in one.glob("*.log"))

    def read_source_log(self, topic: str) -> None:
        """Read the source's log into the page cache, because otherwise only the first copier would
        read it from disk.
        """
        for file in self.source.data_folder(1).glob(f"{topic}-*/*.log"):
            with file.open("rb", buffering=0) as log:
                while log.read(2**20):
                    pass

    def clean(self, alias: str) -> None:
        """Delete the topics of a run on both clusters."""
        self.target_topics.delete_of_alias(alias)
        self.source_topics.delete_of_alias(alias)
        # the only topic whose name contains just the target's alias
        self.source_topics.delete([_OFFSET_SYNCS])


@contextmanager
def open_stage(
    scale: Scale,
    cases: Iterable[str],
    progress: Progress,
    *,
    source: LocalCluster | None = None,
    target: LocalCluster | None = None,
) -> Iterator[Stage]:
    """Start the clusters, and fill the topics that the cases need. Removes everything at the end.

    `source` and `target` must not be started yet. If they are None, default clusters are created.
    """
    wanted = set(cases)
    folder = Path(tempfile.mkdtemp(prefix="twinlog-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        progress.say("starting two clusters")
        has_tls = "tls" in wanted
        source = stack.enter_context(source or new_cluster("source", has_tls=has_tls))
        target = stack.enter_context(target or new_cluster("target", has_tls=has_tls))
        backlog = scale.backlog_records if wanted & {"backlog", "tls"} else _STARTUP_RECORDS
        stage = Stage(source, target, folder, scale, backlog)
        _warm_up(stage, progress)
        if wanted & {"backlog", "tls", "startup"}:
            _fill(stage, progress, BACKLOG_TOPIC, backlog, age_s=0)
        if "unprotected" in wanted:
            _fill(stage, progress, OLD_TOPIC, scale.old_records, age_s=_TWO_DAYS_S)
        if "small" in wanted:
            _fill(stage, progress, SMALL_TOPIC, scale.small_records, age_s=0, batch_records=1)
        if "groups" in wanted:
            stage.source_topics.create(HEAD_TOPIC, 1)
            stage.source_topics.create(GROUPS_TOPIC, scale.group_partitions)
            fill(
                source.bootstrap,
                Backlog(
                    topic=GROUPS_TOPIC,
                    partitions=scale.group_partitions,
                    records=scale.group_partitions * RECORDS_EACH,
                    age_s=0,
                    seed=scale.seed,
                ),
            )
        yield stage


def new_cluster(
    name: str, more: Mapping[str, str] = NO_MORE, *, has_tls: bool = False
) -> LocalCluster:
    """Return a cluster that is not started. `more`: additional settings of its broker."""
    return LocalCluster(
        name,
        config={**_BROKER_CONFIG, **more},
        heap_mb=BROKER_HEAP_MB,
        security=SandboxSecurity(listeners=("PLAINTEXT", "SSL")) if has_tls else None,
    )


def _warm_up(stage: Stage, progress: Progress) -> None:
    """Write to the target, so that its JVM compiles most of its code before the first copier
    starts.
    """
    progress.say("warming the target up")
    topics, name = stage.target_topics, "warm-up"
    topics.create(name, stage.scale.partitions)
    fill(stage.target.bootstrap, _backlog(stage, name, _WARM_UP_RECORDS, age_s=0))
    topics.delete([name])


def _fill(
    stage: Stage,
    progress: Progress,
    topic: str,
    records: int,
    *,
    age_s: float,
    batch_records: int = 10_000,
) -> None:
    progress.say(f"writing {records:,} records of 1 KB into {topic!r}")
    began = time.monotonic()
    stage.source_topics.create(topic, stage.scale.partitions)
    backlog = _backlog(stage, topic, records, age_s=age_s)
    fill(stage.source.bootstrap, replace(backlog, batch_records=batch_records))
    progress.say(f"written in {time.monotonic() - began:.0f} s")


def _backlog(stage: Stage, topic: str, records: int, *, age_s: float) -> Backlog:
    return Backlog(
        topic=topic,
        partitions=stage.scale.partitions,
        records=records,
        age_s=age_s,
        seed=stage.scale.seed,
    )
