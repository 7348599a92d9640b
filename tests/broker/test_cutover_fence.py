"""Other clients remove or set the fence during a switchover, on real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import eventually, produce
from tests.support.cutover import killed
from tests.support.groups import numbered
from tests.support.mirror import Mirror
from tests.support.rights import SecuredPair, guarded
from tests.support.switchover_case import CREATE_ACLS, Case
from tests.support.topics import allow, forbid, topic_names
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import create_topic_acls, delete_topic_acls
from twinlog.config.load import load
from twinlog.control.cutover import switchover
from twinlog.control.cutover.fence import AclFence, fence_acl
from twinlog.control.cutover.promotion import promote
from twinlog.control.flow.wiring import flow_setup

pytestmark = pytest.mark.broker


@pytest.fixture
def case(
    guarded_pair: SecuredPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Case]:
    made = Case(guarded_pair, tmp_path, capsys)
    with Mirror(made.file) as mirror:
        produce(guarded_pair.source, made.orders, numbered(0, 10))
        eventually(lambda: made.copied(made.orders) == 10)
        eventually(lambda: made.commands.show("plan")[0] == 0)
        yield made
        mirror.stop()


def test_gates_are_checked_again_if_a_client_removed_the_fence(case: Case) -> None:
    """A switchover was killed after it had fenced the topics, and a client removes the fence with
    Kafka's tool. Only the fence's rows in the state topic remain. The next switchover must not rely
    on them: it checks its gates again, and is refused.
    """
    setup = flow_setup(load(case.file, environment={}).flows[0])
    killed("behind", CREATE_ACLS, "switchover", "run", str(case.file), "--yes")
    assert {*case.commands.show("plan")[1]["plan"]["fenced"]} == {case.orders, case.sales}
    with ClusterClient(setup.source) as client:
        delete_topic_acls(client, [fence_acl(case.orders), fence_acl(case.sales)])
    eventually(lambda: case.commands.show("plan")[1]["plan"]["fenced"] == [])
    produce(case.pair.target, case.remote(case.orders), numbered(0, 1))
    eventually(lambda: case.commands.show("plan")[0] == 1)
    code, out, err = case.commands.do("run", "--yes")
    assert (code, "[GATE_CLOSED]" in err) == (1, True), (out, err)


def test_an_abort_and_a_promotion_detect_each_other(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def promoted_late(*words: Any) -> None:
        assert case.commands.do("abort")[0] == 0
        promote(*words)

    monkeypatch.setattr(switchover, "promote", promoted_late)
    code, out, err = case.commands.do("run", "--yes")
    assert code == 0, (out, err)
    assert "and is set again" in out
    eventually(lambda: case.fences() == {case.orders, case.sales})
    assert case.is_refused()


def test_an_abort_that_comes_a_moment_late_leaves_the_fence(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_own = AclFence.remove_own

    def taken_late(self: AclFence) -> list[str]:
        promote(self._scope, [])
        return remove_own(self)

    killed("behind", CREATE_ACLS, "switchover", "run", str(case.file), "--yes")
    monkeypatch.setattr(AclFence, "remove_own", taken_late)
    code, _, err = case.commands.do("abort")
    assert (code, "[PROMOTED]" in err) == (1, True)
    eventually(lambda: case.fences() == {case.orders, case.sales})


def test_an_abort_by_hook_that_comes_a_moment_late_fences_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run promotes after `abort` has let producers write again. `abort` then stops the
    producers with the same hook, because records that they write to the source would be lost.
    """
    remove_own, steps = AclFence.remove_own, case.file.parent / "steps"

    def taken_late(self: AclFence) -> list[str]:
        promote(self._scope, [])
        return remove_own(self)

    monkeypatch.setattr(AclFence, "remove_own", taken_late)
    hook = f"echo $TWINLOG_STEP >> {steps}"
    code, _, err = case.commands.do("abort", "--fence", "hook", "--fence-hook", hook)
    assert (code, "[PROMOTED]" in err) == (1, True)
    assert steps.read_text().split() == ["unfence", "fence"]


def test_an_abort_by_hook_also_removes_twinlogs_acls(case: Case) -> None:
    """A switchover fenced the source by ACLs and was killed. `abort` must remove these ACLs even if
    it is run with another kind of fence, a hook.
    """
    killed("behind", CREATE_ACLS, "switchover", "run", str(case.file), "--yes")
    code, _, err = case.commands.do("abort", "--fence", "hook", "--fence-hook", "true")
    assert code == 0, err
    eventually(lambda: case.fences() == set())


