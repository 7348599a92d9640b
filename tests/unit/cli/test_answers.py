"""The output of every command, byte for byte, with its exit code: as text, with -q, and as JSON.

Results that a command would read from clusters are set by hand at the functions that the command
calls. The expected outputs are in `answers/`, a file for each case. `python -m
tests.unit.cli.test_answers` writes them.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import pytest
import yaml

import twinlog.client
import twinlog.control
from tests.support import snapshots
from tests.support.properties import BASE
from twinlog.cli.main import run
from twinlog.client.group_translation import TranslatedGroup, TranslatedOffset
from twinlog.client.offset_reset import Fit, GroupReset, ResetOffset
from twinlog.client.producer_hold import RemovalResult
from twinlog.client.repair import RepairLine
from twinlog.client.skipping import SkipChange
from twinlog.client.spark_checkpoint import MovedMark, MovedMarks, NewestBatch, Rewritten
from twinlog.client.steering import Change
from twinlog.client.topology import KnownCluster, KnownFlow, Topology
from twinlog.cluster.groups.group_members import NOT_THERE, GroupSide, Member
from twinlog.control.check.group_readiness import CommittedOffset, FlowGroups, GroupReadiness
from twinlog.control.check.report import (
    CheckReport,
    ClusterReport,
    FlowReport,
    LaneMemory,
    Plan,
    Problem,
    TopicReport,
)
from twinlog.control.compare import Aspect, Deviation, FlowComparison
from twinlog.control.cutover.copies import Copy
from twinlog.control.cutover.failover import FailoverPlan
from twinlog.control.cutover.gates import Gate
from twinlog.control.cutover.groups import GroupPartition, GroupPlan
from twinlog.control.cutover.newest_status import NewestStatus
from twinlog.control.cutover.switchover import FenceKind, SwitchoverPlan
from twinlog.control.doctor.findings import ClusterView, Observation
from twinlog.control.drill.cleaning import Leftovers, Part
from twinlog.control.drill.drill import DrillPlan, DrillResult, TopicShape
from twinlog.control.drill.rehearsal import Load, Measurements
from twinlog.control.failback.failback import FailbackPlan
from twinlog.control.rebuild.map_rebuild import LineOutcome, RebuiltLine
from twinlog.control.verify.result import VerifiedFlow, VerifiedGroup, VerifiedPartition
from twinlog.errors import FlowError
from twinlog.mirror.findings import Span
from twinlog.mirror.state.intents import Intent, IntentKind, WantedSkip
from twinlog.mirror.state.published import Unusual
from twinlog.mirror.verify.difference import Compared, DifferenceKind
from twinlog.model import TopicId, TopicPartition
from twinlog.sandbox.registry import SandboxCluster
from twinlog.spark.pack import PackResult

for package in (twinlog.client, twinlog.control):
    # a module that is imported for the first time while a function is patched would keep the patch
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)

ANSWERS: Final = Path(__file__).with_name("answers")
HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
FILE: Final = "mm2.properties"
REFUSED: Final = FlowError("group shop has members: app-1", code="GROUP_ACTIVE")


def of(**methods: Any) -> Callable[..., Any]:
    """Return a function that creates objects whose methods return these values. The objects can be
    closed and used in `with`.
    """

    def make(*_given: Any, **_named: Any) -> Any:
        made = SimpleNamespace(close=lambda: None)
        for name, value in methods.items():
            returned = value if callable(value) else (lambda *_a, _value=value, **_n: _value)
            setattr(made, name, returned)
        return made

    return make


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_given, **_named: value


def offset(at: int, to: int | None, *, is_exact: bool = True) -> TranslatedOffset:
    return TranslatedOffset(
        topic="orders",
        partition=0,
        offset=at,
        to_topic="A.orders",
        to_offset=to,
        is_exact=is_exact,
    )


GROUP: Final = TranslatedGroup(
    offsets=(offset(7, 5), offset(8, 6, is_exact=False), offset(9, None, is_exact=False)),
    from_checkpoints=True,
)
TRANSLATION: Final = {
    "twinlog.client.group_translation.FlowTranslation": of(group=GROUP, translate=offset(42, 40))
}


def reset(*, refused: bool, is_done: bool = False) -> GroupReset:
    rows = (
        ResetOffset(topic="orders", partition=0, before=30, after=20, start=0, end=1999),
        ResetOffset(
            topic="orders", partition=1, before=None, after=5, start=5, end=9, fit=Fit.AT_START
        ),
    )
    return GroupReset(
        group="cart" if refused else "shop",
        offsets=() if refused else rows,
        topic_ids={},
        refused=REFUSED if refused else None,
        is_done=is_done,
    )


def resets(*, refused: bool) -> dict[str, Any]:
    plans = [reset(refused=False), *([reset(refused=True)] if refused else [])]
    done = {"shop": reset(refused=False, is_done=True), "cart": reset(refused=True)}
    work = of(plan=plans, names=["shop"], execute=lambda one: done[one.group])
    return {
        "twinlog.client.offset_reset.OffsetReset": work,
        "twinlog.cluster.client.prompt_client": returns(contextlib.nullcontext()),
    }


def rebuilt(*outcomes: LineOutcome) -> dict[str, Any]:
    lines = [
        RebuiltLine(
            source=HERE,
            target=THERE,
            outcome=outcome,
            first=0,
            end=9,
            runs=0 if outcome is LineOutcome.REFUSED else 2,
            next_upstream=11,
            problem=FlowError("offset 3 differs", code="DIVERGED")
            if outcome is LineOutcome.REFUSED
            else None,
        )
        for outcome in outcomes
    ]
    work = of(plan=[], lead=None, run=lines)
    return {"twinlog.control.rebuild.map_rebuild.MapRebuild": work}


def checkpoint(marks: MovedMarks) -> dict[str, Any]:
    found = Rewritten(
        noted=NewestBatch(batch=4, is_committed=not marks.problem),
        offsets=GROUP.offsets[:2],
        other_sources=1 if marks.problem else 0,
    )
    return TRANSLATION | {
        "twinlog.client.spark_checkpoint.move_marks": returns(marks),
        "twinlog.client.spark_checkpoint.rewrite_checkpoint": returns(found),
    }


def readiness(*, is_ready: bool) -> dict[str, Any]:
    member = Member(client_id="app", host="/10.0.0.1")
    side = NOT_THERE if is_ready else GroupSide(state="Stable", members=(member,), is_active=True)
    offsets = (
        CommittedOffset(
            topic="orders",
            partition=0,
            offset=5,
            end=1999,
            to_topic="A.orders",
            to_offset=4,
            why_not="",
        ),
        CommittedOffset(
            topic="orders",
            partition=1,
            offset=5,
            end=None,
            to_topic=None,
            to_offset=None,
            why_not="not copied",
        ),
    )
    group = GroupReadiness(
        group="shop",
        is_share=False,
        source_side=side,
        target_side=NOT_THERE,
        committed=offsets[: 1 if is_ready else 2],
        why_not=() if is_ready else ("it has members: app", "1 offset is not exact"),
    )
    found = FlowGroups(flow="A->B", groups=[group], notes=["A: no rights"], left_out=2)
    return {"twinlog.control.check.group_readiness.ready_groups": returns([found])}


def changes(kind: IntentKind, topic: str = "", **more: Any) -> dict[str, Any]:
    is_set = more.pop("is_set", True)
    before = Intent(
        flow="A->B",
        kind=kind,
        topic=topic,
        is_set=True,
        bytes_per_second=None,
        who="ann",
        at_ms=7,
        reason="x",
    )
    more = {"bytes_per_second": None, "reason": ""} | more
    found = [
        Change(
            intent=Intent(
                flow=f"A->{target}", kind=kind, topic=topic, is_set=is_set, who="b", at_ms=8, **more
            ),
            before=held,
        )
        for target, held in (("B", None), ("C", before))
    ]
    return {"twinlog.control.flow.wishes.apply_intents": returns(found)}


def quota(rate: int | None) -> dict[str, Any]:
    held = None if rate is None else SimpleNamespace(rates=(1, rate))
    return {
        "twinlog.client.producer_hold.ProducerHold": of(
            read=held, remove_quota_and_row=RemovalResult.REMOVED
        ),
        "twinlog.cluster.client.prompt_client": returns(contextlib.nullcontext()),
    }


def skipping(*, is_skipped: bool, is_batch: bool = False) -> dict[str, Any]:
    wanted = WantedSkip(
        flow="A->B",
        topic="orders",
        topic_id=TopicId("7" * 32),
        partition=0,
        first=4711,
        next=4714 if is_batch else 4712,
        is_batch=is_batch,
        code="CORRUPT_BATCH" if is_batch else "RECORD_TOO_LARGE",
        who="ann",
        at_ms=7,
        reason="too large",
    )
    change = SkipChange(wanted=wanted, before=wanted if is_skipped else None)
    work = of(check=change, write=None, quarantine=[3, 4])

    def make(*given: Any) -> Any:
        made = work(*given)
        made.quarantine_topic = "mm2-twinlog-quarantine.A.internal"
        return made

    return {"twinlog.client.skipping.RecordSkip": make}


def repairs(*, is_found: bool, is_stuck: bool = False) -> dict[str, Any]:
    batch = SimpleNamespace(
        producer_id=9,
        count=3,
        is_control=False,
        base_timestamp=1_000,
        max_timestamp=2_000,
    )
    found: Any = SimpleNamespace(ranges=((5, 8),), foreign=(batch,), end=8)
    accepted: Any = SimpleNamespace(accepted=SimpleNamespace(offsets=3))
    standing = Unusual(
        topic="orders", partition=0, state="FAILED", code="EXTRA_RECORDS", message=""
    )
    can = RepairLine(
        reported_problem=standing,
        source=HERE,
        target=THERE,
        found=found,
        wanted=accepted,
        resumes_at=11,
    )
    cannot = RepairLine(
        reported_problem=standing, source=HERE, target=THERE, problem="copy it again"
    )
    lines = [*([can] if is_found else []), *([cannot] if is_stuck else [])]
    return {"twinlog.client.repair.TopicRepair": of(plan=lines, accept=None)}


def named_scope(*_given: Any, **_named: Any) -> Any:
    return contextlib.nullcontext(SimpleNamespace(name="A->B"))


GROUP_PLAN: Final = GroupPlan(
    group="shop",
    partitions=(GroupPartition(source=HERE, target=THERE, committed=10, to=9, now=None),),
)
COPY: Final = Copy(source=HERE, target=THERE, upstream=20, source_end=25)


def switchover(*, is_open: bool) -> dict[str, Any]:
    plan = SwitchoverPlan(
        flow="A->B",
        gates=(
            Gate(name="mirror", is_open=True, evidence=("it runs",)),
            Gate(name="lag", is_open=is_open, evidence=("5 records", "in orders")),
        ),
        copies=(COPY,),
        groups=(GROUP_PLAN,),
        fenced=("orders",),
        is_begun=False,
        promoted="",
        notes=("ACLs are not synced",),
    )
    return moves("switchover.Switchover", plan)


def failover(promoted: str = "") -> dict[str, Any]:
    plan = FailoverPlan(
        flow="A->B",
        source_problem="it is gone",
        newest=NewestStatus(status=None),
        copies=(COPY,),
        groups=(GROUP_PLAN,),
        promoted=promoted,
        lacking=frozenset(),
    )
    return moves("failover.Failover", plan)


def failback(promoted: str) -> dict[str, Any]:
    plan = FailbackPlan(
        flow="A->B",
        promoted=promoted,
        tails=(),
        reverse_lines=("start B->A",),
        replayed=("3 of 5",),
    )
    return moves("../failback.failback.Failback", plan)


def moves(where: str, plan: Any) -> dict[str, Any]:
    """Return the patches of a move (a switchover or failover) whose steps print a line. `where`:
    the module; `plan`: the plan that it returns.
    """

    def make(_scope: Any, say: Callable[[str], None], *_options: Any) -> Any:
        def step(*_steps: Any, **_named: Any) -> list[Any]:
            say("a step is done")
            return []

        return SimpleNamespace(plan=lambda: plan, run=step, abort=step)

    folder = "twinlog.control.cutover."
    where = f"{folder}{where}".replace("cutover.../", "")
    return {"twinlog.control.cutover.scope.CutoverScope": named_scope, where: make}


def drill(*, is_green: bool) -> dict[str, Any]:
    plan = DrillPlan(
        flow="A->B",
        shapes=(TopicShape(topic="orders", partitions=2, replicas=1, configs={"a": "b"}),),
        fence=FenceKind.ACL,
        load=Load(),
        parts=(Part.SWITCHOVER, Part.FAILOVER),
    )
    measured = Measurements(part=Part.SWITCHOVER)
    result = DrillResult(plan=plan, mark="twinlog-drill-0123abcd", began_ms=7, outcomes=[measured])
    result.problem = "" if is_green else "it ended early"
    return {"twinlog.control.drill.drill.Drill": of(plan=plan, run=result)}


def left(*running: str, is_left: bool = True, is_clean: bool = True) -> dict[str, Any]:
    found = Leftovers(
        cluster="A",
        topics=("twinlog-drill-1a2b3c4ds-0.internal",) if is_left else (),
        running=running,
    )

    def clean(_client: Any, _mark: str, say: Callable[[str], None]) -> bool:
        say("removed")
        return is_clean

    return {
        "twinlog.cluster.client.prompt_client": returns(contextlib.nullcontext()),
        "twinlog.control.drill.cleaning.leftovers": returns(found),
        "twinlog.control.drill.cleaning.clean": clean,
    }


def comparison(*, is_equal: bool) -> dict[str, Any]:
    found = FlowComparison(flow="A->B")
    one = {"name": "orders", "source": "1", "target": "2"}
    other = Deviation(aspect=Aspect.CONFIG, detail="a", left_alone="excluded", **one)
    found.add(Aspect.CONFIG, 7, [other])
    if not is_equal:
        found.add(Aspect.TOPIC, 9, [Deviation(aspect=Aspect.TOPIC, **one)])
    found.notes.append("ACLs are not compared: no")

    def compare(*_given: Any, say: Callable[[str], None], **_named: Any) -> Iterator[Any]:
        say("querying A and B")
        yield found

    return {"twinlog.control.compare.compare_flows": compare}


def observed(*, is_well: bool) -> dict[str, Any]:
    there = ClusterView(alias="B", problem="" if is_well else "no broker answers [UNREACHABLE]")
    state = "RUNNING" if is_well else "FAILED"
    seen = Observation(
        snapshot=snapshots.flow(snapshots.partition(), state=state, reason="" if is_well else "x"),
        file=FILE,
        source=ClusterView(alias="A", round_trips_ms={0: 1.0}),
        target=there,
        notes=("quotas are unknown",),
    )
    return {"twinlog.control.doctor.observing.observe": returns([seen])}


def verified(*, is_equal: bool, flows: int = 1) -> dict[str, Any]:
    compared = Compared()
    if not is_equal:
        compared.add_difference(DifferenceKind.MISSING, Span(3, 5), None, 2, "why")
    group = VerifiedGroup(
        group="shop",
        source=HERE,
        target=THERE,
        committed=20,
        translated_offset=18,
        target_committed=18 + (not is_equal),
    )
    part = VerifiedPartition(source=HERE, target=THERE, compared=compared)
    found = [
        VerifiedFlow(flow=f"A->{n}", partitions=[part], groups=[group], notes=["no quotas"])
        for n in range(flows)
    ]
    return {
        "twinlog.control.verify.verification.verify_flows": returns(found),
        "twinlog.cli.commands.verify.time.time": returns(7.0),
    }


def topology(*, is_known: bool) -> dict[str, Any]:
    flow = KnownFlow(flow="A->B", source="A", target="B", hops=1, copies=True)
    idle = KnownFlow(flow="B->A", source="B", target="A", hops=None, copies=False)
    cluster = KnownCluster(alias="A", hops=1, way=("A", "B"))
    found = Topology(
        cluster="B",
        clusters=(cluster,) if is_known else (),
        flows=(flow, idle) if is_known else (),
        unread=("A.heartbeats",) if is_known else (),
    )
    return {
        "twinlog.client.topology.read_topology": returns(found),
        "twinlog.cluster.client.prompt_client": returns(contextlib.nullcontext()),
    }


def report(*, is_ready: bool) -> dict[str, Any]:
    problem = Problem(code="NO_LEADER", message="no leader", topic="orders", partition="orders-0")
    flow = FlowReport(
        flow="A->B",
        topics=[
            TopicReport(
                topic="orders",
                remote_topic="A.orders",
                partitions=3,
                plan=Plan.GROW,
                remote_partitions=2,
                configs={"b": "2", "a": "1"},
                start="the log start",
            )
        ],
        problems=[] if is_ready else [problem] * 12,
        notes=["a note"],
        changes=["orders: retention.ms 1 -> 2"],
        guarantee="exactly once",
        missing_capabilities=() if is_ready else ("transactions",),
        memory=LaneMemory(
            lanes=2,
            lane_bytes=160 << 20,
            process_bytes=450 << 20,
            limit_bytes=None if is_ready else 1 << 30,
        ),
    )
    found = CheckReport(
        file=FILE,
        warnings=(),
        clusters=(
            ClusterReport(alias="A", addresses="a:9092", cluster_id="x", brokers=3),
            ClusterReport(alias="B", addresses="b:9092", problem=None if is_ready else problem),
        ),
        flows=(flow,),
        certificates=()
        if is_ready
        else (Problem(code="CERTIFICATE_EXPIRED", message="A has expired"),),
    )
    return {"twinlog.control.check.mirror_check.check": returns(found)}


def sandbox(*clusters: SandboxCluster) -> dict[str, Any]:
    names = ("up", "status", "down")
    return {f"twinlog.sandbox.registry.{one}": returns([*clusters]) for one in names}


CLUSTER: Final = SandboxCluster(
    name="source", bootstrap="localhost:1", folder=Path("data"), brokers=2, pids={0: 7}
)


def exported(*, is_whole: bool) -> dict[str, Any]:
    counts = SimpleNamespace(
        position=9,
        records=3,
        aborted=1,
        deleted=0,
        before_log=None if is_whole else Span(0, 2),
        after_log=None,
        uncommitted=None if is_whole else Span(7, 8),
        unread=None,
    )

    def make(*_given: Any, **_named: Any) -> Any:
        return SimpleNamespace(
            tp=THERE, span=Span(2, 9), counts=counts, is_whole=is_whole, records=lambda: []
        )

    return {
        "twinlog.client.export.Export": make,
        "twinlog.cluster.client.prompt_client": returns(contextlib.nullcontext()),
    }


def packed() -> dict[str, Any]:
    made = PackResult(
        path=Path("x.zip"), size=1_500_000, python="3.11", platform="linux", distributions=("a",)
    )
    return {"twinlog.spark.pack.pack": returns(made)}


MARKS: Final = MovedMarks(
    moved=[
        MovedMark(group="__query.0", batch=4, topics=("orders",)),
        MovedMark(group="__query.1", batch=3, topics=("orders", "audit"), why_left="not copied"),
    ]
)
TOPIC: Final = ("--topics", "orders")
LIMIT: Final[dict[str, Any]] = {"bytes_per_second": 5000}
CUT: Final = ("--yes", "--reason", "x")
SKIP: Final = ("topic", "skip", FILE, "orders", "--partition", "0", "--offset", "4711")
RESET: Final = ("offsets", "reset", FILE, "--group", "shop")
CHECKPOINT: Final = ("offsets", "rewrite-checkpoint", FILE, "old", "new")
EXPORT: Final = ("export", FILE, "--topic", "A.orders", "--side", "target", "--output", "x.jsonl")
DONE, WOULD, REFUSED_LINE = LineOutcome.REBUILT, LineOutcome.WOULD_BE, LineOutcome.REFUSED

Case = tuple[Sequence[str], dict[str, Any]]
CASES: Final[dict[str, Case]] = {
    "translate-group": (("offsets", "translate", FILE, "--group", "shop"), TRANSLATION),
    "translate-one": (
        ("offsets", "translate", FILE, "--topic", "orders", "--offset", "42", "--reverse"),
        TRANSLATION,
    ),
    "translate-usage": (("offsets", "translate", FILE, "--group", "a", "--topic", "b"), {}),
    "reset": ((*RESET, "--to-timestamp", "1767225600000", "--yes"), resets(refused=False)),
    "reset-refused": ((*RESET, "--shift-by", "-10", "--yes"), resets(refused=True)),
    "reset-dry": ((*RESET, "--to-earliest", "--dry-run"), resets(refused=True)),
    "rebuild": (("offsets", "rebuild", FILE, "--yes"), rebuilt(DONE, LineOutcome.EMPTY)),
    "rebuild-dry": (("offsets", "rebuild", FILE, "--dry-run"), rebuilt(WOULD, REFUSED_LINE)),
    "rebuild-usage": (("offsets", "rebuild", FILE, "--topics", "("), {}),
    "checkpoint": (CHECKPOINT, checkpoint(MARKS)),
    "checkpoint-back": ((*CHECKPOINT, "--reverse"), checkpoint(MovedMarks(problem="no rights"))),
    "ready": (("groups", "ready", FILE), readiness(is_ready=True)),
    "ready-not": (("groups", "ready", FILE, "--group", "shop"), readiness(is_ready=False)),
    "ready-unknown": (("groups", "ready", FILE, "--group", "x"), readiness(is_ready=True)),
    "flow-pause": (("flow", "pause", FILE, "--reason", "x"), changes(IntentKind.PAUSE)),
    "flow-pause-dry": (("flow", "pause", FILE, "--dry-run"), changes(IntentKind.PAUSE)),
    "flow-resume": (("flow", "resume", FILE), changes(IntentKind.PAUSE, is_set=False)),
    "flow-limit": (
        ("flow", "limit", FILE, "--bytes-per-second", "5000"),
        changes(IntentKind.LIMIT, **LIMIT),
    ),
    "flow-limit-none": (
        ("flow", "limit", FILE, "--none"),
        changes(IntentKind.LIMIT, is_set=False),
    ),
    "flow-limit-usage": (("flow", "limit", FILE), {}),
    "flow-promote": (("flow", "promote", FILE, "--yes"), changes(IntentKind.PROMOTE)),
    "flow-promote-usage": (("flow", "promote", FILE), {}),
    "flow-demote": (("flow", "demote", FILE, "--yes"), changes(IntentKind.PROMOTE, is_set=False)),
    "unthrottle": (("flow", "unthrottle", FILE), quota(5_000_000)),
    "unthrottle-dry": (("flow", "unthrottle", FILE, "--dry-run"), quota(5_000_000)),
    "unthrottle-none": (("flow", "unthrottle", FILE, "--flow", "A->B"), quota(None)),
    "topic-pause": (("topic", "pause", FILE, *TOPIC), changes(IntentKind.PAUSE, "orders")),
    "topic-resume": (
        ("topic", "resume", FILE, *TOPIC),
        changes(IntentKind.RELEASE, "orders", is_set=False),
    ),
    "topic-release": (("topic", "release", FILE, *TOPIC), changes(IntentKind.RELEASE, "orders")),
    "topic-promote": (("topic", "promote", FILE, *TOPIC), changes(IntentKind.PROMOTE, "orders")),
    "topic-demote": (
        ("topic", "demote", FILE, *TOPIC),
        changes(IntentKind.PROMOTE, "orders", is_set=False),
    ),
    "topic-usage": (("topic", "pause", FILE, "--topics", ","), {}),
    "skip": (SKIP, skipping(is_skipped=False)),
    "skip-dry": ((*SKIP, "--dry-run", "--quarantine"), skipping(is_skipped=False, is_batch=True)),
    "skip-kept": ((*SKIP, "--quarantine"), skipping(is_skipped=False)),
    "skip-again": (SKIP, skipping(is_skipped=True)),
    "repair-plan": (("repair", "plan", FILE), repairs(is_found=True)),
    "repair-plan-stuck": (("repair", "plan", FILE, *TOPIC), repairs(is_found=True, is_stuck=True)),
    "repair-plan-none": (("repair", "plan", FILE), repairs(is_found=False)),
    "repair": (("repair", "run", FILE, "--yes"), repairs(is_found=True)),
    "repair-dry": (("repair", "run", FILE, "--dry-run"), repairs(is_found=True, is_stuck=True)),
    "repair-usage": (("repair", "run", FILE), {}),
    "switchover-plan": (("switchover", "plan", FILE), switchover(is_open=False)),
    "switchover-status": (("switchover", "status", FILE), switchover(is_open=True)),
    "switchover": (("switchover", "run", FILE, *CUT), switchover(is_open=True)),
    "switchover-dry": (("switchover", "run", FILE, "--dry-run"), switchover(is_open=False)),
    "switchover-usage": (("switchover", "run", FILE), {}),
    "switchover-abort": (("switchover", "abort", FILE), switchover(is_open=True)),
    "failover-plan": (("failover", "plan", FILE, *TOPIC), failover()),
    "failover-status": (("failover", "status", FILE), failover("by ann")),
    "failover": (("failover", "run", FILE, *CUT), failover()),
    "failover-dry": (("failover", "run", FILE, "--dry-run"), failover()),
    "failover-abort": (("failover", "abort", FILE), failover()),
    "failback-plan": (("failback", "plan", FILE), failback("by ann")),
    "failback-status": (("failback", "status", FILE), failback("")),
    "failback-dry": (
        ("failback", "run", FILE, "--tail", "keep", "--save", "x", "--dry-run"),
        failback("by ann"),
    ),
    "failback-usage": (("failback", "run", FILE, "--tail", "recreate", "--save", "x"), {}),
    "failback-abort": (("failback", "abort", FILE), failback("by ann")),
    "drill": (("drill", "run", FILE, "--yes"), drill(is_green=True)),
    "drill-red": (("drill", "run", FILE, "--yes"), drill(is_green=False)),
    "drill-dry": (("drill", "run", FILE, "--dry-run"), drill(is_green=True)),
    "drill-usage": (("drill", "run", FILE, "--yes", "--sign", "x"), {}),
    "clean": (("drill", "clean", FILE, "--yes"), left()),
    "clean-dry": (("drill", "clean", FILE, "--dry-run"), left("twinlog-drill-1")),
    "clean-running": (("drill", "clean", FILE, "--yes"), left("twinlog-drill-1")),
    "clean-nothing": (("drill", "clean", FILE, "--yes"), left(is_left=False)),
    "clean-failed": (("drill", "clean", FILE, "--yes"), left(is_clean=False)),
    "diff": (("diff", FILE), comparison(is_equal=False)),
    "diff-all": (("diff", FILE, "--all"), comparison(is_equal=True)),
    "doctor": (("doctor", FILE), observed(is_well=False)),
    "doctor-well": (("doctor", FILE, "--flow", "A -> B"), observed(is_well=True)),
    "verify": (("verify", FILE, "--no-record"), verified(is_equal=True)),
    "verify-differs": (("verify", FILE, "--no-record"), verified(is_equal=False, flows=2)),
    "verify-usage": (("verify", FILE, "--since", "soon"), {}),
    "topology": (("topology", FILE), topology(is_known=True)),
    "topology-none": (("topology", FILE, "--cluster", "A"), topology(is_known=False)),
    "topology-usage": (("topology", FILE, "--cluster", "C"), {}),
    "check": (("check", FILE), report(is_ready=True)),
    "check-not": (("check", FILE), report(is_ready=False)),
    "check-bad": (("check", "bad.properties"), {}),
    "check-explain": (("check", FILE, "--explain"), {}),
    "explain": (("explain", "GAP_WRITTEN", "NO_LEADER"), {}),
    "up": (("sandbox", "up"), sandbox(CLUSTER)),
    "sandbox-status": (("sandbox", "status"), sandbox()),
    "down": (("sandbox", "down"), sandbox(CLUSTER)),
    "down-none": (("sandbox", "down"), sandbox()),
    "export": (EXPORT, exported(is_whole=True)),
    "export-not-whole": (EXPORT, exported(is_whole=False)),
    "pack": (("pack",), packed()),
    "token-dry": (("token", "new", "tokens", "--name", "ann", "--dry-run"), {}),
    "status-none": (("status",), {}),
}
WITHOUT_FORMAT: Final = {"token-dry"}
TYPED: Final[dict[str, tuple[str, Case]]] = {
    "asked-promote": ("A:B", (("flow", "promote", FILE), changes(IntentKind.PROMOTE))),
    "asked-demote-no": (
        "y",
        (("flow", "demote", FILE, "--flow", "A:B"), changes(IntentKind.PROMOTE, is_set=False)),
    ),
    "asked-repair": ("A->B", (("repair", "run", FILE), repairs(is_found=True))),
    "asked-repair-no": ("A", (("repair", "run", FILE), repairs(is_found=True))),
    "asked-rebuild": ("y", (("offsets", "rebuild", FILE), rebuilt(DONE))),
    "asked-rebuild-no": ("n", (("offsets", "rebuild", FILE), rebuilt(DONE))),
    "asked-reset": ("B", ((*RESET, "--to-earliest"), resets(refused=False))),
    "asked-reset-no": ("A", ((*RESET, "--to-earliest"), resets(refused=False))),
    "asked-switchover": ("A -> B", (("switchover", "run", FILE), switchover(is_open=True))),
    "asked-switchover-no": ("", (("switchover", "run", FILE), switchover(is_open=True))),
    "asked-drill-no": ("", (("drill", "run", FILE), drill(is_green=True))),
    "asked-clean-no": ("", (("drill", "clean", FILE), left())),
}
"""Input at the terminal for commands that ask for confirmation, and the case, by name."""
CASES.update({name: case for name, (_, case) in TYPED.items()})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output_of(words: Sequence[str]) -> str:
    """Run a command. Return its exit code, its stdout, and its stderr with `!` before each line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    lines = [f"! {line}\n" for line in err.getvalue().splitlines()]
    return f"exit code {code}\n{out.getvalue()}{''.join(lines)}"


