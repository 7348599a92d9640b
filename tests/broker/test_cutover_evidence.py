"""Cutover commands decide by the state on the target, whatever the source reports, on real
brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction, producer
from tests.support.cutover import UNFENCED, Case, Commands
from tests.support.groups import commit, numbered, resume
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.rights import Grant, SecuredPair
from tests.support.settings import settings_for
from tests.support.topics import (
    admin,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    forbid,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, read_to_end
from twinlog.control.cutover import switchover as steps
from twinlog.control.cutover.drain import Drain, FenceProof
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.model import TopicPartition
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]


@pytest.fixture
def empty_cluster() -> Iterator[LocalCluster]:
    """A cluster that no flow has used, as if an address in the file were wrong."""
    with LocalCluster("another", jvm_flags=QUICK_JVM) as cluster:
        yield cluster


@pytest.mark.witness(
    "a cut-over verifies that both clusters are those of the flow", case="identity"
)
def test_another_cluster_at_an_address_is_refused_or_counts_as_lost(
    case: Case, empty_cluster: LocalCluster
) -> None:
    """An address leads to another cluster, because a source came back with empty disks or the file
    is wrong. A wrong target is refused. A wrong source is refused by a switchover, and counts as
    lost for a failover.
    """
    pair = case.pair
    case.copy()
    create_topic(empty_cluster, pair.topic)
    # the target: every command refuses it, and creates nothing there
    wrong_b = case.elsewhere(pair.alias_b, empty_cluster.bootstrap)
    for words in (
        ("failover", "run", str(wrong_b), "--yes"),
        ("flow", "promote", str(wrong_b), "--yes"),
        ("flow", "pause", str(wrong_b)),
        ("switchover", "run", str(wrong_b), *UNFENCED[1:]),
    ):
        case.capsys.readouterr()
        assert run([*words]) == 1, words
        assert "[NOT_COPIED]" in case.capsys.readouterr().err, words
    code, plan = case.commands("failover", wrong_b).show("plan")
    assert (code, plan["plan"]["is_clear"]) == (1, False)
    assert STATE_TOPIC not in topic_names(empty_cluster)
    # the source: a switchover is refused, and a failover treats the source as lost
    wrong_a = case.elsewhere(pair.alias_a, empty_cluster.bootstrap)
    for step, *more in (("plan",), UNFENCED):
        code, _, err = case.commands("switchover", wrong_a).do(step, *more)
        assert (code, "[CLUSTER_CHANGED]" in err) == (1, True), err
    code, _, err = case.commands("failback", wrong_a).do("plan")
    assert (code, "[CLUSTER_CHANGED]" in err) == (1, True), err
    code, plan = case.commands("failover", wrong_a).show("plan")
    (part,), (group,) = plan["plan"]["partitions"], plan["plan"]["groups"]
    assert (code, part["copied_to"], part["missing"]) == (1, 20, None)
    assert "CLUSTER_CHANGED" in plan["plan"]["source_problem"]
    assert (group["from_checkpoints"], group["places"][0]["to"]) == (True, 7)
    code, out, err = case.commands("failover", wrong_a).do("run", "--yes")
    assert code == 0, (out, err)
    assert case.there() == 7
    assert resume(pair.b, case.group, pair.remote)[0] == b"7"


def test_target_that_was_created_from_other_disks_is_refused(
    case: Case, empty_cluster: LocalCluster
) -> None:
    """The target was created from another cluster's disks, so its state topic has the flow's rows.
    These rows name the other cluster, so the target is refused.
    """
    pair = case.pair
    case.copy()
    create_topic(empty_cluster, STATE_TOPIC)
    with ClusterClient(settings_for(pair.b.bootstrap)) as target:
        rows = [(row.key, row.value) for row in read_to_end(target, STATE_TOPIC, 0)]
    with ClusterClient(settings_for(empty_cluster.bootstrap)) as clone:
        known = [(key, value) for key, value in rows if key is not None and value is not None]
        append_rows(clone, TopicPartition(STATE_TOPIC, 0), known, 1)
    wrong_b = str(case.elsewhere(pair.alias_b, empty_cluster.bootstrap))
    for command in (
        *(("failover", step, wrong_b) for step in ("plan", "status", "abort")),
        ("failover", "run", wrong_b, "--yes"),
        ("switchover", "plan", wrong_b),
        ("failback", "plan", wrong_b),
        ("flow", "promote", wrong_b, "--yes"),
        ("flow", "pause", wrong_b),
    ):
        case.capsys.readouterr()
        assert run([*command]) == 1, command
        assert "[CLUSTER_CHANGED]" in case.capsys.readouterr().err, command


def test_topics_and_groups_that_the_source_lost_stay_in_the_plan(case: Case) -> None:
    """The source has the same cluster ID, but has lost a topic and its groups. Both stay in the
    plan of a failover, and the failover sets the group's offset.
    """
    pair = case.pair
    case.copy()
    delete_topic(pair.a, pair.topic)
    eventually(lambda: pair.topic not in topic_names(pair.a))
    code, plan = case.plan("failover")
    (part,), (group,) = plan["partitions"], plan["groups"]
    assert (code, plan["is_clear"], part["copied_to"]) == (1, False, 20)
    assert "was deleted on the source" in part["problem"]
    assert (group["from_checkpoints"], group["places"][0]["to"]) == (True, 7)
    code, out, err = case.commands("failover").do("run", "--yes")
    assert (code, case.there()) == (0, 7), (out, err)


@pytest.mark.witness(
    "a topic that the source does not list closes the gate 'topics'", case="identity"
)
def test_topic_that_the_source_does_not_list_closes_its_gate(case: Case) -> None:
    pair = case.pair
    with Mirror(pair.config) as mirror:
        eventually(lambda: case.copied() == 20)
        eventually(lambda: case.plan("switchover")[0] == 0)
        delete_topic(pair.a, pair.topic)
        eventually(lambda: pair.topic not in topic_names(pair.a))
        is_open, evidence = case.gate("topics")
        assert not is_open
        assert f"{pair.topic}: the topic was copied, but it was deleted on the source" in evidence
        code, _, err = case.commands("switchover").do(*UNFENCED)
        assert (code, "[GATE_CLOSED]" in err) == (1, True), err
        assert case.plan("switchover")[1]["promoted"] is None
        if case.pair.remote == pair.topic:
            assert run(["topic", "release", str(pair.config), "--topics", pair.topic]) == 0
            assert case.gate("topics")[0], "it was deleted on purpose"
        else:
            code, out, err = case.commands("switchover").do(
                *UNFENCED, "--accept", "topics", "--within", "10"
            )
            assert code == 0, (out, err)
        mirror.stop()


def test_group_that_the_source_lost_stays_in_the_plan_of_a_switchover(case: Case) -> None:
    pair = case.pair
    with EmittingMirror(pair.config) as mirror:
        eventually(lambda: case.copied() == 20)
        eventually(case.has_checkpoint, what="a checkpoint of the group")
        admin(pair.a).delete_consumer_groups([case.group])[case.group].result()
        eventually(lambda: case.plan("switchover")[0] == 0, what="all gates open")
        (group,) = case.plan("switchover")[1]["groups"]
        assert (group["from_checkpoints"], group["places"][0]["committed"]) == (True, 7)
        code, out, err = case.commands("switchover").do(*UNFENCED)
        assert (code, case.there()) == (0, 7), (out, err)
        mirror.stop()


def test_topic_that_vanishes_after_the_gates_ends_the_run(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, wait = case.pair, Drain.wait

    def vanishing(self: Drain, *words: Any, **more: Any) -> Any:
        found = wait(self, *words, **more)
        delete_topic(pair.a, pair.topic)
        eventually(lambda: pair.topic not in topic_names(pair.a))
        return found

    monkeypatch.setattr(Drain, "wait", vanishing)
    with case.ready():
        code, out, err = case.commands("switchover").do(*UNFENCED, "--within", "5")
        assert (code, "was deleted on the source" in err) == (1, True), (out, err)
        assert case.plan("switchover")[1]["promoted"] is None


def test_hidden_topic_and_group_close_gates(
    guarded_pair: SecuredPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], fresh_topic: str
) -> None:
    """The mirror's user loses a right, so the source no longer lists a topic and a group. Both stay
    in the plan of a switchover, their gates are closed, and a run is refused.
    """
    source, target = guarded_pair.source, guarded_pair.target
    seen, hidden = f"{fresh_topic}-a", f"{fresh_topic}-b"
    for topic in (seen, hidden):
        create_topic(source, topic)
        produce(source, topic, numbered(0, 10))
    shop, lost = f"shop-{fresh_topic}", f"lost-{fresh_topic}"
    commit(source, shop, hidden, 4)
    commit(source, lost, seen, 5)
    here = guarded_pair.user(
        source,
        [
            *(
                Grant(operation=operation, kind="topic", name=topic)
                for topic in (seen, hidden)
                for operation in ("read", "describe_configs")
            ),
            *(Grant(operation="describe", kind="group", name=group) for group in (shop, lost)),
        ],
    )
    there = guarded_pair.user(
        target, [Grant(operation="all", kind=kind, name="*") for kind in ("topic", "group")]
    )
    allow_all = Grant(operation="all", kind="cluster")
    allow_all.give(target, there)
    file = guarded_pair.config(
        tmp_path / "mm2.properties",
        (here, there),
        [
            f"topics = {fresh_topic}.*",
            f"groups = .*{fresh_topic}",
            "refresh.topics.interval.seconds = 1",
            "emit.checkpoints.interval.seconds = 1\nrefresh.groups.interval.seconds = 1",
            "twinlog.status.interval.seconds = 1\nsync.topic.acls.enabled = false",
            "sync.topic.configs.enabled = false\nemit.heartbeats.enabled = false",
        ],
        aliases=(f"h{fresh_topic}", "B"),
    )
    switchover = Commands("switchover", file, capsys)
    checkpoints = f"h{fresh_topic}.checkpoints.internal"

    def closed() -> set[str]:
        gates = switchover.show("plan")[1]["plan"]["gates"]
        return {one["gate"] for one in gates if not one["is_open"]}

    with EmittingMirror(file) as mirror:
        eventually(lambda: closed() == {"acls"}, what="it may not see the source's ACLs")
        eventually(lambda: sum(end_offsets(target, checkpoints).values()) >= 2)
        forbid(source, here, ["read"], topic=hidden)
        forbid(source, here, ["describe"], group=lost)
        eventually(lambda: {"topics", "groups"} <= closed())
        code, out, _ = switchover.do("plan")
        assert (code, f"grant DESCRIBE on topic {hidden}" in out) == (1, True), out
        assert f"group {shop}" in out, "its checkpoint says where it is"
        assert f"group {lost}: {seen}-0 5 -> " in out
        assert "may not see the group on the source" in out
        code, _, err = switchover.do(*UNFENCED)
        assert (code, "[GATE_CLOSED]" in err) == (1, True), err
        mirror.stop()
    assert run(["failover", "run", str(file), "--yes"]) == 0
    code, out, _ = Commands("failback", file, capsys).do("plan")
    assert (code, f"{hidden}-0: cluster" in out) == (1, True), "its tail is not left out silently"
    assert f"grant DESCRIBE on topic {hidden}" in out, out


@pytest.mark.witness(
    "a drain fails if the source deleted records before they were copied", case="identity"
)
def test_records_that_the_source_deleted_before_the_copy_are_not_drained(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes records of a paused topic before they are copied. The switchover must not
    treat these records as drained: it fails with SOURCE_TRUNCATED unless the gate "copy" is
    accepted.
    """
    pair, fence = case.pair, steps.Switchover._fence

    def held_back(self: Any, topics: Any) -> None:
        assert run(["flow", "pause", str(pair.config)]) == 0
        eventually(lambda: mirror.snapshots[0].state == "PAUSED")
        produce(pair.a, pair.topic, numbered(20, 10))
        delete_records(pair.a, pair.topic, before=30)
        assert run(["flow", "resume", str(pair.config)]) == 0
        fence(self, topics)

    monkeypatch.setattr(steps.Switchover, "_fence", held_back)
    monkeypatch.setattr("twinlog.control.cutover.drain.ROW_WITHIN_S", 5.0)
    with case.ready() as mirror:
        code, out, err = case.commands("switchover").do(*UNFENCED, "--within", "20")
        assert (code, "[SOURCE_TRUNCATED]" in err) == (1, True), (out, err)
        assert f"{pair.topic}-0 [20, 30)" in err
        assert case.plan("switchover")[1]["promoted"] is None
        monkeypatch.setattr(steps.Switchover, "_fence", fence)
        is_open, evidence = case.gate("copy")
        assert (is_open, "the source deleted [20, 30)" in evidence) == (False, True), evidence
        code, out, err = case.commands("switchover").do(*UNFENCED, "--accept", "copy")
        assert code == 0, (out, err)


