"""Several flows write to one topic of the same name, as MirrorMaker 1 does to aggregate clusters.
Each copy is exact, and no flow disturbs another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pytest

from tests.support.circle_of_flows import IDENTITY, Circle, copied
from tests.support.client import producer
from tests.support.eventually import eventually
from tests.support.groups import commit
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import offset_map_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.mirror.map.offset_map import MAP_PARTITIONS
from twinlog.sandbox import LocalCluster
from twinlog.survey.map_reader import MapReader

pytestmark = pytest.mark.broker

SOURCES: Final = "ABC"
"""Aliases of the source clusters. An alias's index is its cluster's index."""
TARGET: Final = 3
RATE: Final = 200
"""Number of batches per second that each source gets under load."""


class Batches:
    """Writes `per_second` batches of one record each to a topic until its block ends."""

    def __init__(self, cluster: LocalCluster, topic: str, tag: str, per_second: int) -> None:
        self._client = producer(cluster, linger_ms=0)
        self._topic, self._tag, self._per_second = topic, tag, per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.002):
            while self.sent < (time.monotonic() - began) * self._per_second:
                self._client.produce(self._topic, f"{self._tag} {self.sent}".encode())
                self._client.poll(0)
                self.sent += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._client.flush(30) == 0


class FanIn:
    """Flows from each cluster of `SOURCES` into the last cluster. Each flow has its own
    supervisor.
    """

    def __init__(self, folder: Path, clusters: Sequence[LocalCluster]) -> None:
        self.circle = Circle(folder, clusters)
        self.clusters = clusters
        self.topic = self.circle.topic()
        self.mirrors: dict[str, Mirror] = {}

    def begin(self, stack: ExitStack, alias: str, *, waits: bool = True) -> None:
        """Start the flow from `alias`. By default, wait until all started flows are at the ends of
        their sources.
        """
        at = SOURCES.index(alias)
        self.circle.put(at, count=5)
        config = self.circle.file(
            {alias: at, "T": TARGET},
            [f"{alias}->T"],
            name=alias,
            replication_policy_class=IDENTITY,
        )
        self.mirrors[alias] = stack.enter_context(Mirror(config, lanes=1))
        if waits:
            self.at_end()
        else:
            eventually(lambda: self.copied(alias) > 0, what=f"records of {alias}")

    def load(self, alias: str) -> Batches:
        at = SOURCES.index(alias)
        return Batches(self.clusters[at], self.topic, f"{alias} load", RATE)

    def copied(self, alias: str) -> int:
        """Return the number of records that the flow has copied."""
        return sum(p.records for f in self.mirrors[alias].snapshots for p in f.partitions)

    def parts(self) -> list[PartitionSnapshot]:
        return [p for m in self.mirrors.values() for f in m.snapshots for p in f.partitions]

    def at_end(self) -> None:
        eventually(
            lambda: [(p.state, p.lag) for p in self.parts()] == [("AT_END", 0)] * len(self.mirrors),
            what="all flows at their ends",
        )

    def cold_starts(self, alias: str) -> int:
        """Return the number of cold starts of the flow's copy. Each one begins a new term in the
        offset map, numbered from 0.
        """
        flow_source = self.circle.name(alias)
        with ClusterClient(settings_for(self.clusters[TARGET].bootstrap, "c")) as client:
            maps = MapReader(client, offset_map_topic(flow_source), MAP_PARTITIONS).read()
        return 1 + max(known.term.start for known in maps.values() if known.topic == self.topic)

    def errors(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for mirror in self.mirrors.values():
            for flow in mirror.snapshots:
                found.update(flow.errors)
        return found


def each_once(fan: FanIn) -> None:
    """Check that the target has every record of each source once and in order."""
    there = fan.circle.values(TARGET, fan.topic)
    total = 0
    for source in range(len(fan.mirrors)):
        here = fan.circle.values(source, fan.topic)
        known, total = set(here), total + len(here)
        assert [value for value in there if value in known] == here
    assert len(there) == total


@pytest.mark.witness(
    "several flows into one topic are exact, and do not trigger cold starts of each other"
)
def test_two_flows_into_one_topic_disturb_each_other_in_nothing(
    tmp_path: Path, four_clusters: list[LocalCluster]
) -> None:
    fan = FanIn(tmp_path, four_clusters)
    with ExitStack() as stack:
        fan.begin(stack, "A")
        fan.begin(stack, "B")
        with fan.load("A") as one, fan.load("B") as other:
            eventually(lambda: min(one.sent, other.sent) >= 1_000, what="1,000 batches of each")
        fan.at_end()
        assert fan.errors() == {}
        assert (fan.cold_starts("A"), fan.cold_starts("B")) == (1, 1)
        for mirror in fan.mirrors.values():
            mirror.stop()
    each_once(fan)


@pytest.mark.witness("check and groups ready name groups that would skip records of other flows")
def test_groups_that_would_skip_records_of_another_source(
    tmp_path: Path, four_clusters: list[LocalCluster], capsys: pytest.CaptureFixture[str]
) -> None:
    circle = Circle(tmp_path, four_clusters)
    circle.put(0, count=4)
    circle.put(1, count=4)
    group, topic = circle.name("shop"), circle.topic()
    keys = {"replication_policy_class": IDENTITY, "groups": group}
    ends = {"A": 0, "B": 1, "T": TARGET}
    both = circle.file(ends, ["A->T", "B->T"], "both", **keys)
    alone = circle.file({"A": 0, "T": TARGET}, ["A->T"], "alone", **keys)

    def said(file: Path, *flows: str) -> list[list[str]]:
        """Return the notes of `check` about other writers, for each of the flows."""
        known = {one.flow: one.notes for one in check(load(file, environment={})).flows}
        return [[n for n in known[circle.flow(f)] if "also gets" in n] for f in flows]

    commit(four_clusters[0], group, topic, 2)
    first, second = said(both, "A->T", "B->T")
    (line,) = first
    assert f"{topic} on {circle.name('T')} also gets the records of {circle.flow('B->T')}." in line
    assert (f"({group})" in line, second) == (True, [])
    assert said(alone, "A->T") == [[]], "nothing is known of the other flow yet"
    copied(both)
    assert said(alone, "A->T") == [[line]]
    commit(four_clusters[1], group, topic, 4)
    assert [len(one) for one in said(both, "A->T", "B->T")] == [1, 1]
    capsys.readouterr()
    run(["groups", "ready", str(alone)])
    assert line in capsys.readouterr().out


@pytest.mark.alone
def test_a_third_flow_that_joins_later_disturbs_neither(
    tmp_path: Path, four_clusters: list[LocalCluster]
) -> None:
    fan = FanIn(tmp_path, four_clusters)
    with ExitStack() as stack:
        fan.begin(stack, "A")
        with fan.load("A"):
            alone = per_second(fan, ["A"], 20)["A"]
        fan.begin(stack, "B")
        with fan.load("A"), fan.load("B"):
            together = per_second(fan, ["A", "B"], 120)
            with ExitStack() as third:
                fan.begin(stack, "C", waits=False)
                third.enter_context(fan.load("C"))
                three = per_second(fan, ["A", "B", "C"], 30)
        fan.at_end()
        assert fan.errors() == {}
        assert [fan.cold_starts(alias) for alias in SOURCES] == [1, 1, 1]
        for rate in (*together.values(), *three.values()):
            assert rate >= 0.8 * alone, (alone, together, three)
        for mirror in fan.mirrors.values():
            mirror.stop()
    each_once(fan)


def per_second(fan: FanIn, aliases: Sequence[str], seconds: float) -> dict[str, float]:
    """Return the number of records per second that each flow copies."""
    before, began = {alias: fan.copied(alias) for alias in aliases}, time.monotonic()
    time.sleep(seconds)  # the rate is measured over this time
    took_s = time.monotonic() - began
    return {alias: (fan.copied(alias) - before[alias]) / took_s for alias in aliases}
