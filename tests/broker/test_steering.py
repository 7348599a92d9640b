"""Operators pause, resume, limit and release flows on the command line, on real brokers."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.settings import settings_for
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    end_offsets,
    topic_configs,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cli.terminal.status import rows
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, read_to_end
from twinlog.codes import FlowState, PartitionState
from twinlog.config.load import load
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wishes import apply_intents
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.web.api.endpoints import changes_to_wanted
from twinlog.control.web.api.inputs import WantedState
from twinlog.errors import Disconnected
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.generations import winning_claims
from twinlog.mirror.state.intents import Intent, IntentKind
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.discovery import Discovery

pytestmark = [pytest.mark.broker]


class Flow:
    """A flow with the two topics `orders` and `audit`, and commands that an operator runs."""

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path, mark: str) -> None:
        self.source, self.target = source, target
        self.alias = f"s{mark}"
        self.orders, self.audit = f"orders-{mark}", f"audit-{mark}"
        self.file = folder / "mm2.properties"
        self.file.write_text(
            f"clusters = {self.alias}, t\n"
            f"{self.alias}.bootstrap.servers = {source.bootstrap}\n"
            f"t.bootstrap.servers = {target.bootstrap}\n"
            f"{self.alias}->t.enabled = true\n"
            f"topics = {self.orders}, {self.audit}, later-{mark}\n"
            "replication.factor = 1\nsync.topic.configs.interval.seconds = 1\n"
            "refresh.topics.interval.seconds = 1\n"
        )
        for topic in (self.orders, self.audit):
            create_topic(source, topic)

    @property
    def name(self) -> str:
        return f"{self.alias}->t"

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def put(self, topic: str, first: int, count: int, size: int = 0) -> None:
        values = (b"%d" % n + b"." * size for n in range(first, first + count))
        produce(self.source, topic, [Outgoing(value=value) for value in values])

    def copied(self, topic: str) -> int:
        remote = self.remote(topic)
        return sum(end_offsets(self.target, remote).values()) if self.has(remote) else 0

    def has(self, remote: str) -> bool:
        return remote in topic_names(self.target)

    def numbers(self, topic: str) -> list[int]:
        found = read_all(self.target, self.remote(topic))
        return [int((one.value or b"").rstrip(b".")) for one in found]

    def do(self, *words: str) -> int:
        command, verb, *rest = words
        return run([command, verb, str(self.file), *rest])


@pytest.fixture
def flow(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Flow:
    mark = f"{time.time_ns():x}"[-8:]
    return Flow(source_cluster, target_cluster, tmp_path, mark)


def state(mirror: Mirror) -> FlowSnapshot:
    (found,) = mirror.snapshots
    return found


def is_paused(mirror: Mirror) -> bool:
    found = state(mirror)
    return found.state is FlowState.PAUSED and found.lanes == 0


def of(topic: str, parts: list[PartitionSnapshot]) -> PartitionSnapshot:
    return next(part for part in parts if part.topic == topic)


@pytest.mark.witness("a paused flow resumes at the next record")
def test_paused_flow_copies_nothing_and_resumes_at_the_next_record(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    flow.put(flow.orders, 0, 100)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == 100)
        assert flow.do("flow", "pause", "--reason", "brokers\x1b[31m are upgraded") == 0
        assert f"{flow.name}: paused" in capsys.readouterr().out
        eventually(lambda: is_paused(mirror), what="its lanes ended")
        assert "brokers" in state(mirror).reason
        assert {part.state for part in state(mirror).partitions} == {PartitionState.PAUSED}
        mirror.stop()
    flow.put(flow.orders, 100, 50)
    with Mirror(flow.file) as mirror:  # a restarted mirror is still paused
        eventually(lambda: bool(mirror.snapshots) and is_paused(mirror))
        assert {part.state for part in state(mirror).partitions} == {PartitionState.PAUSED}
        assert flow.do("flow", "resume", "--dry-run") == 0
        assert "would be resumed" in capsys.readouterr().out
        looks = counted_looks(mirror)
        eventually(lambda: len(looks) > 3, what="the driver has looked several times")
        assert flow.copied(flow.orders) == 100
        assert flow.do("flow", "resume") == 0
        eventually(lambda: flow.copied(flow.orders) == 150)
        mirror.eventually(lambda parts: of(flow.orders, parts).state is PartitionState.AT_END)
        assert state(mirror).state is FlowState.RUNNING
        mirror.stop()
    assert flow.numbers(flow.orders) == list(range(150))


@pytest.mark.alone  # the test measures time
def test_a_leader_in_another_process_follows_within_two_seconds(flow: Flow) -> None:
    """A leader in another process applies commands within two seconds, measured from the start of
    the command. Each command begins directly after the leader's last poll, which is the worst case.
    """
    flow.put(flow.orders, 0, 100)
    took_s = []
    with Driver(flow.file) as leader:
        leader.until(FlowState.RUNNING)
        for verb, state in [("pause", FlowState.PAUSED), ("resume", FlowState.RUNNING)] * 5:
            began = time.monotonic()
            assert flow.do("flow", verb) == 0
            leader.until(state)
            if state is FlowState.PAUSED:  # no lane is left that could fetch
                eventually(lambda: not leader.state.lanes)
            took_s.append(time.monotonic() - began)
    print("followed within", *(f"{one:.2f}" for one in took_s), "s")  # noqa: T201 (it measures)
    assert max(took_s) < 2


def test_the_possible_loss_grows_while_a_flow_is_paused(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a flow is paused, nothing is copied but the source's log ends are still queried. So the
    reported possible loss grows until it exceeds `twinlog.rpo.seconds`.
    """
    with flow.file.open("a") as file:
        file.write("twinlog.rpo.seconds = 2\n")
    flow.put(flow.orders, 0, 100)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == 100)
        eventually(lambda: loss(mirror) == (0, 0), what="nothing waits")
        assert flow.do("flow", "pause") == 0
        eventually(lambda: is_paused(mirror))
        flow.put(flow.orders, 100, 30)
        eventually(lambda: loss(mirror) == (30, 0))
        assert of(flow.orders, [*state(mirror).partitions]).lag == 30
        eventually(lambda: "RPO_EXCEEDED" in state(mirror).reason)
        late = state(mirror)
        assert late.state is FlowState.PAUSED
        assert late.loss_ms is not None
        assert late.loss_ms > 2000
        assert "it is paused [RPO_EXCEEDED]" in late.reason
        assert flow.do("flow", "resume") == 0
        eventually(lambda: loss(mirror) == (0, 0))
        eventually(lambda: state(mirror).state is FlowState.RUNNING)
        assert "RPO" not in state(mirror).reason
        mirror.stop()
    assert run(["status", str(flow.file)]) == 0
    assert "without the source, nothing that it had" in capsys.readouterr().out