def test_markers_that_the_source_deleted_are_no_loss(case: Case) -> None:
    """The source's log ends with a marker, and all of the log is deleted after its records were
    copied. The mirror has seen the marker and the deletion. So no record counts as lost, all gates
    are open, and the switchover succeeds.
    """
    pair = case.pair
    with Mirror(pair.config) as mirror:
        eventually(lambda: case.copied() == 20)
        produce_transaction(pair.a, pair.topic, numbered(20, 2), commit=True)
        eventually(lambda: case.copied() == 22)
        delete_records(pair.a, pair.topic, before=23)
        commit(pair.a, case.group, pair.topic, 22)
        eventually(lambda: case.plan("switchover")[0] == 0, what="all gates open")
        code, out, err = case.commands("switchover").do(*UNFENCED)
        assert code == 0, (out, err)
        mirror.stop()


@pytest.mark.witness(
    "a re-created source topic closes its gate, and its groups are not set", case="identity"
)
def test_source_topic_that_was_recreated(case: Case) -> None:
    pair = case.pair
    case.copy()
    delete_topic(pair.a, pair.topic)
    eventually(lambda: pair.topic not in topic_names(pair.a))
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 10))
    commit(pair.a, case.group, pair.topic, 4)
    code, plan = case.plan("failover")
    (part,), (group,) = plan["partitions"], plan["groups"]
    assert (code, plan["is_clear"], group["is_exact"]) == (1, False, False)
    assert "re-created" in part["problem"]
    assert group["places"][0]["to"] is None
    is_open, evidence = case.gate("copy")
    assert (is_open, "re-created" in evidence) == (False, True)
    with Mirror(pair.config) as mirror:
        eventually(lambda: case.gate("mirror")[0])
        words = ("--accept", "copy", "--accept", "groups", "--within", "3")
        code, out, err = case.commands("switchover").do(*UNFENCED, *words)
        assert code == 1, (out, err)
        mirror.stop()
    assert case.there() == -1


