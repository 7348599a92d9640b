"""The reverse flow moves a group on the original cluster past exactly those records that the group
has read on the other cluster. Each flow has its own process, and the processes share only what is
on the clusters.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import Pair, commit, committed, resume
from tests.support.mirror import Mirror
from tests.support.rounds import Rounds
from tests.support.topics import create_topic, delete_records, delete_topic, end_offsets
from twinlog.client import MirrorClient, TopicPartition, Translation
from twinlog.control.groups import checkpoints
from twinlog.control.groups.checkpoints import CheckpointDuty
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


class Ways(Pair):
    """Two clusters, and one configuration file for each of the two flows between them."""

    def __init__(
        self, folder: Path, a: LocalCluster, b: LocalCluster, *, has_alias: bool = False
    ) -> None:
        super().__init__(folder, a, b, has_alias=has_alias)
        self.flow_back = f"{self.alias_b}->{self.alias_a}"
        self.there = self._without(self.flow_back, folder / "there.properties")
        self.back = self._without(f"{self.alias_a}->{self.alias_b}", folder / "back.properties")
        self.fill(0)

    def _without(self, flow: str, file: Path) -> Path:
        text = self.config.read_text()
        file.write_text(text.replace(f"{flow}.enabled = true", f"{flow}.enabled = false"))
        return file

    def fill(self, first: int) -> None:
        create_topic(self.a, self.topic)
        produce(self.a, self.topic, values(first, 10))

    def copy(self) -> None:
        with Mirror(self.there, lanes=1, once=True) as mirror:
            mirror.wait()


def values(first: int, count: int) -> list[Outgoing]:
    return [Outgoing(value=b"%d" % n) for n in range(first, first + count)]


def set_to(file: Path, key: str, value: str) -> None:
    """Set a key in the file to a value."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{key} =")]
    file.write_text("\n".join([*lines, f"{key} = {value}\n"]))


