"""Processes of one flow have different files. No process copies a topic unchanged that another file
transforms, whether the process leads, has led or is a standby.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.client import eventually, produce, read_all
from tests.support.groups import Pair, numbered
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, topic_names
from twinlog.config.load import load
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.leading.lead import StandingBy
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

COUNT: Final = 10


class TwoFiles(Pair):
    """A flow for all topics of a test. One of its two files has a transform for topics that begin
    with `pay`.
    """

    def __init__(self, folder: Path, a: LocalCluster, b: LocalCluster) -> None:
        super().__init__(folder, a, b, both_ways=False)
        self.flow = f"{self.alias_a}->{self.alias_b}"
        self.raw, self.pay = f"raw-{self.topic}", f"pay-{self.topic}"
        lines = self.config.read_text().replace(
            f"topics = {self.topic}\n",
            f"topics = .*{self.topic}\nrefresh.topics.interval.seconds = 1\n",
        )
        self.config.write_text(lines)
        self.masking = folder / "masking.properties"
        own = f"{self.flow}.twinlog.transforms"
        masks = f"{own} = mask\n{own}.mask.topics = pay.*\n{own}.mask.function = privacy:mask\n"
        self.masking.write_text(f"{lines}\n{masks}")
        self.add(self.raw)

    def add(self, topic: str) -> None:
        create_topic(self.a, topic)
        produce(self.a, topic, numbered(0, COUNT))

    def set_up(self) -> FlowSetup:
        return flow_setup(load(self.masking, environment={}).flows[0])

    def once(self) -> dict[str, PartitionSnapshot]:
        with Mirror(self.config, once=True, lanes=1) as mirror:
            (flow,) = mirror.wait()
        return {part.topic: part for part in flow.partitions}

    def count(self, topic: str) -> int:
        remote = f"{self.alias_a}.{topic}"
        return len(read_all(self.b, remote)) if remote in topic_names(self.b) else 0


@pytest.fixture
def pair(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> TwoFiles:
    return TwoFiles(tmp_path, source_cluster, target_cluster)


@pytest.mark.witness("no process copies unchanged what another file transforms")
def test_an_older_file_leads_after_the_one_with_transforms(pair: TwoFiles) -> None:
    pair.set_up().prepare(once=False).close(drained=True)
    pair.add(pair.pay)
    found = pair.once()
    assert (found[pair.raw].code, found[pair.pay].code) == ("", "TRANSFORMS_DIFFER")
    assert f"list {pair.pay} in twinlog.transforms.removed" in str(found[pair.pay].message)
    assert (pair.count(pair.raw), pair.count(pair.pay)) == (COUNT, 0)

    with pair.config.open("a") as lines:
        lines.write(f"\n{pair.flow}.twinlog.transforms.removed = pay.*\n")
    assert pair.once()[pair.pay].code == ""
    assert pair.count(pair.pay) == COUNT


def test_an_older_file_leads_while_the_one_with_transforms_waits(pair: TwoFiles) -> None:
    first = f"pay-first-{pair.topic}"
    pair.add(first)
    with Mirror(pair.config, lanes=1) as mirror:
        eventually(lambda: pair.count(first) == pair.count(pair.raw) == COUNT)
        standby = pair.set_up()
        with pytest.raises(StandingBy):
            standby.prepare(once=False)
        pair.add(pair.pay)
        eventually(
            lambda: any(
                one.topic == pair.pay and one.code == "TRANSFORMS_DIFFER"
                for one in mirror.snapshots[0].partitions
            )
        )
        produce(pair.a, first, numbered(COUNT, COUNT))
        eventually(lambda: pair.count(first) == 2 * COUNT)  # this topic was already copied
        standby.close(None)
    assert pair.count(pair.pay) == 0
