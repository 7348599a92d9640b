"""A topic is re-created under its name. Positions of the earlier topic are not used for the new
one.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.client import eventually
from tests.support.groups import commit, committed
from tests.support.led_flow import led_flow, led_to
from tests.support.rig import Rig
from tests.support.topics import create_topic, delete_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.control.duties.offset_syncs import OffsetSyncs
from twinlog.control.duties.rounds import LedFlow, NotNow, PartitionView, with_same_topics
from twinlog.control.duties.source_positions import GroupCommits
from twinlog.mirror.names.filters import offset_syncs_topic

pytestmark = [pytest.mark.faults, pytest.mark.broker]


def anew(rig: Rig, side: str) -> None:
    cluster, topic = (rig.source, rig.topic) if side == "source" else (rig.target, rig.remote)
    delete_topic(cluster, topic)
    create_topic(cluster, topic)


@pytest.mark.witness("a position by topic name is not used after the topic was created again")
def test_late_commit_of_a_former_topic_is_no_start(rig: Rig) -> None:
    """Kafka deletes a topic's group offsets with the topic. If a leader commits an offset directly
    after that, the offset stays, and would skip the first records of the new topic. So it must not
    be used as a start.
    """
    group = f"mm1-{rig.alias}"
    keys = {"twinlog.source.group.id": group}
    rig.create()
    rig.put(range(20))
    rig.copy_once(keys)
    anew(rig, "source")
    rig.put(range(100, 150))
    commit(rig.source, group, rig.topic, 20)
    # delete the copy, as the message of SOURCE_RECREATED advises, but without the export
    delete_topic(rig.target, rig.remote)
    rig.copy_once(keys)
    assert rig.numbers() == list(range(100, 150))


@pytest.mark.witness("positions of a deleted topic are not written for its successor")
def test_position_of_a_former_topic_is_written_nowhere(rig: Rig) -> None:
    position_is_written_nowhere(rig, "source")


def test_position_in_a_former_remote_topic_is_written_nowhere(rig: Rig) -> None:
    position_is_written_nowhere(rig, "target")


def position_is_written_nowhere(rig: Rig, side: str) -> None:
    group = f"mm1-{rig.alias}"
    rig.create()
    create_topic(rig.target, rig.remote)
    led, _ = led_flow(rig.config({"twinlog.source.group.id": group}))
    before, later = led_to(led, 20), led_to(led, 25)
    config = led.config.offset_syncs
    assert config is not None

    def synced() -> int:
        with ClusterClient(led.source) as source:
            return len([*read_to_end(source, offset_syncs_topic(led.config, config), 0)])

    def told(flow: LedFlow) -> None:
        GroupCommits(flow).round()
        syncs = OffsetSyncs(flow, config)
        syncs.round()
        syncs.close()

    def confirmed_now(flow: LedFlow) -> list[PartitionView]:
        with ClusterClient(led.source) as source, ClusterClient(led.target) as target:
            return with_same_topics(flow.partitions(), source, target)

    told(before)
    assert committed(rig.source, group, rig.topic) == 20
    assert (count := synced())
    assert confirmed_now(before)
    anew(rig, side)
    if side == "source":
        eventually(lambda: committed(rig.source, group, rig.topic) == -1)
    told(later)
    assert committed(rig.source, group, rig.topic) == (-1 if side == "source" else 20)
    assert synced() == count
    assert confirmed_now(later) == []


def test_a_process_that_does_not_lead_commits_no_offset_of_the_source_group(rig: Rig) -> None:
    """A frozen leader does not know that a restarted MirrorMaker 1 has committed newer offsets.
    When it no longer leads, it must not overwrite them.
    """
    group = f"mm1-{rig.alias}"
    rig.create()
    create_topic(rig.target, rig.remote)
    led, _ = led_flow(rig.config({"twinlog.source.group.id": group}))
    flow = led_to(led, 20)
    GroupCommits(flow).round()
    commit(rig.source, group, rig.topic, 25)
    with pytest.raises(NotNow):
        GroupCommits(replace(flow, may_act=lambda: False)).round()
    assert committed(rig.source, group, rig.topic) == 25