@pytest.mark.witness("a failover ignores the status row of a mirror that has ended", case="default")
def test_row_of_a_mirror_that_ended_proves_nothing(case: Case) -> None:
    """The mirror was stopped, the source got more records, and then the source was lost. The
    mirror's last status row does not prove that all records were copied. So the failover's plan is
    not clear (`is_clear`, exit code 1).
    """
    pair = case.pair
    case.copy()
    produce(pair.a, pair.topic, numbered(20, 10))
    dead = case.elsewhere(pair.alias_a, "127.0.0.1:1")
    code, plan = case.commands("failover", dead).show("plan")
    (part,) = plan["plan"]["partitions"]
    assert (code, plan["plan"]["is_clear"], part["missing"]) == (1, False, None)
    code, out, _ = case.commands("failover", dead).do("run", "--dry-run")
    assert (code, "copied up to offset 20; records after it are unknown" in out) == (1, True)


@pytest.mark.witness(
    "a transaction that ends after the fence is not reported as a leak", case="default"
)
def test_transaction_that_ends_after_the_proof_is_no_leak(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, codes = case.pair, list[int]()

    def switch() -> None:
        with Mirror(pair.config) as mirror:
            eventually(lambda: case.copied() == 20)
            eventually(lambda: case.plan("switchover")[0] == 0)
            wait = FenceProof.wait

            def proved(self: Any, *words: Any, **more: Any) -> Any:
                found = wait(self, *words, **more)
                end()
                return found

            monkeypatch.setattr(FenceProof, "wait", proved)
            code, out, err = case.commands("switchover").do(*UNFENCED)
            assert code == 0, (out, err)
            codes.append(code)
            mirror.stop()

    ended = list[bool]()

    def end() -> None:
        client.commit_transaction()
        ended.append(True)

    client = producer(pair.a, config={"transactional.id": f"late-{pair.topic}"})
    client.init_transactions()
    client.begin_transaction()
    for one in numbered(20, 3):
        client.produce(pair.topic, one.value)
    client.flush()
    switch()
    assert (codes, ended) == ([0], [True])
    assert case.copied() == 23


def test_idle_group_that_is_ahead_closes_its_gate(case: Case) -> None:
    pair = case.pair
    with case.ready():
        commit(pair.b, case.group, pair.remote, 15)
        # under the identity policy the mirror writes its progress only every few seconds, so wait
        eventually(lambda: "it would skip 8 records" in case.gate("groups")[1])
        assert not case.gate("groups")[0]
        code, plan = case.plan("failover")
        assert (code, plan["is_clear"]) == (1, False)
        assert "it would skip 8 records" in case.commands("failover").do("plan")[1]
        code, _, err = case.commands("switchover").do(*UNFENCED)
        assert (code, "[GATE_CLOSED]" in err) == (1, True)
        code, out, err = case.commands("switchover").do(*UNFENCED, "--accept", "groups")
        assert (code, case.there()) == (0, 15), (out, err)


def test_gate_copy_is_closed_without_a_current_row(case: Case) -> None:
    text = case.pair.config.read_text()
    case.pair.config.write_text(
        text.replace("status.interval.seconds = 1", "status.interval.seconds = 0")
    )
    with Mirror(case.pair.config) as mirror:
        eventually(lambda: case.copied() == 20)
        eventually(lambda: case.gate("lag")[0])
        is_open, evidence = case.gate("copy")
        assert (is_open, "no running mirror reports its partitions" in evidence) == (False, True)
        code, out, err = case.commands("switchover").do(*UNFENCED, "--accept", "copy")
        assert code == 0, (out, err)
        mirror.stop()


def test_switchover_keeps_names_under_both_policies(case: Case) -> None:
    """All gates of a switchover are open under both policies. Topics keep their names, and the hook
    runs. A second run changes no group's offset.
    """
    pair, flag = case.pair, case.pair.config.parent / "over"
    with case.ready():
        words = (*UNFENCED, "--hook", f"touch {flag}")
        code, out, err = case.commands("switchover").do(*words)
        assert code == 0, (out, err)
        assert flag.exists()
        produce(pair.b, pair.remote, [Outgoing(value=b"new")])
        code, out, err = case.commands("switchover").do(*words)
        assert code == 0, (out, err)
    assert resume(pair.b, case.group, pair.remote) == [b"%d" % n for n in range(7, 20)] + [b"new"]


def test_promotion_that_is_undone_before_the_hook_ends_the_run(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, flag = case.pair, case.pair.config.parent / "over"
    nothing_is_left = steps.Switchover._require_all_copied

    def demoted(self: Any) -> None:
        nothing_is_left(self)
        assert run(["flow", "demote", "--yes", str(pair.config)]) == 0

    monkeypatch.setattr(steps.Switchover, "_require_all_copied", demoted)
    with case.ready():
        code, out, err = case.commands("switchover").do(*UNFENCED, "--hook", f"touch {flag}")
        assert (code, "[NOT_PROMOTED]" in err) == (1, True), (out, err)
        assert not flag.exists()
