"""Cutover commands do not report success without evidence, on real brokers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import consumer, eventually, produce, produce_transaction
from tests.support.cutover import UNFENCED, Case, Commands
from tests.support.groups import commit, committed, numbered
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.mirror_process import Driver
from tests.support.rights import Grant, SecuredPair
from tests.support.surgery import cut_log
from tests.support.topics import create_topic, log_size
from twinlog.cli.main import run
from twinlog.cluster.groups.membership import MemberRole, Membership
from twinlog.config.load import load
from twinlog.control.cutover import drain, failover, newest_status
from twinlog.control.cutover.drain import Drain
from twinlog.control.cutover.promotion import promote
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.cutover.switchover import FenceKind, Switchover, SwitchoverOptions
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.survey.ends import append_ends

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]


@pytest.mark.parametrize("has_standby", [False, True])
def test_young_row_of_a_mirror_that_was_killed_proves_nothing(
    case: Case, has_standby: bool
) -> None:
    """The mirror dies, the source accepts more records, and then the source dies. The last status
    row is still recent, but does not prove that all records were copied, so the number of missing
    records is unknown. A standby that cannot reach the source changes nothing: it joins the flow's
    group, and claims no generation.
    """
    pair = case.pair
    (config,) = load(pair.config, environment={}).flows
    standby = Membership(flow_setup(config).target, f"twinlog-{config.flow}")
    dead = case.elsewhere(pair.alias_a, "127.0.0.1:1")
    failover = case.commands("failover", dead)
    with Driver(pair.config, lanes=1, emits=True) as mirror:
        eventually(lambda: case.copied() == 20)
        eventually(case.has_checkpoint)
        if has_standby:
            standby.start()
            assert standby.wait_for(lambda state: state.role is MemberRole.STANDBY, within_s=30)
        eventually(lambda: failover.show("plan")[0] == 0, what="nothing is known to be missing")
        mirror.kill()
    produce(pair.a, pair.topic, numbered(20, 10))

    def unknown() -> bool:
        code, plan = failover.show("plan")
        (part,) = plan["plan"]["partitions"]
        return (code, plan["plan"]["is_clear"], part["missing"]) == (1, False, None)

    eventually(unknown, 30, what="the coordinator forgets the member; the row is still young")
    code, out, _ = failover.do("plan")
    why = "does not lead the flow any more" if has_standby else "no mirror leads the flow"
    assert (code, why in out) == (1, True), out
    standby.leave()


def test_lost_source_without_a_checkpoints_topic(case: Case) -> None:
    """The source is lost, and the target has no checkpoints topic. No record is missing, but the
    positions of the source's groups are unknown. So `failover plan` is not clear (`is_clear`, exit
    code 1), unless the flow copies no groups.
    """
    pair = case.pair
    with pair.config.open("a") as file:
        file.write("emit.checkpoints.enabled = false\n")
    dead = case.elsewhere(pair.alias_a, "127.0.0.1:1")
    failover = case.commands("failover", dead)

    def plan() -> tuple[int, bool, list[int]]:
        code, found = failover.show("plan")
        parts = [one["missing"] for one in found["plan"]["partitions"]]
        return code, found["plan"]["is_clear"], parts

    with Mirror(pair.config) as mirror:
        eventually(lambda: case.copied() == 20)
        eventually(lambda: plan() == (1, False, [0]))
        _, out, _ = failover.do("plan")
        assert f"has no topic {pair.alias_a}.checkpoints.internal" in out, out
        dead.write_text(re.sub(r"(?m)^(groups = ).*$", r"\1", dead.read_text()))
        assert plan() == (0, True, [0]), "the flow copies no groups"
        mirror.stop()


def test_mirror_that_begins_after_the_command(case: Case) -> None:
    """A switchover is prepared before the mirror has run, as in a drill. It is refused with
    NOT_COPIED, and succeeds after the mirror has copied.
    """
    (config,) = load(case.pair.config, environment={}).flows
    with CutoverScope(flow_setup(config)) as scope:
        work = Switchover(scope, print, SwitchoverOptions(fence=FenceKind.NONE))
        for refused in (scope.require_copied, lambda: work.run(work.plan())):
            with pytest.raises(TwinlogError) as error:
                refused()
            assert error.value.code == "NOT_COPIED"
        with case.ready():
            eventually(lambda: work.plan().is_open)
            work.run(work.plan())


def test_clock_of_the_mirrors_host_is_an_hour_behind(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with case.ready() as mirror:
        later = newest_status.now_ms() + 3_600_000
        monkeypatch.setattr(newest_status, "now_ms", lambda: later)
        assert case.gate("copy")[0], "a row that is written meanwhile is current"
        mirror.stop()
    assert not case.gate("copy")[0], "no further row is written"


def test_checkpoints_that_this_user_may_not_see(
    guarded_pair: SecuredPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], fresh_topic: str
) -> None:
    """The user is not permitted to read the checkpoints of a lost source. Without them, a failover
    would leave out the groups, so `plan` and `run` fail and name the checkpoints topic.
    """
    source, target = guarded_pair.source, guarded_pair.target
    create_topic(source, fresh_topic)
    produce(source, fresh_topic, numbered(0, 10))
    commit(source, f"shop-{fresh_topic}", fresh_topic, 4)
    everything = [Grant(operation="all", kind=kind, name="*") for kind in ("topic", "group")]
    everything.append(Grant(operation="all", kind="cluster"))
    here = guarded_pair.user(source, everything)
    there = guarded_pair.user(target, everything)
    alias = f"h{fresh_topic}"
    operator = guarded_pair.user(
        target,
        [
            Grant(operation="read", kind="topic", name=f"{alias}.{fresh_topic}"),
            Grant(operation="read", kind="topic", name="mm2-*"),
            Grant(operation="write", kind="topic", name="mm2-twinlog-state.internal"),
            Grant(operation="read", kind="group", name="*"),
        ],
    )
    lines = [
        f"topics = {fresh_topic}",
        f"groups = .*{fresh_topic}",
        "emit.checkpoints.interval.seconds = 1\nrefresh.groups.interval.seconds = 1",
        "twinlog.status.interval.seconds = 1\nsync.topic.acls.enabled = false",
        "sync.topic.configs.enabled = false\nemit.heartbeats.enabled = false",
    ]
    paths = tmp_path / "mirror.properties", tmp_path / "operator.properties"
    aliases = alias, "B"
    mirrored = guarded_pair.config(paths[0], (here, there), lines, aliases=aliases)
    operated = guarded_pair.config(paths[1], (here, operator), lines, aliases=aliases)
    text, key = operated.read_text(), re.escape(f"{alias}.bootstrap.servers = ")
    operated.write_text(re.sub(f"(?m)^({key}).*$", r"\g<1>127.0.0.1:1", text))
    checkpoints = f"{alias}.checkpoints.internal"

    def has_checkpoint() -> bool:
        return log_size(target, checkpoints) > 0

    with EmittingMirror(mirrored) as mirror:
        eventually(has_checkpoint)
        failover = Commands("failover", operated, capsys)
        for words in (("plan",), ("run", "--yes")):
            code, out, err = failover.do(*words)
            assert (code, checkpoints in err) == (1, True), (words, out, err)
        mirror.stop()


def test_groups_after_a_promotion_by_another_command(case: Case) -> None:
    """`flow promote` promotes without setting group offsets. The next switchover finds the
    promotion and sets them. A second switchover changes no offset, because the group's clients may
    already use the target.
    """
    with case.ready():
        assert run(["flow", "promote", "--yes", str(case.pair.config)]) == 0
        code, out, err = case.commands("switchover").do(*UNFENCED)
        assert (code, case.there()) == (0, 7), (out, err)
        assert "stay fenced off" not in out
        commit(case.pair.b, case.group, case.pair.remote, 3)
        code, out, err = case.commands("switchover").do(*UNFENCED)
        assert (code, case.there()) == (0, 3), "its clients may have gone over"


def test_topic_that_is_resumed_during_a_switchover(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was released before the switchover is resumed after the drain. It was neither
    fenced nor drained, so the switchover fails and promotes nothing.
    """
    pair, other = case.pair, f"{case.pair.topic}-other"
    text = pair.config.read_text()
    pair.config.write_text(text.replace(f"topics = {pair.topic}\n", f"topics = {pair.topic}.*\n"))
    create_topic(pair.a, other)
    produce(pair.a, other, numbered(0, 5))
    wait = Drain.wait

    def drained(self: Any, *words: Any, **more: Any) -> Any:
        found = wait(self, *words, **more)
        assert run(["topic", "resume", str(pair.config), "--topics", other]) == 0
        return found

    with case.ready():
        assert run(["topic", "release", str(pair.config), "--topics", other]) == 0
        eventually(lambda: case.plan("switchover")[0] == 0)
        produce(pair.a, other, numbered(5, 500))
        monkeypatch.setattr(Drain, "wait", drained)
        code, out, err = case.commands("switchover").do(*UNFENCED)
        assert (code, f"{other} was left out" in err) == (1, True), (out, err)
        assert case.plan("switchover")[1]["promoted"] is None


