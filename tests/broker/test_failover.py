"""The source is lost or given up. A failover moves groups exactly, and the copy becomes the
original.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, consumer, eventually, produce, read_all
from tests.support.cutover import Commands, killed
from tests.support.groups import Pair, commit, committed, numbered, resume
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.topics import create_topic, end_offsets, log_size
from twinlog.cli.main import run
from twinlog.codes import FlowState
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.cutover.groups import Commits, CutoverGroups
from twinlog.errors import Disconnected
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]

PROMOTE = "twinlog.control.cutover.failover:promote"
GROUPS = "twinlog.control.cutover.groups:CutoverGroups.set"
OVER = "twinlog.control.cutover.failover:wait_until_over"


class Case:
    """A topic that was copied, and groups at different positions in it."""

    def __init__(
        self, a: LocalCluster, b: LocalCluster, folder: Path, *, identity: bool = False
    ) -> None:
        self.pair = Pair(folder, a, b, both_ways=False, sync=False, identity=identity)
        with self.pair.config.open("a") as file:
            file.write("twinlog.status.interval.seconds = 1\n")
        create_topic(a, self.pair.topic)
        produce(a, self.pair.topic, numbered(0, 20))

    @property
    def name(self) -> str:
        return f"{self.pair.alias_a}->{self.pair.alias_b}"

    def copy(self) -> None:
        with Mirror(self.pair.config, once=True, lanes=1) as mirror:
            mirror.wait()

    def copied(self) -> int:
        remote = self.pair.remote
        return log_size(self.pair.b, remote)

    def there(self, group: str) -> int:
        return committed(self.pair.b, group, self.pair.remote)


@pytest.fixture
def case(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Case:
    return Case(source_cluster, target_cluster, tmp_path)


@pytest.fixture
def failover(case: Case, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands("failover", case.pair.config, capsys)


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster that the test may destroy."""
    with LocalCluster("failover-source", jvm_flags=QUICK_JVM) as cluster:
        yield cluster


def _is_away(*_: object, **__: object) -> Commits:
    raise Disconnected("half of A is away")