@pytest.fixture
def pair(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Ways:
    return Ways(
        tmp_path, source_cluster, target_cluster, has_alias=getattr(request, "param", False)
    )


under_both_names = pytest.mark.parametrize(
    "pair", [False, True], ids=["name", "alias"], indirect=True
)
"""The prefix of remote topics is the source's name in the file, or an alias that the reverse flow
does not configure.
"""


@pytest.mark.witness("after the sync is turned on, earlier progress of groups is translated back")
@under_both_names
def test_sync_that_is_enabled_later_moves_groups_back(pair: Ways) -> None:
    """The reverse flow runs without the group sync at first, and only writes checkpoints. When the
    sync is enabled later, it moves the group on A to its position on B. If an operator then moves
    the group back, the sync leaves it there.
    """
    pair.copy()
    commit(pair.a, pair.group, pair.topic, 2)
    commit(pair.b, pair.group, pair.remote, 8)
    set_to(pair.back, "sync.group.offsets.enabled", "false")
    with Mirror(pair.back, lanes=1, once=True) as mirror:
        mirror.wait()
    assert committed(pair.a, pair.group, pair.topic) == 2
    set_to(pair.back, "sync.group.offsets.enabled", "true")
    with Mirror(pair.back, lanes=1, once=True) as mirror:
        mirror.wait()
    assert committed(pair.a, pair.group, pair.topic) == 8
    # an operator moves the group back to read records again
    commit(pair.a, pair.group, pair.topic, 3)
    with Mirror(pair.back, lanes=1, once=True) as mirror:
        mirror.wait()
    assert committed(pair.a, pair.group, pair.topic) == 3


@pytest.mark.witness("a group is not set past records that only its original cluster has")
def test_group_at_the_start_of_the_copy_skips_nothing_on_the_original(
    pair: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B's retention is shorter than A's, so the sync has set the group to B's first record. The
    group has not read the older records that A still has, so it must not be moved past them on A.
    """
    pair.copy()
    delete_records(pair.b, pair.remote, before=6)
    commit(pair.a, pair.group, pair.topic, 2)
    set_to(pair.there, "emit.checkpoints.enabled", "false")
    pair.copy()
    assert committed(pair.b, pair.group, pair.remote) == 6
    rounds = Rounds(monkeypatch, CheckpointDuty, "_sync", lambda duty: duty._flow.name)
    with Mirror(pair.back, lanes=1) as mirror:
        rounds.pass_by(pair.flow_back)
        assert committed(pair.a, pair.group, pair.topic) == 2
        commit(pair.b, pair.group, pair.remote, 8)
        eventually(lambda: committed(pair.a, pair.group, pair.topic) == 8)
        mirror.stop()


@pytest.mark.witness("a group is not set past a tail that was never copied")
def test_group_that_reads_records_of_new_owners_fails_back_before_the_tail(pair: Ways) -> None:
    """After the end of the copy, other clients have written to B, and A has records that never
    arrived there. A group has read the new records on B. It is moved on A to the end of the copy,
    so it still reads A's own records.
    """
    pair.copy()
    produce(pair.b, pair.remote, values(100, 5))
    produce(pair.a, pair.topic, values(10, 3))
    commit(pair.a, pair.group, pair.topic, 2)
    commit(pair.b, pair.group, pair.remote, 15)
    here, there = TopicPartition(pair.topic, 0), TopicPartition(pair.remote, 0)
    with MirrorClient(
        {"bootstrap.servers": pair.b.bootstrap}
    ) as client:  # the client API finds the same offset
        found = client.to_upstream(pair.alias_a, {there: 15})
        assert found == {here: Translation(offset=10, is_exact=False)}
    with Mirror(pair.back, lanes=1, once=True) as mirror:
        mirror.wait()
    assert committed(pair.a, pair.group, pair.topic) == 10
    assert resume(pair.a, pair.group, pair.topic) == [b"10", b"11", b"12"]


@pytest.mark.witness(
    "in a topic created again, a group's progress is not taken for an offset that the sync has set"
)
def test_progress_in_recreated_topics_fails_back_at_an_offset_that_was_set_before(
    pair: Ways,
) -> None:
    commit(pair.a, pair.group, pair.topic, 7)
    pair.copy()
    assert committed(pair.b, pair.group, pair.remote) == 7
    delete_topic(pair.a, pair.topic)
    delete_topic(pair.b, pair.remote)
    pair.fill(10)
    pair.copy()
    assert end_offsets(pair.b, pair.remote)[0] == 10
    assert committed(pair.b, pair.group, pair.remote) == -1, "Kafka drops offsets of such topics"
    commit(pair.b, pair.group, pair.remote, 7)
    with Mirror(pair.back, lanes=1, once=True) as mirror:
        mirror.wait()
    assert committed(pair.a, pair.group, pair.topic) == 7


@pytest.mark.witness(
    "the flow back recognises offsets that were set under a target alias", case="alias"
)
@under_both_names
def test_group_moved_back_stays_there_however_seldom_checkpoints_are_written(
    pair: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    # without a warm-up, in which checkpoints would be written every second
    monkeypatch.setattr(checkpoints, "WARM_UP_S", 0.0)
    set_to(pair.there, "emit.checkpoints.interval.seconds", "3600")
    rounds = Rounds(monkeypatch, CheckpointDuty, "_sync", lambda duty: duty._flow.name)
    with Mirror(pair.there, lanes=1) as mirror:
        there = f"{pair.alias_a}->{pair.alias_b}"
        rounds.pass_by(there)
        commit(pair.a, pair.group, pair.topic, 7)
        eventually(lambda: committed(pair.b, pair.group, pair.remote) == 7)
        commit(pair.a, pair.group, pair.topic, 2)
        rounds.pass_by(there)
        with Mirror(pair.back, lanes=1) as returning:
            rounds.pass_by(pair.flow_back)
            assert committed(pair.a, pair.group, pair.topic) == 2
            returning.stop()
        mirror.stop()