def test_mirror_that_copies_more_topics_than_the_command_checks(case: Case) -> None:
    """The command is run with an outdated file, and the mirror copies one more topic. A promotion
    of the whole flow would end the copy of this topic, although its producers were not stopped.
    """
    pair, outdated = case.pair, case.pair.config.parent / "outdated.properties"
    text = pair.config.read_text()
    outdated.write_text(text)
    pair.config.write_text(text.replace(f"topics = {pair.topic}\n", f"topics = {pair.topic}.*\n"))
    create_topic(pair.a, f"{pair.topic}-other")
    produce(pair.a, f"{pair.topic}-other", numbered(0, 5))
    with case.ready():
        code, _, err = case.commands("switchover", outdated).do(*UNFENCED)
        assert (code, "[GATE_CLOSED]" in err) == (1, True), err
        assert "has other values of topics, so it may copy other topics" in err
        code, found = case.commands("failover", outdated).show("plan")
        assert (code, found["plan"]["is_clear"]) == (1, False)
        assert "has other values of topics" in " ".join(found["plan"]["notes"])
        eventually(lambda: case.plan("failover")[0] == 0, what="clear with the mirror's file")


def test_topic_that_is_resumed_during_a_failover(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was released before the failover is resumed right before the promotion, which is
    for the whole flow. So the offsets of its groups are set, too.
    """
    pair, other = case.pair, f"{case.pair.topic}-other"
    text = pair.config.read_text()
    pair.config.write_text(text.replace(f"topics = {pair.topic}\n", f"topics = {pair.topic}.*\n"))
    create_topic(pair.a, other)
    produce(pair.a, other, numbered(0, 5))
    commit(pair.a, case.group, other, 3)

    def promoted(*words: Any) -> None:
        assert run(["topic", "resume", str(pair.config), "--topics", other]) == 0
        promote(*words)

    with case.ready():
        eventually(lambda: log_size(pair.b, f"{pair.remote}-other") == 5)
        assert run(["topic", "release", str(pair.config), "--topics", other]) == 0
        monkeypatch.setattr(failover, "promote", promoted)
        code, out, err = case.commands("failover").do("run", "--yes")
        assert code == 0, (out, err)
    assert committed(pair.b, case.group, f"{pair.remote}-other") == 3


def test_group_that_is_in_use_on_the_target_and_has_no_offset(case: Case) -> None:
    """The group has members on the target, but no offset in the copy: they read another topic, or
    have just begun at the copy's end. The gate "groups" is closed. If it is accepted, the
    switchover reports that these members start according to their auto.offset.reset.
    """
    pair, other = case.pair, f"{case.pair.topic}-elsewhere"
    create_topic(pair.b, other)
    with case.ready():
        reader = consumer(pair.b, config={"group.id": case.group})
        reader.subscribe([other])
        eventually(lambda: (reader.poll(0.2), reader.assignment())[1])
        # under the identity policy the mirror writes its progress only every few seconds, so wait
        eventually(lambda: "has no offset in" in case.gate("groups")[1])
        assert not case.gate("groups")[0]
        words = (*UNFENCED, "--accept", "groups", "--within", "5")
        code, out, err = case.commands("switchover").do(*words)
        said = "members start according to their auto.offset.reset" in out
        assert (code, said) == (0, True), (out, err)
        reader.close()


@pytest.mark.parametrize("identity", [False, True], ids=["default", "identity"])
def test_target_that_lost_copied_records(
    identity: bool,
    source_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LocalCluster("lossy", jvm_flags=QUICK_JVM) as target:
        case = Case((source_cluster, target), tmp_path, capsys, identity=identity)
        pair = case.pair
        with EmittingMirror(pair.config) as mirror:
            eventually(lambda: case.copied() == 20)
            produce(pair.a, pair.topic, numbered(20, 5))
            eventually(lambda: case.copied() == 25)
            eventually(lambda: case.plan("failover")[0] == 0)
            mirror.stop()
        target.kill(1)
        cut_log(target, TopicPartition(pair.remote, 0), 20)
        target.restart(1)
        eventually(lambda: case.copied() == 20)
        code, plan = case.plan("failover")
        assert (code, plan["is_clear"]) == (1, False), plan


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_group_that_has_passed_the_marker_at_the_end(case: Case, commits: bool) -> None:
    """A Java consumer's position skips markers, so a group that has read everything is after the
    last marker. The switchover translates this offset to the end of the copy.
    """
    pair = case.pair
    with case.ready():
        produce_transaction(pair.a, pair.topic, numbered(20, 2), commit=commits)
        commit(pair.a, case.group, pair.topic, 23)
        end = 22 if commits else 20
        eventually(lambda: case.copied() == end)
        eventually(lambda: case.plan("failover")[0] == 0, what="clear, as nothing is missing")
        code, out, err = case.commands("switchover").do(*UNFENCED, "--within", "20")
        assert (code, case.there()) == (0, end), (out, err)


def test_records_that_are_not_replicated_yet(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source's log end is after its high watermark, because records are not replicated yet. If
    the flow reads uncommitted records, the drain must wait for them, so the switchover fails with
    NOT_DRAINED.
    """
    with case.pair.config.open("a") as file:
        file.write(f"{case.pair.alias_a}.consumer.isolation.level = read_uncommitted\n")

    def unreplicated(*words: Any) -> dict[TopicPartition, int]:
        return {tp: end + 1 for tp, end in append_ends(*words).items()}

    with case.ready():
        monkeypatch.setattr(drain, "append_ends", unreplicated)
        code, out, err = case.commands("switchover").do(*UNFENCED, "--within", "10")
        assert (code, "[NOT_DRAINED]" in err) == (1, True), (out, err)
        assert "replicas of the source are behind the log ends of" in err