def test_plan_shows_missing_records_and_changes_nothing(
    case: Case, failover: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = case.pair
    at, ahead = pair.stop_at(7), pair.stop_at(20)
    case.copy()
    code, plan = failover.show("plan")
    assert (code, plan["plan"]["is_clear"]) == (0, True)
    with monkeypatch.context() as half_dead:
        half_dead.setattr(CutoverGroups, "_commits", _is_away)
        code, plan = failover.show("plan")
    assert (code, "half of A is away" in plan["plan"]["source_problem"]) == (1, True)
    assert {one["from_checkpoints"] for one in plan["plan"]["groups"]} == {True}
    produce(pair.a, pair.topic, numbered(20, 5))
    commit(pair.a, ahead, pair.topic, 23)
    code, plan = failover.show("plan")
    assert code == 1
    (part,) = plan["plan"]["partitions"]
    assert (part["copied_to"], part["source_end"], part["missing"]) == (20, 25, 5)
    groups = {one["group"]: one for one in plan["plan"]["groups"]}
    assert groups[at]["is_exact"]
    (place,) = groups[at]["places"]
    assert (place["to"], place["now"], place["outcome"]) == (7, None, "to be set")
    (place,) = groups[ahead]["places"]
    assert (place["to"], place["why_not_exact"]) == (20, "the copy ends at 20, 3 before it")
    code, out, _ = failover.do("run", "--dry-run")
    assert code == 1
    assert "[20, 25) is missing, up to 5 records" in out
    assert case.there(at) == case.there(ahead) == -1
    code, out, _ = failover.do("abort")
    assert (code, "nothing was promoted" in out) == (0, True)
    code, _, err = failover.do("run")
    assert (code, "give --yes" in err) == (2, True)


@pytest.mark.witness("groups resume exactly after a failover that is killed at each step")
def test_every_group_resumes_exactly_though_the_command_dies_at_each_step(
    case: Case, failover: Commands
) -> None:
    """A failover without a mirror is killed after each of its steps. Each run continues where the
    previous one died, and every group resumes exactly. A group that had read records that were not
    copied resumes at the end of the copy.
    """
    pair = case.pair
    groups = [pair.stop_at(offset) for offset in (0, 7, 20)]
    case.copy()
    produce(pair.a, pair.topic, numbered(20, 5))
    late = pair.stop_at(22)
    words = ("failover", "run", str(pair.config), "--yes", "--reason", "A burns")
    for where in (GROUPS, PROMOTE, OVER):
        killed("behind", where, *words)
    code, after = failover.show("run", "--yes")
    assert code == 0
    assert all(one["is_done"] for one in after["after"]["groups"])
    assert [case.there(group) for group in groups] == [0, 7, 20]
    produce(pair.b, pair.remote, numbered(1000, 3))  # the promoted topic gets new records
    assert case.there(late) == 20, "at the end of the copy: what it had read never arrived"
    assert resume(pair.b, late, pair.remote) == [b"1000", b"1001", b"1002"]
    assert resume(pair.b, groups[1], pair.remote)[:2] == [b"7", b"8"]
    code, shown = failover.show("status")
    assert (code, "A burns" in shown["plan"]["promoted"]) == (0, True)
    code, out, _ = failover.do("plan")
    assert (code, "[20, 25) is missing, up to 5 records" in out) == (1, True), out
    code, _, err = failover.do("abort")
    assert (code, "[PROMOTED]" in err) == (1, True)
    with Mirror(pair.config, once=True) as mirror:
        (flow,) = mirror.wait()
    assert flow.code == "FENCED"
    assert sum(end_offsets(pair.b, pair.remote).values()) == 23


def test_a_repeated_run_never_skips_records_of_new_owners(case: Case, failover: Commands) -> None:
    """A failover is run again after other clients have written to the promoted topic, so its log is
    longer than the copy. A group that had read more on the source than was copied is set to the end
    of the copy, not after the new records.
    """
    pair = case.pair
    case.copy()
    assert failover.do("run", "--yes")[0] == 0
    produce(pair.b, pair.remote, numbered(1000, 10))
    late = pair.stop_at(27)  # a group read on the source, further than the copy
    code, after = failover.show("run", "--yes")
    assert code == 0
    (one,) = after["after"]["groups"]
    assert (one["places"][0]["to"], one["is_exact"]) == (20, False)
    assert resume(pair.b, late, pair.remote)[0] == b"1000"


def test_group_that_is_ahead_or_in_use_is_left_and_named(case: Case, failover: Commands) -> None:
    pair = case.pair
    ahead, used = pair.stop_at(5), pair.stop_at(6)
    case.copy()
    commit(pair.b, ahead, pair.remote, 9)
    client = consumer(pair.b, config={"group.id": used, "enable.auto.commit": False})
    try:
        client.subscribe([pair.remote])

        def is_in() -> bool:
            client.consume(1, 0.2)
            return bool(client.assignment())

        eventually(is_in)
        code, out, _ = failover.do("run", "--yes")
    finally:
        client.close()
    assert code == 1
    assert f"groups: {used} is not set: it is in use on the target" in out
    assert (case.there(ahead), case.there(used)) == (9, -1)
    code, out, _ = failover.do("run", "--yes")
    assert (code, case.there(ahead), case.there(used)) == (0, 9, 6)


def test_names_stay_under_the_identity_policy(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = Case(source_cluster, target_cluster, tmp_path, identity=True)
    pair, failover = case.pair, Commands("failover", case.pair.config, capsys)
    group = pair.stop_at(7)
    case.copy()
    code, plan = failover.show("plan")
    (part,) = plan["plan"]["partitions"]
    assert (code, part["target_topic"], part["copied_to"]) == (0, pair.topic, 20)
    assert failover.do("run", "--yes")[0] == 0
    produce(pair.b, pair.topic, numbered(1000, 3))
    assert failover.do("run", "--yes")[0] == 0
    assert resume(pair.b, group, pair.topic)[12:] == [b"19", b"1000", b"1001", b"1002"]


def test_plans_name_the_topics_that_do_not_keep_their_names(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Under the identity policy, some topics do not keep their names, such as `orders-heartbeats`.
    Their remote names have the source's alias as a prefix, as in MirrorMaker 2. `check` and the
    plans of both cutover commands report these names.
    """
    case = Case(source_cluster, target_cluster, tmp_path, identity=True)
    pair = case.pair
    topic = f"{pair.topic}-heartbeats"
    create_topic(pair.a, topic)
    produce(pair.a, topic, numbered(0, 2))
    text = pair.config.read_text()
    pair.config.write_text(text.replace(f"topics = {pair.topic}", f"topics = {pair.topic}.*"))
    said = f"{topic} is {pair.alias_a}.{topic};"
    (report,) = check(load(pair.config, environment={})).flows
    assert [note for note in report.notes if said in note]
    case.copy()
    for verb in ("failover", "switchover"):
        commands = Commands(verb, pair.config, capsys)
        (note,) = commands.show("plan")[1]["plan"]["notes"]
        assert said in note
        assert pair.topic not in note.replace(topic, "")
        assert note in commands.do("plan")[1]
        assert commands.show("plan", "--topics", pair.topic)[1]["plan"]["notes"] == []


def test_source_that_is_killed_while_a_mirror_runs(
    short_lived: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source is killed while a mirror runs. The last status row has the source's last known
    end, and the checkpoints have its groups. So the failover reports how many records are missing,
    and sets the group's offset.
    """
    monkeypatch.setattr("twinlog.control.cutover.scope.SOURCE_TIMEOUT_S", 1.0)
    case = Case(short_lived, target_cluster, tmp_path)
    pair, failover = case.pair, Commands("failover", case.pair.config, capsys)
    group = pair.stop_at(13)
    with EmittingMirror(pair.config) as mirror:
        eventually(lambda: case.copied() == 20)
        eventually(lambda: _checkpoint(case, group) == 13)
        assert run(["flow", "pause", str(pair.config)]) == 0
        eventually(lambda: mirror.snapshots[0].state is FlowState.PAUSED)
        produce(pair.a, pair.topic, numbered(20, 30))
        eventually(lambda: _told(failover, "loss_records") == 30, what="the row tells of it")
        short_lived.kill(1)
        code, plan = failover.show("plan")
        (part,) = plan["plan"]["partitions"]
        assert code == 1
        assert plan["plan"]["source_problem"]
        assert (part["copied_to"], part["missing"]) == (20, 30)
        code, out, err = failover.do("run", "--yes")
        assert code == 0, (out, err)
        assert "[20, 50) is missing, up to 30 records" in out
        assert "by its newest checkpoints" in out
        eventually(lambda: mirror.snapshots[0].state is FlowState.FENCED)
        assert case.there(group) == 13
        mirror.stop()
    produce(pair.b, pair.remote, [Outgoing(value=b"new")])
    assert [one.value for one in read_all(pair.b, pair.remote)][20:] == [b"new"]


def _told(failover: Commands, field: str) -> int:
    found: int | None = failover.show("plan")[1]["plan"]["told"][field]
    return -1 if found is None else found


def _checkpoint(case: Case, group: str) -> int:
    pair = case.pair
    topic = f"{pair.alias_a}.checkpoints.internal"
    rows = [one for one in read_all(pair.b, topic) if group.encode() in (one.key or b"")]
    return 13 if rows else -1
