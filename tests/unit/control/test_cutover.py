"""The decisions of a cutover command, derived from its observations without brokers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.snapshots import PUBLISHED
from twinlog.cli.commands.cutover import _run_plan, is_confirmed, require_an_answer
from twinlog.cluster.groups.membership import process_metadata
from twinlog.cluster.logs.producers import ProducerState
from twinlog.config.effective import digests
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.load import load
from twinlog.control.cutover import failover as cutover_failover
from twinlog.control.cutover import newest_status
from twinlog.control.cutover.copies import Copy
from twinlog.control.cutover.drain import _writers
from twinlog.control.cutover.failover import Failover, FailoverPlan
from twinlog.control.cutover.fence import fence_acl
from twinlog.control.cutover.gates import Gate, require_open
from twinlog.control.cutover.groups import GroupOutcome, GroupPartition, GroupPlan
from twinlog.control.cutover.newest_status import NewestStatus
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import FlowError, Unreachable, UsageError
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap
from twinlog.mirror.map.runs import Run
from twinlog.mirror.names.acl_rules import fenced_topics
from twinlog.mirror.names.filters import TopicSelector, policy_of
from twinlog.mirror.state.published import Behind, PublishedStatus
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.topic_settings import WRITE, Pattern, Permission

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
ALL = frozenset((HERE,))


def position(to: int | None = 10, now: int | None = None, **more: Any) -> GroupPartition:
    return GroupPartition(source=HERE, target=THERE, committed=10, to=to, now=now, **more)


def group(*partitions: GroupPartition, **more: Any) -> GroupPlan:
    return GroupPlan(group="shop", partitions=partitions, **more)


@pytest.mark.parametrize(
    ("to", "now", "outcome"),
    [
        (10, None, GroupOutcome.BEHIND),
        (10, 9, GroupOutcome.BEHIND),
        (10, 10, GroupOutcome.ALREADY_SET),
        (10, 11, GroupOutcome.AHEAD),
        (None, None, GroupOutcome.NO_COUNTERPART),
        (None, 5, GroupOutcome.LEFT),
    ],
)
def test_a_group_only_moves_forwards(to: int, now: int, outcome: GroupOutcome) -> None:
    one = group(position(to, now))
    assert one.partitions[0].outcome is outcome
    assert bool(one.to_set) is (outcome is GroupOutcome.BEHIND)
    assert one.is_done is (
        outcome in (GroupOutcome.ALREADY_SET, GroupOutcome.AHEAD, GroupOutcome.LEFT)
    )


def test_of_many_partitions_those_that_are_not_exact_are_shown_first() -> None:
    many = [position(10, 10) for _ in range(30)]
    lines = list(group(*many, position(why_not_exact="nobody knows")).lines())
    assert "nobody knows" in lines[1]
    assert lines[-1] == "  and 21 partitions more: already set: 21 (--format json: all)"
    assert len(lines) == 12
    assert len(list(group(*many[:10]).lines())) == 11


def test_a_group_in_use_or_unseen_on_the_target_is_never_set() -> None:
    assert group(position(), in_use_on_target=True).to_set == {}
    unseen = group(position(), problem="grant DESCRIBE on group shop")
    assert unseen.to_set == {}
    assert not unseen.is_done
    assert not unseen.is_exact


def copy(**more: Any) -> Copy:
    return Copy(source=HERE, target=THERE, **more)


def failover(
    one: Copy, newest: NewestStatus, *groups: GroupPlan, lacking: frozenset[TopicPartition] = ALL
) -> FailoverPlan:
    return FailoverPlan(
        flow="A->B",
        source_problem="it is gone" if one.source_end is None else "",
        newest=newest,
        copies=(one,),
        groups=groups,
        promoted="",
        lacking=lacking,
    )


def behind(topic: str, upstream: int, end: int) -> Behind:
    return Behind(topic=topic, partition=0, upstream=upstream, end=end)


def test_missing_records_are_counted_by_the_source_or_its_last_observer() -> None:
    now_ms = int(time.time() * 1000)
    seen = failover(copy(upstream=20, source_end=25), NewestStatus(status=None))
    assert seen.missing(seen.copies[0]) == 5
    markers = failover(seen.copies[0], NewestStatus(status=None), lacking=frozenset())
    assert markers.missing(seen.copies[0]) == 0
    gone = copy(upstream=20)
    assert failover(gone, NewestStatus(status=None)).missing(gone) is None
    newest = structs.replace(
        PUBLISHED, at_ms=now_ms, loss_records=30, behind=(behind("orders", 20, 50),)
    )
    plan = failover(gone, NewestStatus(status=newest))
    assert plan.missing(gone) == 30
    assert not plan.is_open
    assert "[20, 50) is missing, up to 30 records" in "\n".join(plan.lines())
    later = copy(upstream=45)
    assert failover(later, NewestStatus(status=newest)).missing(later) == 5, (
        "it copied on behind the row"
    )
    others = structs.replace(newest, loss_records=30, behind=(behind("audit", 20, 50),))
    assert failover(gone, NewestStatus(status=others)).missing(gone) == 0
    old = structs.replace(others, at_ms=now_ms - 24 * 3_600_000)
    assert failover(gone, NewestStatus(status=old)).missing(gone) is None, "its mirror is gone"
    killed = NewestStatus(status=others, why_ended="no mirror leads the flow")
    assert failover(gone, killed).missing(gone) is None, "no mirror is in the group"
    ahead = NewestStatus(status=structs.replace(others, at_ms=now_ms + 3_600_000), is_new=True)
    assert failover(gone, ahead).missing(gone) == 0, "its host's clock is an hour ahead"
    ended = structs.replace(others, state="STOPPED")
    assert failover(gone, NewestStatus(status=ended)).missing(gone) is None
    assert failover(gone, NewestStatus(status=ended, is_new=True)).missing(gone) is None
    more = structs.replace(others, loss_records=31)
    assert failover(gone, NewestStatus(status=more)).missing(gone) is None, "not all is in the row"
    unknown = structs.replace(others, loss_unknown=1)
    assert failover(gone, NewestStatus(status=unknown)).missing(gone) is None


def test_a_row_of_another_clock_is_current_for_as_long_as_it_may_be_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock of the leader's host differs from this host's. So a command measures the age of a
    status row by its own clock, from the moment when it first read the row. The first row that it
    reads may be of any age. Only a later row counts as current, for a limited time.
    """
    scope = cast("CutoverScope", SimpleNamespace(seen_row=None, target=None, name="A->B"))
    hour_ago = int(time.time() * 1000) - 3_600_000
    # `every_ms` is -1, so the command does not wait for another row
    rows = [structs.replace(PUBLISHED, at_ms=hour_ago + more, every_ms=-1) for more in (0, 1)]
    now = [100.0]

    def is_current(row: PublishedStatus) -> bool:
        monkeypatch.setattr(newest_status, "leader_status", lambda *_: row)
        return newest_status.newest_status(scope).is_of_now

    monkeypatch.setattr(newest_status, "_why_ended", lambda *_: "")
    monkeypatch.setattr(newest_status, "POLL_S", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert not is_current(rows[0]), "it may be of any age"
    assert is_current(rows[1])
    now[0] += rows[1].lives_ms / 1000 + 1
    assert not is_current(rows[1]), "its leader reports nothing any more"


def test_a_row_counts_only_if_its_process_leads_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby keeps the flow's group active after the death of the leader."""
    scope = cast("CutoverScope", SimpleNamespace(history=lambda: None, is_led=lambda: True))

    def why_ended(metadata: bytes) -> str:
        monkeypatch.setattr(newest_status, "leader_metadata", lambda _: metadata)
        return newest_status._why_ended(scope, PUBLISHED)

    def process(pid: int) -> bytes:
        return json.dumps({"host": PUBLISHED.host, "pid": pid}).encode()

    assert not why_ended(process(PUBLISHED.pid))
    standby = why_ended(process(PUBLISHED.pid + 1))
    assert standby == f"{PUBLISHED.where} does not lead the flow any more"
    assert "its group may be rebalancing" in why_ended(b"")


def test_the_leader_of_the_group_is_waited_for_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member's assignment contains the leader's metadata, and is empty during a rebalance. If
    the leader's file selects other topics, the whole flow has topics that the command would
    neither fence nor drain.
    """
    mine, theirs = (flow_of(tmp_path, topics) for topics in ("orders", "orders, pay"))
    scope = cast("CutoverScope", SimpleNamespace(config=mine, name="A->B", target=None))
    now, rounds = [0.0], list[list[tuple[bytes, bytes]]]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def other(*answers: list[tuple[bytes, bytes]]) -> str:
        rounds[:] = answers
        return "".join(newest_status.other_config(scope))

    monkeypatch.setattr(newest_status, "Coordinators", lambda _: None)
    monkeypatch.setattr(
        newest_status, "member_data", lambda *_: rounds.pop(0) if len(rounds) > 1 else rounds[0]
    )
    monkeypatch.setattr(
        newest_status, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    )
    same, wider = (process_metadata(digests(config)) for config in (mine, theirs))
    assert not other([(b"", same)])
    assert " topics," in other([(b"", b"")], [(b"standby", b""), (b"", wider)])
    assert not other([]), "no mirror"
    began = now[0]
    assert not other([(b"", b"")]), "unknown"
    assert now[0] > began + newest_status.ELECTED_WITHIN_S
    limited = flow_of(tmp_path, "orders", "twinlog.max.bytes.per.second = 5000000")
    assert not other([(b"", process_metadata(digests(limited)))]), "that changes no record"


def test_clear_is_a_failover_that_loses_nothing_and_leaves_no_group() -> None:
    whole = copy(upstream=20, source_end=20)
    clear = failover(whole, NewestStatus(status=None), group(position(10, 10)))
    assert clear.is_open
    assert not replace(clear, groups_problem="B has no topic of checkpoints").is_open
    assert not failover(
        whole, NewestStatus(status=None), group(position(), in_use_on_target=True)
    ).is_open
    inexact = group(position(why_not_exact="the copy ends at 5, 5 before it"))
    assert not failover(whole, NewestStatus(status=None), inexact).is_open
    assert not failover(copy(source_end=20), NewestStatus(status=None)).is_open


def known(first: Run) -> PartitionMap:
    key = PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 0)
    found = SimpleNamespace(key=key, runs=[first], producers={7})
    return cast("PartitionMap", found)


def wrote(sequence: int) -> ProducerState:
    return ProducerState(
        producer_epoch=0,
        last_sequence=sequence,
        last_timestamp=1_800_000_000_000,
        current_transaction_start_offset=-1,
    )


def test_the_writer_is_found_by_its_moved_sequence() -> None:
    before = {HERE: {7: wrote(3), 9: wrote(5)}}
    after = {HERE: {7: wrote(3), 9: wrote(8)}}
    (one,) = _writers({HERE: 3}, before, after)
    assert (one.producer_id, one.records) == (9, 3)
    assert "producer id 9 (epoch 0) is at sequence 8" in str(one)
    (one,) = _writers({HERE: 3}, before, before)
    assert "a producer without an id" in str(one)
    assert _writers({}, before, after) == []


def test_gates_that_are_closed_end_a_run_unless_they_are_accepted() -> None:
    scope = cast("CutoverScope", SimpleNamespace(error=partial(FlowError, flow="A->B")))
    some = [
        Gate(name="lag", is_open=False, evidence=("2,000 records",)),
        Gate(name="acls", is_open=True, evidence=("all there",)),
    ]
    require_open(scope, some, ["lag"])
    with pytest.raises(
        FlowError, match=r"changed, because of closed gates \(lag\). Gate lag: 2,000"
    ) as caught:
        require_open(scope, some, ["acls"])
    assert caught.value.code == "GATE_CLOSED"
    assert [*some[0].lines()] == ["gate lag: CLOSED: 2,000 records"]


def test_only_the_flows_name_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    for typed, is_meant in (("A->B", True), ("A -> B", True), ("yes", False), ("", False)):
        monkeypatch.setattr("click.prompt", lambda *_, typed=typed, **__: typed)
        assert is_confirmed("A->B", "Records that were not copied stay missing.") is is_meant
    with pytest.raises(UsageError, match="give --yes"):
        require_an_answer(yes=False, dry_run=False)  # stdin of a test is no terminal
    require_an_answer(yes=False, dry_run=True)


def test_only_an_acl_for_everybody_is_a_fence() -> None:
    acl = fence_acl("orders")
    assert (acl.operation, acl.permission) == (WRITE, Permission.DENY)
    assert fenced_topics([acl]) == {"orders"}
    assert fenced_topics([acl._replace(principal="User:app")]) == set()
    assert fenced_topics([acl._replace(host="10.0.0.1")]) == set()
    assert fenced_topics([acl._replace(pattern=int(Pattern.PREFIXED))]) == set()


def flow_of(folder: Path, topics: str, *lines: str) -> FlowConfig:
    file = folder / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        f"A->B.enabled = true\nA->B.topics = {topics}\n" + "".join(f"{one}\n" for one in lines)
    )
    (flow,) = load(file, environment={}).flows
    return flow


def test_heartbeats_are_copied_and_do_not_go_over(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, "orders")
    scope = CutoverScope.__new__(CutoverScope)  # a scope that queries no cluster
    scope.policy, scope._selector = policy_of(flow), TopicSelector.of(flow)
    scope._topics, scope._released, scope._promoted = None, {"gone"}, set()
    scope._covered = {}
    topics = ("orders", "C.heartbeats", "payments", "gone")
    assert [scope.copies(one) for one in topics] == [True, True, False, False]
    assert [scope.covers(one) for one in topics] == [True, False, False, False]


def test_an_error_that_does_not_repeat_makes_no_source_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failover's survey fails with an error that does not repeat, so it may have been the
    target's. The source must not count as lost because of it. Otherwise the commits of its groups
    would be missing from the plan. Only a repeated error makes it count as lost.
    """
    one = Failover.__new__(Failover)
    one._scope = cast("CutoverScope", SimpleNamespace(source_problem=None, joined=list))
    one._groups = cast("Any", SimpleNamespace(plan=lambda found: ["its groups"]))
    errors = [Unreachable("for a moment")]

    def read(scope: CutoverScope) -> list[Copy]:
        if errors and scope.source_problem is None:
            raise errors.pop()
        return []

    monkeypatch.setattr(cutover_failover, "copies", read)
    assert one._survey()[1] == cast("Any", ["its groups"])
    assert one._scope.source_problem is None
    errors += [Unreachable("for long"), Unreachable("of the target")]
    assert one._survey()[1] == cast("Any", ["its groups"])
    assert "for long" in str(one._scope.source_problem), "the last error, not the first"


def test_a_state_that_is_unknown_after_a_run_is_no_failure_of_the_run() -> None:
    """After clients have moved, a broker does not respond. The exit code is that of the run."""
    said: list[str] = []

    def plan() -> None:
        raise Unreachable("its broker does not respond")

    work = cast("Failover", SimpleNamespace(run=lambda _: (), plan=plan, say=said.append))
    assert _run_plan(work, None) == ({"after": None}, 0)
    assert "the state after the run is unknown: its broker" in said[0]
