"""Share groups move to the other cluster and back. No record is skipped, the records that were
acknowledged last may be delivered again, and groups in use are left alone.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.groups import Pair, commit, committed, numbered, with_transactions
from tests.support.mirror import Mirror
from tests.support.share import begin_at, from_the_start, in_group, stands_at, take, take_to
from tests.support.topics import create_topic, delete_records, end_offsets
from twinlog.control.groups.checkpoints import WITHOUT_SYNC, ShareGroups
from twinlog.control.groups.group_sync import Skipped
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

IN_ORDER = [b"%d" % n for n in range(10)]


@pytest.mark.parametrize(
    "begins",
    [
        pytest.param(
            "at once", marks=pytest.mark.witness("share groups are moved without skipped records")
        ),
        "late",
    ],
)
def test_share_groups_continue_there_and_back_and_skip_nothing(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begins: str,
) -> None:
    """Share groups move to B and back to A, and skip no record. With "late", the reverse flow's
    first round runs only after the group has read on B.
    """
    pair = Pair(tmp_path, source_cluster, target_cluster)
    with_transactions(pair)  # offsets 0 to 7, with gaps between and after the records
    produce(pair.a, pair.topic, numbered(8, 2))
    part, done = f"{pair.group}-part", f"{pair.group}-done"
    for cluster in (pair.a, pair.b):
        from_the_start(cluster, part, done)
    assert take(pair.a, part, pair.topic, 3, 1) == IN_ORDER[:4]
    assert take(pair.a, done, pair.topic, 10) == IN_ORDER

    has_read = threading.Event()
    sync = ShareGroups.sync

    def late_sync(shares: ShareGroups) -> None:
        if shares._flow.config.source_alias == pair.alias_a or has_read.is_set():
            sync(shares)

    if begins == "late":
        monkeypatch.setattr(ShareGroups, "sync", late_sync)
    with Mirror(pair.config) as mirror:
        # each round of the sync sets the groups' offsets up to the end of the copy
        eventually(lambda: stands_at(pair.b, done, pair.remote) == 10)
        eventually(lambda: stands_at(pair.b, part, pair.remote) >= 0)
        # Brokers report the group's position before its last acknowledgements, some of them with a
        # delay.
        again = take_to(pair.b, part, pair.remote, last=b"9")
        assert again == IN_ORDER[-len(again) :]
        assert len(again) >= 7, "3 comes again"
        produce(pair.a, pair.topic, [Outgoing(value=b"sign")])
        assert take(pair.b, done, pair.remote, 1) == [b"sign"]

        # no acknowledgement is delayed any more
        assert take(pair.b, part, pair.remote, 1) == [b"sign"]
        has_read.set()
        (end,) = end_offsets(pair.a, pair.topic).values()
        eventually(lambda: stands_at(pair.a, part, pair.topic) == end, what="back on A")
        mirror.stop()
    produce(pair.a, pair.topic, [Outgoing(value=b"more")])
    assert take(pair.a, part, pair.topic, 1) == [b"more"]
    checkpoints = f"{pair.alias_a}.checkpoints.internal"
    named = [record.key or b"" for record in read_all(pair.b, checkpoints)]
    assert not [key for key in named if pair.group.encode() in key]


def test_group_may_be_further_than_brokers_tell(
    source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, numbered(0, 10))
    group = f"share-{fresh_topic}"
    from_the_start(source_cluster, group)

    def told() -> tuple[int, int]:
        surely = stands_at(source_cluster, group, fresh_topic)
        return surely, stands_at(source_cluster, group, fresh_topic, furthest=True)

    assert told() == (-1, -1)
    take(source_cluster, group, fresh_topic, 3, 2)
    assert told() == (3, 5)  # the first offset lacks the last acknowledgements
    take(source_cluster, group, fresh_topic, 5)
    assert told() == (10, 10)  # both offsets include all acknowledgements


def filled(folder: Path, a: LocalCluster, b: LocalCluster, *, sync: bool = True) -> Pair:
    pair = Pair(folder, a, b, sync=sync, both_ways=False)
    create_topic(a, pair.topic)
    produce(a, pair.topic, numbered(0, 10))
    return pair


def test_without_the_sync_they_are_listed_with_the_reason(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    pair = filled(tmp_path, source_cluster, target_cluster, sync=False)
    begin_at(pair.a, pair.topic, {pair.group: 4})
    with Mirror(pair.config) as mirror:
        eventually(
            lambda: (
                [flow.skipped_groups for flow in mirror.snapshots] == [{pair.group: WITHOUT_SYNC}]
            ),
        )
        mirror.stop()


def test_idle_share_groups_follow_and_others_are_left_unchanged(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = filled(tmp_path, source_cluster, target_cluster)
    new, active, taken, ahead = (
        f"{pair.group}-{what}" for what in ("new", "active", "taken", "ahead")
    )
    begin_at(pair.a, pair.topic, dict.fromkeys((new, active, taken, ahead), 4))
    consumers, other = f"{pair.group}-consumers", create_topic(pair.b, f"other-{pair.topic}")
    commit(pair.b, taken, other, 0)  # on the target, a group of consumers has the same name
    commit(pair.a, consumers, pair.topic, 4)
    delete_records(pair.a, pair.topic, before=1)
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()  # `--once` ends with a round of the sync
    assert stands_at(pair.b, new, pair.remote) == 3

    begin_at(pair.a, pair.topic, dict.fromkeys((new, active, taken, ahead), 6))
    begin_at(pair.b, pair.remote, {ahead: 8})
    with caplog.at_level(logging.WARNING), in_group(pair.b, active, pair.remote) as member:
        eventually(lambda: bool(len(member.poll(0.5))))
        with Mirror(pair.config) as mirror:

            def skipped() -> dict[str, str]:
                return {g: r for flow in mirror.snapshots for g, r in flow.skipped_groups.items()}

            eventually(lambda: stands_at(pair.b, new, pair.remote) == 5)
            reasons = {
                active: Skipped.ACTIVE,
                ahead: Skipped.AHEAD,
                taken: Skipped.NOT_A_CONSUMER,
            }
            eventually(lambda: skipped() == reasons)
            assert stands_at(pair.b, active, pair.remote) == 3
            assert stands_at(pair.b, ahead, pair.remote) == 8
            # moved back on the source, but groups are never moved back on the target
            begin_at(pair.a, pair.topic, {new: 2})
            eventually(lambda: skipped().get(new) == Skipped.AHEAD)
            assert stands_at(pair.b, new, pair.remote) == 5
            assert committed(pair.b, consumers, pair.remote) == 3
            mirror.stop()
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if f"group {active} " in line and "in use" in line]) == 1
