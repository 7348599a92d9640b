"""sync.group.offsets: idle groups on the target follow the source and are never moved back. Active
groups are left alone, and the reason is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kafka.protocol.consumer import JoinGroupRequest

from tests.support.client import Outgoing, consumer, eventually, produce
from tests.support.groups import Pair, commit, committed, resume
from tests.support.mirror import Mirror
from tests.support.rounds import Rounds
from tests.support.settings import settings_for
from tests.support.streams import join_streams_group, leave_streams_group
from tests.support.topics import create_topic, delete_records
from twinlog.cluster.client import ClusterClient
from twinlog.control.groups.checkpoints import CheckpointDuty
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.fixture
def pair(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Pair:
    return filled(Pair(tmp_path, source_cluster, target_cluster, both_ways=False))


def filled(pair: Pair) -> Pair:
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, [Outgoing(value=b"%d" % n) for n in range(10)])
    return pair


@pytest.fixture
def member(pair: Pair) -> Iterator[Callable[[str, str], Consumer]]:
    """Return a function that creates consumers as members of a group on the target."""
    made: list[Consumer] = []

    def join(group: str, protocol: str) -> Consumer:
        client = consumer(pair.b, config={"group.id": group, "group.protocol": protocol})
        made.append(client)
        client.subscribe([pair.remote])
        eventually(lambda: bool(client.poll(0.1)) or bool(client.assignment()))
        return client

    yield join
    for client in made:
        client.close()


@pytest.mark.witness("offsets of idle groups are synced, those of active groups are not changed")
def test_idle_groups_follow_and_active_ones_are_left_unchanged(
    pair: Pair,
    member: Callable[[str, str], Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()  # so that the target has the topic
    active = {f"{pair.group}-{protocol}": protocol for protocol in ("classic", "consumer")}
    members = {group: member(group, protocol) for group, protocol in active.items()}
    new, ahead = f"{pair.group}-new", f"{pair.group}-ahead"
    commit(pair.b, ahead, pair.remote, 9)
    for group in (*active, new, ahead):
        commit(pair.a, group, pair.topic, 4)

    with caplog.at_level(logging.WARNING), Mirror(pair.config) as mirror:

        def skipped() -> dict[str, str]:
            return {g: r for flow in mirror.snapshots for g, r in flow.skipped_groups.items()}

        eventually(lambda: committed(pair.b, new, pair.remote) == 4)
        eventually(lambda: {*active, ahead} <= set(skipped()))
        assert all("in use" in skipped()[group] for group in active)
        assert "further" in skipped()[ahead]
        assert committed(pair.b, ahead, pair.remote) == 9
        assert all(committed(pair.b, group, pair.remote) == -1 for group in active)

        commit(pair.a, new, pair.topic, 7)
        eventually(lambda: committed(pair.b, new, pair.remote) == 7)
        # the group goes back on the source, but idle groups are never moved back on the target
        commit(pair.a, new, pair.topic, 2)
        for group, client in members.items():
            client.close()
            eventually(lambda: committed(pair.b, group, pair.remote) == 4)  # noqa: B023
            assert resume(pair.b, group, pair.remote)[:1] == [b"4"]
        assert committed(pair.b, new, pair.remote) == 7
        mirror.stop()
    lines = [record.getMessage() for record in caplog.records]
    for group in active:
        (line,) = [line for line in lines if f"group {group} " in line]
        assert "in use" in line


def test_group_that_was_moved_back_on_the_source_stays_there(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = filled(Pair(tmp_path, source_cluster, target_cluster))
    group, later = pair.stop_at(7), f"{pair.group}-later"

    def knowing(duty: CheckpointDuty) -> str:
        return duty._flow.name if group in duty._groups else ""

    # groups are listed less often than they are set, so count only rounds that know the group
    rounds = Rounds(monkeypatch, CheckpointDuty, "_sync", knowing)
    with Mirror(pair.config) as mirror:
        eventually(lambda: committed(pair.b, group, pair.remote) == 7)
        commit(pair.a, group, pair.topic, 2)
        commit(pair.a, later, pair.topic, 5)
        eventually(lambda: committed(pair.b, later, pair.remote) == 5)
        rounds.pass_by(f"{pair.alias_b}->{pair.alias_a}")
        assert committed(pair.a, group, pair.topic) == 2
        # a commit on the target is progress of the group, so it is synced back
        commit(pair.b, group, pair.remote, 8)
        eventually(lambda: committed(pair.a, group, pair.topic) == 8)
        mirror.stop()


def test_group_that_was_moved_back_on_the_source_is_not_moved_by_the_reverse_flow(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sync of A->B has set a group's offset on B, and then the group is moved back on A. B->A
    runs in another process. The checkpoints of A->B show that the offset on B is the sync's, so
    B->A must not move the group on A to it.
    """
    pair = filled(Pair(tmp_path, source_cluster, target_cluster))
    group, new = pair.stop_at(7), f"{pair.group}-new"
    there, back = f"{pair.alias_a}->{pair.alias_b}", f"{pair.alias_b}->{pair.alias_a}"
    settings = pair.config.read_text()
    for flow in (there, back):
        others = settings.replace(f"{flow}.enabled = true", f"{flow}.enabled = false")
        (tmp_path / f"{'there' if flow == back else 'back'}.properties").write_text(others)

    rounds = Rounds(monkeypatch, CheckpointDuty, "_sync", lambda duty: duty._flow.name)
    with Mirror(tmp_path / "there.properties", lanes=1) as mirror:
        eventually(lambda: committed(pair.b, group, pair.remote) == 7)
        commit(pair.a, group, pair.topic, 2)
        commit(pair.b, new, pair.remote, 8)
        rounds.pass_by(there)
        with Mirror(tmp_path / "back.properties", lanes=1) as returning:
            eventually(lambda: committed(pair.a, new, pair.topic) == 8)
            rounds.pass_by(back)
            assert committed(pair.a, group, pair.topic) == 2
            commit(pair.b, group, pair.remote, 9)
            eventually(lambda: committed(pair.a, group, pair.topic) == 9)
            returning.stop()
        mirror.stop()


