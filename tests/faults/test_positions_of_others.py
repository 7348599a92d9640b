"""A group's position is derived neither from late rows of an earlier leader nor from a log that no
lane has checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support import raw
from tests.support.groups import commit, committed
from tests.support.led_flow import led_flow, led_to
from tests.support.rig import OLD, Rig
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append, read_to_end
from twinlog.control.duties.offset_syncs import OffsetSyncs
from twinlog.control.duties.rounds import LedFlow, NotNow
from twinlog.control.groups.checkpoints import CheckpointDuty
from twinlog.mirror.names.filters import offset_syncs_topic, policy_of
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint, OffsetSync
from twinlog.wire.records import Record

pytestmark = [pytest.mark.faults, pytest.mark.broker]

QUICKLY: Final = {
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
}
CHECK_EVERY_S: Final = "twinlog.control.duties.led_log.CHECK_EVERY_S"


def led(rig: Rig, group: str, at: int) -> LedFlow:
    """Return a flow that has copied twenty records. The group's offset on the source is `at`."""
    rig.create()
    rig.put(range(20))
    keys = {**QUICKLY, "groups": group}
    rig.copy_once(keys)
    commit(rig.source, group, rig.topic, at)
    flow, _ = led_flow(rig.config(keys))
    return led_to(flow, 20)


def checkpoints(flow: LedFlow) -> list[tuple[int, int]]:
    """Return the upstream and downstream offsets of all checkpoints, oldest first."""
    topic = policy_of(flow.config).checkpoints_topic(flow.config.source_alias)
    with ClusterClient(flow.target) as target:
        found = [Checkpoint.decode(one.key, one.value) for one in read_to_end(target, topic, 0)]
    return [(one.upstream_offset, one.downstream_offset) for one in found]


@pytest.mark.witness("a late checkpoint of a former leader is corrected")
def test_late_checkpoint_of_a_former_leader(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECK_EVERY_S, 0.0)
    group = f"app-{rig.alias}"
    flow = led(rig, group, 12)
    late = Checkpoint(
        group=group,
        topic_partition=TopicPartition(rig.remote, 0),
        upstream_offset=7,
        downstream_offset=7,
        metadata="",
    )
    duty = CheckpointDuty(flow)
    try:
        duty.round()
        assert checkpoints(flow) == [(12, 12)]
        topic = policy_of(flow.config).checkpoints_topic(flow.config.source_alias)
        with ClusterClient(flow.target) as target:
            append(target, TopicPartition(topic, 0), [Record(0, 1, late.key(), late.value())])
        duty.round()
        assert checkpoints(flow) == [(12, 12), (7, 7), (12, 12)]
        duty.round()
        assert len(checkpoints(flow)) == 3, "its own rows are no others'"
    finally:
        duty.close()


def test_a_process_that_does_not_lead_writes_no_checkpoint_and_no_offset_sync(rig: Rig) -> None:
    flow = replace(led(rig, f"app-{rig.alias}", 12), leads=lambda: False)
    config = flow.config.offset_syncs
    assert config is not None
    for duty in (CheckpointDuty(flow), OffsetSyncs(flow, config)):
        with pytest.raises(NotNow):
            duty.round()
        duty.close()
    assert checkpoints(flow) == []
    topic = offset_syncs_topic(flow.config, config)  # other tests' flows also write to this topic
    with ClusterClient(flow.source) as source:
        found = [OffsetSync.decode(one.key, one.value) for one in read_to_end(source, topic, 0)]
    assert [one for one in found if one.topic_partition.topic == rig.topic] == []


def test_late_offset_sync_of_a_former_leader(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECK_EVERY_S, 0.0)
    flow = led(rig, f"app-{rig.alias}", 12)
    config = flow.config.offset_syncs
    assert config is not None
    topic = offset_syncs_topic(flow.config, config)

    def newest() -> int:
        with ClusterClient(flow.source) as source:
            last = [*read_to_end(source, topic, 0)][-1]
        return OffsetSync.decode(last.key, last.value).upstream_offset

    duty = OffsetSyncs(flow, config)
    try:
        # twice, because the newest offset is synced only if it has not moved since the round before
        for _ in range(2):
            duty.round()
        before = newest()
        late = OffsetSync(
            topic_partition=TopicPartition(rig.topic, 0), upstream_offset=5, downstream_offset=5
        )
        with ClusterClient(flow.source) as source:
            append(source, TopicPartition(topic, 0), [Record(0, 1, late.key(), late.value())])
        assert newest() == 5
        for _ in range(2):
            duty.round()
        assert newest() == before > 5
    finally:
        duty.close()


@pytest.mark.witness("a group is set only from a log that a lane has checked")
def test_group_is_not_moved_by_a_log_that_no_lane_has_checked(rig: Rig) -> None:
    """The target's log lacks records 10 to 14, so record 17 is at target offset 12. The map does
    not show this. If the group's offset 12 were translated by the map, the group would skip
    records. So the group is not moved before a lane has checked the log.
    """
    group = f"app-{rig.alias}"
    rig.create()
    rig.put(range(10), age_ms=OLD)
    rig.copy_once()
    rig.put(range(10, 20), age_ms=OLD)
    commit(rig.source, group, rig.topic, 12)
    with rig.target_forgets_after(1000):
        rig.forgotten()
        writer = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        writer.send([rig.record(n, age_ms=OLD) for n in range(15, 20)], 15).expect_ok()
        flow, _ = led_flow(rig.config({**QUICKLY, "groups": group}))
        flow = led_to(flow, -1)
        (view,) = flow.partitions()
        unseen = (replace(view, is_position_unknown=True),)
        duty = CheckpointDuty(replace(flow, partitions=lambda: unseen))
        try:
            duty.round()
        finally:
            duty.close()
        assert checkpoints(flow) == []
        assert committed(rig.target, group, rig.remote) == -1
        assert rig.fail_once()[0] == "GAP_WRITTEN"