def answer_of(name: str) -> str:
    """Return all outputs of a case. The commands run in a folder with only a configuration file."""
    words, patched = CASES[name]
    modes = ((), ("-q",)) if name in WITHOUT_FORMAT else ((), ("-q",), ("--format", "json"))
    parts = []
    for mode in modes:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(contextlib.chdir(folder))
            stack.enter_context(
                patch.dict(os.environ, XDG_RUNTIME_DIR=folder, TWINLOG_SANDBOX=f"{folder}/s")
            )
            typed = Terminal(f"{TYPED[name][0]}\n") if name in TYPED else io.StringIO()
            stack.enter_context(patch.object(sys, "stdin", typed))
            Path(FILE).write_text("\n".join([*BASE, "no.such.key = 1"]))
            Path("bad.properties").write_text("\n".join([*BASE, "twinlog.leases = 5"]))
            Path("old").mkdir()
            for where, value in patched.items():
                stack.enter_context(patch(where, value))
            parts.append(f"$ twinlog {' '.join([*words, *mode])}\n{output_of([*words, *mode])}")
    return "".join(parts)


@pytest.mark.usefixtures("logs_as_before")
@pytest.mark.parametrize("name", CASES)
def test_every_byte(name: str) -> None:
    expected = (ANSWERS / f"{name}.txt").read_text()
    assert answer_of(name) == expected
    if name not in WITHOUT_FORMAT:
        code, *printed = expected.partition("--format json\n")[2].splitlines()
        assert code.startswith("exit code ")
        (line,) = [each for each in printed if not each.startswith("! ")]
        assert list(json.loads(line))[:4] == ["command", "version", "ok", "errors"]


def test_there_is_no_answer_without_a_case() -> None:
    assert {path.stem for path in ANSWERS.iterdir()} == {*CASES}


@pytest.mark.usefixtures("logs_as_before")
def test_yaml_has_the_content_of_json() -> None:
    words, _ = CASES["explain"]
    as_yaml = output_of([*words, "--format", "yaml"]).partition("\n")[2]
    as_json = output_of([*words, "--format", "json"]).partition("\n")[2]
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


if __name__ == "__main__":
    for case in CASES:
        (ANSWERS / f"{case}.txt").write_text(answer_of(case))