def test_records_that_retention_will_delete_uncopied_are_reported_in_time(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BEHIND_FOR_S", "BEHIND_EVERY_S"):
        monkeypatch.setattr(f"twinlog.control.risk.source_watch.{name}", 1)
    hour_ms = 3_600_000
    alter_topic_configs(flow.source, flow.orders, {"retention.ms": str(hour_ms)})
    old_ms = int(time.time() * 1000) - hour_ms * 9 // 10
    produce(flow.source, flow.orders, [Outgoing(value=b"0", timestamp=old_ms)])
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == 1)
        assert flow.do("topic", "pause", "--topics", flow.orders) == 0
        mirror.eventually(lambda parts: of(flow.orders, parts).state is PartitionState.PAUSED)
        flow.put(flow.orders, 1, 10)
        eventually(lambda: "RETENTION_NEAR" in state(mirror).reason)
        assert state(mirror).state is FlowState.DEGRADED
        near = of(flow.orders, [*state(mirror).partitions])
        assert near.left_ms is not None
        assert 0 < near.left_ms <= hour_ms // 10
        assert near.needs_ms in (0, None), "nothing is copied"
        assert flow.do("topic", "resume", "--topics", flow.orders) == 0
        eventually(lambda: state(mirror).state is FlowState.RUNNING)
        mirror.stop()