def test_once_ends_with_a_round_and_stays_within_the_log(pair: Pair) -> None:
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()
    delete_records(pair.b, pair.remote, before=6)
    far_behind = pair.stop_at(2)
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()
    assert committed(pair.b, far_behind, pair.remote) == 6
    assert resume(pair.b, far_behind, pair.remote) == [b"6", b"7", b"8", b"9"]


def test_groups_that_find_nothing_there_are_named_with_the_reason(pair: Pair) -> None:
    unmirrored = f"other-{pair.topic}"
    create_topic(pair.a, unmirrored)
    produce(pair.a, unmirrored, [Outgoing(value=b"x")])
    settings = pair.config.read_text()
    pair.config.write_text(settings.replace("offsets.enabled = true", "offsets.enabled = false"))
    commit(pair.a, f"{pair.group}-here", pair.topic, 3)
    commit(pair.a, f"{pair.group}-elsewhere", unmirrored, 1)
    watcher = consumer(pair.a, config={"group.id": f"{pair.group}-silent"})
    try:
        watcher.subscribe([pair.topic])
        eventually(lambda: bool(watcher.poll(0.1)) or bool(watcher.assignment()))
        with Mirror(pair.config) as mirror:

            def named() -> dict[str, str]:
                return {
                    group: reason
                    for flow in mirror.snapshots
                    for group, reason in flow.groups_without_checkpoint.items()
                }

            def all_named() -> bool:
                assert named() == {
                    f"{pair.group}-elsewhere": f"{unmirrored}: not mirrored by this flow",
                    f"{pair.group}-silent": "no offsets are committed",
                }
                return True

            eventually(all_named)
            commit(pair.a, f"{pair.group}-elsewhere", pair.topic, 4)
            eventually(lambda: list(named()) == [f"{pair.group}-silent"])
            mirror.stop()
    finally:
        watcher.close()


@pytest.mark.witness(
    "groups of Kafka Streams' protocol are synced, groups of other types are reported"
)
def test_streams_groups_follow_and_groups_of_other_kinds_are_named(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    streams, other = f"{pair.group}-streams", f"{pair.group}-registry"
    pair.stop_at(4)  # looking up a coordinator makes the brokers create the topic for groups
    member = join_streams_group(pair.a, streams, pair.topic)
    leave_streams_group(pair.a, streams, member)
    commit(pair.a, streams, pair.topic, 7)
    join_other_kind(pair.a, other)
    with caplog.at_level(logging.WARNING), Mirror(pair.config) as mirror:
        eventually(lambda: committed(pair.b, streams, pair.remote) == 7)
        eventually(lambda: other in skipped_groups(mirror))
        assert "'sr'" in skipped_groups(mirror)[other]
        assert streams not in skipped_groups(mirror)
        mirror.stop()
    (line,) = [r.getMessage() for r in caplog.records if other in r.getMessage()]
    assert "'sr'" in line
    join_streams_group(pair.b, streams, pair.remote)
    assert committed(pair.b, streams, pair.remote) == 7, "the application resumes there"


def skipped_groups(mirror: Mirror) -> dict[str, str]:
    return {g: r for flow in mirror.snapshots for g, r in flow.skipped_groups.items()}


def join_other_kind(cluster: LocalCluster, group: str) -> None:
    """Join the group as a schema registry does: members elect a leader, and commit no offsets."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="v0", metadata=b"")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=group,  # with a static member ID, the first join needs no member ID
        protocol_type="sr",
        protocols=[protocol],
        reason=None,
    )
    with ClusterClient(settings_for(cluster.bootstrap, "a")) as client:
        (node,) = client.metadata([]).brokers
        eventually(lambda: client.attempt(node, request).error_code == 0)