def test_a_fence_that_would_keep_readers_out_is_refused(
    guarded_pair: SecuredPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source allows all clients to use topics without ACLs. The fence's ACL would be the first
    one of its topic, which closes the topic to consumers as well. So the switchover is refused with
    FENCE_SHUTS_OUT, even if the gate "acls" is accepted.
    """
    config = {"allow.everyone.if.no.acl.found": "true"}
    with guarded("open-source", config) as source:
        case = Case(SecuredPair(source=source, target=guarded_pair.target), tmp_path, capsys)
        forbid(source, case.user, ["write", "describe"], topic=case.orders)

        def closed() -> set[str]:
            gates = case.commands.show("plan")[1]["plan"]["gates"]
            return {one["gate"] for one in gates if not one["is_open"]}

        def gate() -> tuple[bool, str]:
            _, found = case.commands.show("plan")
            (one,) = (one for one in found["plan"]["gates"] if one["gate"] == "acls")
            return one["is_open"], " ".join(one["evidence"])

        eventually(lambda: not gate()[0])
        shut_out = "has no ACLs, so a fence by ACL would keep readers out as well"
        assert gate()[1] == f"{case.orders} on the source {shut_out}"
        with Mirror(case.file) as mirror:
            produce(source, case.orders, numbered(0, 10))
            eventually(lambda: case.copied(case.orders) == 10)
            eventually(lambda: case.remote(case.sales) in topic_names(guarded_pair.target))
            eventually(lambda: closed() == {"acls"})
            code, _, err = case.commands.do("run", "--yes", "--accept", "acls")
            assert (code, "[FENCE_SHUTS_OUT]" in err) == (1, True), err
            assert case.fences() == set()
            allow(source, case.user, ["read"], topic=case.orders)
            eventually(lambda: case.commands.show("plan")[0] == 0)
            mirror.stop()


def test_fences_end_with_the_promotion_that_they_were_for(case: Case) -> None:
    """The ACLs of a switchover's fence were removed, and the flow was demoted. Later an operator
    creates the same DENY ACLs. They are not the switchover's fence, so the next switchover checks
    the gates again, and `abort` does not remove the ACLs.
    """
    setup = flow_setup(load(case.file, environment={}).flows[0])
    fences = [fence_acl(case.orders), fence_acl(case.sales)]
    code, out, err = case.commands.do("run", "--yes")
    assert code == 0, (out, err)
    with ClusterClient(setup.source) as client:
        delete_topic_acls(client, fences)
        eventually(lambda: case.fences() == set())
        assert run(["flow", "demote", "--yes", str(case.file)]) == 0
        # an operator creates the same ACLs, which must not count as a fence
        create_topic_acls(client, fences)
        eventually(lambda: case.fences() == {case.orders, case.sales})
        code, plan = case.commands.show("plan")
        assert (plan["plan"]["fenced"], bool(plan["plan"]["gates"])) == ([], True)
        produce(case.pair.target, case.remote(case.orders), numbered(0, 1))
        eventually(lambda: case.commands.show("plan")[0] == 1)
        code, _, err = case.commands.do("run", "--yes")
        assert (code, "[GATE_CLOSED]" in err) == (1, True), err
        code, out, err = case.commands.do("abort")
        assert (code, "removed from 0 topics" in out) == (0, True), (out, err)
        assert case.fences() == {case.orders, case.sales}


def test_a_fence_that_remains_after_a_demotion_belongs_to_twinlog(case: Case) -> None:
    code, out, err = case.commands.do("run", "--yes")
    assert code == 0, (out, err)
    assert run(["flow", "demote", "--yes", str(case.file)]) == 0
    produce(case.pair.target, case.remote(case.orders), numbered(0, 1))
    eventually(lambda: case.commands.show("plan")[0] == 1)
    code, _, err = case.commands.do("run", "--yes")
    assert (code, "[GATE_CLOSED]" in err) == (1, True), "the gates of then say nothing now"
    code, out, err = case.commands.do("abort")
    assert (code, "removed from 2 topics" in out) == (0, True), (out, err)
    eventually(lambda: case.fences() == set())