def test_a_mirror_that_starts_paused_reports_records_that_retention_will_delete(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror starts while the flow is paused, so no lane reports the partition's position. The
    position is derived from the offset map and both logs, and the records that retention will
    delete are reported.
    """
    for name in ("source_watch.BEHIND_FOR_S", "source_watch.BEHIND_EVERY_S", "idle.FIRST_S"):
        monkeypatch.setattr(f"twinlog.control.risk.{name}", 1)
    hour_ms = 3_600_000
    alter_topic_configs(flow.source, flow.orders, {"retention.ms": str(hour_ms)})
    old_ms = int(time.time() * 1000) - hour_ms * 9 // 10
    flow.put(flow.audit, 0, 5)
    flow.put(flow.orders, 0, 5)
    with Mirror(flow.file) as mirror:
        eventually(lambda: (flow.copied(flow.orders), flow.copied(flow.audit)) == (5, 5))
        mirror.stop()
    assert flow.do("flow", "pause") == 0
    produce(flow.source, flow.orders, [Outgoing(value=b"old", timestamp=old_ms)])
    flow.put(flow.orders, 6, 10)
    with Mirror(flow.file) as mirror:
        mirror.eventually(lambda parts: of(flow.orders, parts).is_near_deletion)
        assert "RETENTION_NEAR" in state(mirror).reason
        near = of(flow.orders, [*state(mirror).partitions])
        assert near.left_ms is not None
        assert 0 < near.left_ms <= hour_ms // 10
        assert of(flow.audit, [*state(mirror).partitions]).left_ms is None, "nothing waits there"
        assert flow.copied(flow.orders) == 5
        assert flow.do("flow", "resume") == 0
        eventually(lambda: state(mirror).state is FlowState.RUNNING)
        eventually(lambda: flow.copied(flow.orders) == 16)
        mirror.stop()


def loss(mirror: Mirror) -> tuple[int | None, int]:
    """Return the number of records that would be lost, and the number of partitions for which it is
    unknown.
    """
    found = state(mirror)
    return found.loss_records, found.loss_unknown


def counted_looks(mirror: Mirror) -> list[float]:
    """Return a list with one entry for each of the driver's attempts to read intents, including
    failed ones.
    """
    (managed,) = mirror.supervisor.flows
    assert managed.generation is not None
    steering = managed.generation.steering
    read, looks = steering.read, list[float]()

    def counting() -> Any:
        try:
            return read()
        finally:
            looks.append(time.monotonic())

    steering.read = counting
    return looks


def test_paused_topic_waits_and_the_others_continue(flow: Flow) -> None:
    flow.put(flow.orders, 0, 10)
    flow.put(flow.audit, 0, 10)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == flow.copied(flow.audit) == 10)
        assert flow.do("topic", "pause", "--topics", "audit-.*", "--reason", "repair") == 0
        mirror.eventually(lambda parts: of(flow.audit, parts).state is PartitionState.PAUSED)
        flow.put(flow.audit, 10, 10)
        for number in range(10, 20):
            flow.put(flow.orders, number, 1)
            eventually(lambda: flow.copied(flow.orders) == number + 1)  # noqa: B023
        assert flow.copied(flow.audit) == 10
        assert of(flow.audit, [*state(mirror).partitions]).message.startswith("paused by ")
        assert state(mirror).state is FlowState.RUNNING
        shown = rows(state(mirror))
        assert [one.trouble[:10] for one in shown if one.topic == flow.audit] == ["paused by "]
        assert flow.do("topic", "resume", "--topics", flow.audit) == 0
        eventually(lambda: flow.copied(flow.audit) == 20)
        mirror.stop()
    assert flow.numbers(flow.audit) == list(range(20))
    assert flow.numbers(flow.orders) == list(range(20))


def test_killed_lanes_of_a_paused_flow_are_not_replaced(flow: Flow) -> None:
    flow.put(flow.orders, 0, 500, size=1000)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) > 0)
        assert flow.do("flow", "pause") == 0
        for pid in mirror.leases.pids():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: is_paused(mirror))
        copied = flow.copied(flow.orders)
        looks = counted_looks(mirror)
        eventually(lambda: len(looks) > 3)
        assert flow.copied(flow.orders) == copied
        assert flow.do("flow", "resume") == 0
        eventually(lambda: flow.copied(flow.orders) == 500)
        mirror.stop()
    assert flow.numbers(flow.orders) == list(range(500))


def test_limit_that_comes_goes_and_changes_under_a_running_mirror(flow: Flow) -> None:
    flow.put(flow.orders, 0, 1)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == 1)
        assert flow.do("flow", "limit", "--bytes-per-second", "20000") == 0
        (managed,) = mirror.supervisor.flows
        assert managed.run is not None
        run_ = managed.run
        eventually(
            lambda: run_.pacer is not None and run_.current is not None and run_.work.has_budget
        )
        first = run_.current
        eventually(lambda: run_.current is not first, what="lanes that wait for a budget")
        eventually(lambda: run_.current is not None and run_.current.work.has_budget)
        flow.put(flow.orders, 1, 400, size=5000)  # 2 MB take 100 s with this limit
        eventually(lambda: state(mirror).state is FlowState.THROTTLED)
        assert flow.copied(flow.orders) < 400
        assert flow.do("flow", "limit", "--none") == 0
        eventually(lambda: flow.copied(flow.orders) == 401)
        eventually(lambda: run_.pacer is None)
        mirror.stop()
    assert flow.numbers(flow.orders) == list(range(401))


def pause_row(flow: Flow, topic: str = "") -> Intent:
    """Return an intent that pauses the flow, or one of its topics."""
    return Intent(
        bytes_per_second=None,
        reason="",
        flow=flow.name,
        kind=IntentKind.PAUSE,
        topic=topic,
        is_set=True,
        who="?",
        at_ms=0,
    )


def test_intent_that_cannot_be_read_stops_nothing_and_begins_nothing(flow: Flow) -> None:
    later = flow.orders.replace("orders", "later")
    with Mirror(flow.file) as mirror:
        flow.put(flow.orders, 0, 1)
        eventually(lambda: flow.copied(flow.orders) == 1)
        row = pause_row(flow)
        key, _ = row.encode()
        write(flow.target, key, b'{"v":1}')
        eventually(lambda: "STATE_CORRUPT" in state(mirror).reason)
        assert state(mirror).state is FlowState.DEGRADED
        create_topic(flow.source, later)
        flow.put(later, 0, 5)
        mirror.eventually(lambda parts: any(part.topic == later for part in parts))
        flow.put(flow.orders, 1, 9)
        eventually(lambda: flow.copied(flow.orders) == 10)
        looks = counted_looks(mirror)
        eventually(lambda: len(looks) > 3)
        assert flow.copied(later) == 0
        key = structs.replace(row, topic=later, is_set=True).encode()[0]
        write(flow.target, key, b'{"v":1}')
        assert flow.do("flow", "resume") == 0, "the newest row of a key counts"
        assert flow.do("topic", "resume", "--topics", later) == 0
        eventually(lambda: flow.copied(later) == 5)
        eventually(lambda: state(mirror).state is FlowState.RUNNING)
        mirror.stop()


def test_wanted_state_replaces_a_pause_that_cannot_be_read(flow: Flow) -> None:
    """A request for the whole wanted state of a flow also names released topics."""
    with Mirror(flow.file) as mirror:
        flow.put(flow.orders, 0, 1)
        eventually(lambda: flow.copied(flow.orders) == 1)
        row = pause_row(flow, topic=flow.audit)
        write(flow.target, row.encode()[0], b'{"v":1}')
        eventually(lambda: "STATE_CORRUPT" in state(mirror).reason)
        wanted = WantedState.model_validate(
            {
                "paused": False,
                "bytesPerSecond": None,
                "pausedTopics": [],
                "releasedTopics": [flow.orders],
            }
        )
        apply_intents(
            load(flow.file, environment={}).flows,
            lambda steering: changes_to_wanted(steering, wanted),
            reason="",
            dry_run=False,
        )
        mirror.eventually(lambda parts: of(flow.orders, parts).state is PartitionState.RELEASED)
        eventually(lambda: state(mirror).state is FlowState.RUNNING)
        mirror.stop()


def write(cluster: LocalCluster, key: bytes, value: bytes) -> None:
    now_ms = int(time.time() * 1000)
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        append_rows(client, TopicPartition(STATE_TOPIC, 0), [(key, value)], now_ms)


def test_released_topic_is_left_unchanged_whatever_restarts(flow: Flow) -> None:
    flow.put(flow.orders, 0, 10)
    flow.put(flow.audit, 0, 10)
    remote = flow.remote(flow.audit)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == flow.copied(flow.audit) == 10)
        assert flow.do("topic", "release", "--topics", flow.audit) == 0
        mirror.eventually(lambda parts: of(flow.audit, parts).state is PartitionState.RELEASED)
        mirror.stop()
    flow.put(flow.audit, 10, 10)
    # the released topic's new owner writes to it
    produce(flow.target, remote, [Outgoing(value=b"1000")])
    alter_topic_configs(flow.source, flow.audit, {"retention.ms": "7777000"})
    alter_topic_configs(flow.source, flow.orders, {"retention.ms": "7777000"})
    with Mirror(flow.file) as mirror:
        eventually(
            lambda: (
                topic_configs(flow.target, flow.remote(flow.orders)).get("retention.ms")
                == "7777000"
            ),
            what="configs of the others are synced",
        )
        flow.put(flow.orders, 10, 10)
        eventually(lambda: flow.copied(flow.orders) == 20)
        assert not any(part.topic == flow.audit for part in state(mirror).partitions)
        mirror.stop()
    assert flow.numbers(flow.audit) == [*range(10), 1000]
    assert topic_configs(flow.target, remote).get("retention.ms") != "7777000"


def test_released_topic_that_other_clients_wrote_to_is_not_appended_to(flow: Flow) -> None:
    flow.put(flow.orders, 0, 10)
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.copied(flow.orders) == 10)
        assert flow.do("topic", "release", "--topics", flow.orders) == 0
        mirror.eventually(lambda parts: of(flow.orders, parts).state is PartitionState.RELEASED)
        produce(flow.target, flow.remote(flow.orders), [Outgoing(value=b"1000")])
        flow.put(flow.orders, 10, 10)
        assert flow.do("topic", "resume", "--topics", flow.orders) == 0
        mirror.eventually(lambda parts: of(flow.orders, parts).state is PartitionState.FAILED)
        mirror.stop()
    assert flow.numbers(flow.orders) == [*range(10), 1000]


def test_resume_is_followed_though_the_first_look_for_topics_fails(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers are being upgraded, so the first discoveries fail. Periodic discovery is disabled. A
    resume must still be applied, because failed discoveries are retried.
    """
    lines = flow.file.read_text().replace("refresh.topics.interval.seconds = 1\n", "")
    flow.file.write_text(f"{lines}refresh.topics.enabled = false\n")
    monkeypatch.setattr("twinlog.control.flow.generation.AFTER_FAILURE_S", 1.0)
    looks = list[int]()
    discover = FlowSetup.discover

    def failing(setup: FlowSetup) -> Discovery:
        looks.append(len(looks))
        if len(looks) < 3:
            raise Disconnected("the source is being upgraded")
        return discover(setup)

    monkeypatch.setattr(FlowSetup, "discover", failing)
    assert flow.do("flow", "pause") == 0
    flow.put(flow.orders, 0, 10)
    with Mirror(flow.file) as mirror:
        eventually(lambda: bool(mirror.snapshots) and is_paused(mirror))
        assert not flow.has(flow.remote(flow.orders)), "a paused flow makes no topics"
        assert flow.do("flow", "resume") == 0
        eventually(lambda: flow.copied(flow.orders) == 10)
        mirror.stop()
    assert len(looks) == 3


def test_once_of_a_paused_flow_reports_it(flow: Flow) -> None:
    assert flow.do("flow", "pause") == 0
    with Mirror(flow.file, once=True) as mirror:
        (ended,) = mirror.wait()
    with ClusterClient(settings_for(flow.target.bootstrap)) as client:
        rows = [(row.key, row.value) for row in read_to_end(client, STATE_TOPIC, 0)]
    assert flow.name not in winning_claims(rows), "it claims nothing"
    assert (ended.state, ended.code) == (FlowState.FAILED, "PAUSED")
    assert "twinlog flow resume" in ended.reason


def test_commands_report_unneeded_and_invalid_requests(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str, code: int = 0) -> str:
        assert flow.do(*words) == code
        found = capsys.readouterr()
        assert found.err.count("\n") == (1 if code else 0), found.err
        return found.err if code else found.out

    assert f"{flow.name}: is not paused" in said("flow", "resume")
    assert "would be paused" in said("flow", "pause", "--dry-run")
    assert f"{flow.name}: is not paused" in said("flow", "resume"), "nothing was written"
    first = said("flow", "pause", "--reason", "night")
    # no process leads the flow, so the output must not name a leader
    assert "a running mirror applies it within 2 s, others at their start" in first
    assert f"`twinlog status {flow.file}`" in first
    again = said("flow", "pause")
    assert "paused already, by " in again
    assert "night" in again
    assert "applies" not in again
    status = said("topic", "pause", "--topics", ".*", "--format", "json")
    changes = json.loads(status)["changes"]
    assert [one["topic"] for one in changes] == sorted([flow.audit, flow.orders])
    assert all(one["is_needed"] and one["before"] is None for one in changes)
    again = said("topic", "resume", "--topics", ".*", "--dry-run", "--format", "yaml")
    assert [one["topic"] for one in yaml.safe_load(again)["changes"]] == sorted(
        [flow.audit, flow.orders]
    )
    assert said("topic", "resume", "--topics", ".*", "--dry-run", "-q") == ""
    assert "no flow mirrors" in said("topic", "pause", "--topics", "nothing-.*", code=2)
    assert "is paused or released" in said("topic", "resume", "--topics", "nothing-.*", code=2)
    assert "--topics" in said("topic", "pause", "--topics", "(", code=2)
    assert "is not a flow of the file" in said("flow", "pause", "--flow", "x->y", code=2)
    assert "either" in said("flow", "limit", code=2)
    assert "limited to 20.0 KB/s" in said("flow", "limit", "--bytes-per-second", "20000")
    assert "limited only by its configuration" in said("flow", "limit", "--none")
    offline = said_by_status(flow, capsys)
    assert offline["state"] == "NOT_RUNNING"
    assert "paused by" in offline["reason"]


def said_by_status(flow: Flow, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["status", str(flow.file), "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["mirrors"]
    (found,) = one["flows"]
    assert isinstance(found, dict)
    return found
