"""The status of a flow on another host, which reads the row that the leader writes to the
target.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.client import Outgoing, eventually, produce
from tests.support.mirror import EmittingMirror
from tests.support.mirror_process import Driver
from tests.support.rest import Rest, StreamReader, rest_of
from tests.support.settings import settings_for
from tests.support.snapshots import DIVERGED, HAPPENED, PUBLISHED
from tests.support.topics import apply_topic_configs, create_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, read_to_end
from twinlog.cluster.topics.topic_admin import ensure_mm2_topic
from twinlog.codes import FlowState, PartitionState
from twinlog.config.load import load
from twinlog.control.check.offline_status import offline_status
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.mirror.names.naming import STATE_TOPIC, STATUS_TOPIC
from twinlog.mirror.state.generations import winning_claims
from twinlog.mirror.state.published import PublishedStatus, Row, failed_set_up, published_status
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


class Flow:
    """A flow that runs on this host. Its status is read as on another host, without this host's
    files.
    """

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path) -> None:
        mark = f"{time.time_ns():x}"[-8:]
        self.source, self.target = source, target
        self.topic, self.name = f"orders-{mark}", f"s{mark}->t"
        self.file = folder / "mm2.properties"
        self.file.write_text(
            f"clusters = s{mark}, t\n"
            f"s{mark}.bootstrap.servers = {source.bootstrap}\n"
            f"t.bootstrap.servers = {target.bootstrap}\n"
            f"{self.name}.enabled = true\n"
            f"topics = {self.topic}\nreplication.factor = 1\n"
            "emit.heartbeats.enabled = false\nemit.offset-syncs.enabled = false\n"
            "heartbeats.replication.enabled = false\n"
            "twinlog.status.interval.seconds = 1\n"
        )
        create_topic(source, self.topic, 2)

    def seen(self) -> FlowSnapshot:
        (found,) = offline_status(load(self.file, environment={}))
        return found

    def newest(self) -> PublishedStatus:
        with ClusterClient(settings_for(self.target.bootstrap)) as client:
            rows = read_to_end(client, STATUS_TOPIC, 0)
            found = published_status(self.name, [(row.key, row.value) for row in rows])
        assert found is not None
        return found

    def is_said_to_fail(self) -> bool:
        with ClusterClient(settings_for(self.target.bootstrap)) as client:
            rows = read_to_end(client, STATUS_TOPIC, 0)
            return failed_set_up(self.name, [(row.key, row.value) for row in rows]) is not None

    def write(self, status: PublishedStatus) -> None:
        self.append(status.encode())

    def append(self, row: Row) -> None:
        with ClusterClient(settings_for(self.target.bootstrap)) as client:
            ensure_mm2_topic(client, STATUS_TOPIC, 1)
            home = TopicPartition(STATUS_TOPIC, 0)
            append_rows(client, home, [row], int(time.time() * 1000))


@pytest.fixture
def flow(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Flow:
    return Flow(source_cluster, target_cluster, tmp_path)


def test_other_hosts_see_the_flow_its_pause_and_its_end(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(flow.source, flow.topic, [Outgoing(value=b"x", partition=n % 2) for n in range(10)])
    with EmittingMirror(flow.file) as mirror:
        eventually(lambda: flow.seen().state is FlowState.RUNNING)
        eventually(lambda: (flow.seen().loss_records, flow.seen().loss_unknown) == (0, 0))
        found = flow.seen()
        assert found.where.startswith(f"{socket.gethostname()} (process ")
        assert found.since_ms == mirror.snapshots[0].since_ms
        assert [(p.state, p.lag, p.records) for p in found.partitions] == [
            (PartitionState.AT_END, 0, 5)
        ] * 2
        assert run(["flow", "pause", str(flow.file), "--reason", "brokers are upgraded"]) == 0
        eventually(lambda: {p.state for p in flow.seen().partitions} == {PartitionState.PAUSED})
        assert flow.seen().state is FlowState.PAUSED
        produce(flow.source, flow.topic, [Outgoing(value=b"y", partition=0)])
        eventually(lambda: flow.seen().loss_records == 1, what="it is told on during the pause")
        found = flow.seen()
        assert "brokers are upgraded" in found.reason
        assert {(p.state, p.lag) for p in found.partitions} == {
            (PartitionState.PAUSED, 1),
            (PartitionState.PAUSED, 0),
        }
        capsys.readouterr()
        assert run(["status", str(flow.file)]) == 0
        text = capsys.readouterr().out
        assert f"  on {found.where}, reported " in text
        assert "  PAUSED  since" in text
        mirror.stop()
    assert flow.seen().state is FlowState.NOT_RUNNING, "it has ended in order"


@pytest.mark.witness("the status of another host comes from the current leader")
def test_only_recent_rows_of_the_present_leader_count(flow: Flow) -> None:
    with EmittingMirror(flow.file) as mirror:
        eventually(lambda: flow.seen().state is FlowState.RUNNING)
        row = flow.newest()
        mirror.stop()
    assert flow.seen().state is FlowState.NOT_RUNNING, "it has ended"
    now_ms = int(time.time() * 1000)
    assert row.generation is not None
    flow.write(structs.replace(row, at_ms=now_ms, generation=row.generation - 1))
    assert flow.seen().state is FlowState.NOT_RUNNING, "as one that had lost its lead"
    flow.write(structs.replace(row, at_ms=now_ms))
    assert flow.seen().state is FlowState.RUNNING, "as one that was killed a moment ago"
    flow.write(structs.replace(row, at_ms=now_ms, state="FLYING"))
    assert flow.seen().state is FlowState.RUNNING
    flow.write(structs.replace(row, generation=row.generation + 1, at_ms=now_ms - row.lives_ms - 1))
    assert flow.seen().state is FlowState.NOT_RUNNING


def test_mirror_that_was_killed_is_not_well_though_nothing_waits(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(flow.source, flow.topic, [Outgoing(value=b"x", partition=n % 2) for n in range(10)])
    status = ["status", str(flow.file)]
    with Driver(flow.file, emits=True) as driver:
        eventually(
            lambda: {(p.state, p.records) for p in flow.seen().partitions} == {("AT_END", 5)}
        )
        assert run(status) == 0
        driver.kill()
        eventually(lambda: flow.seen().state is FlowState.NOT_RUNNING)
    assert [part.lag for part in flow.seen().partitions] == [0, 0]
    capsys.readouterr()
    assert run(status) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert f"(process {driver.pid}), which ended without reporting its end" in text
    assert run([*status, "--format", "json"]) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "PROCESS_GONE"


def seen_elsewhere(rest: Rest, code: str) -> dict[str, Any]:
    """Return the only event of a topic that has this code."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        events = rest.get("/api/v1/events")["events"]
        found[:] = [one for one in events if one["code"] == code and one["topic"]]
        return bool(found)

    eventually(there, what=f"an event of {code}")
    (event,) = found
    return event


@pytest.mark.witness("a stream of events includes events from other processes of the flow")
def test_a_stream_has_events_that_another_process_wrote(flow: Flow) -> None:
    """The REST stream of one process contains events that another process wrote to the target. Each
    event appears once. A client that reconnects gets only the events after the last one that it has
    received.
    """
    told = structs.replace(HAPPENED, flow=flow.name)
    newer = structs.replace(DIVERGED, number=8, message="again")
    with rest_of(load(flow.file, environment={}), flow.file, Monitor()) as standby:
        reader = StreamReader(standby)
        eventually(lambda: "flows" in reader.kinds())
        flow.append(told.encode())
        eventually(reader.events, what="an event of another process")
        flow.append(structs.replace(told, events=(DIVERGED, newer)).encode())
        eventually(lambda: len(reader.events()) == 2)
        first, second = reader.events()
        assert (first["flow"], first["topic"], first["partition"]) == (flow.name, "orders", 3)
        assert (first["code"], first["message"]) == ("DIVERGED", DIVERGED.message)
        assert first["who"] == "east-1 (process 77)"
        assert second["message"] == "again"
        again = StreamReader(standby, last=str(first["number"]))
        eventually(again.events)
        assert again.events() == [second]
        for one in (reader, again):
            one.close()


@pytest.mark.long
def test_another_process_shows_the_flows_events_with_their_author(flow: Flow) -> None:
    with flow.file.open("a") as file:
        file.write("sync.topic.configs.enabled = false\n")
    remote = f"{flow.name.partition('-')[0]}.{flow.topic}"
    produce(flow.source, flow.topic, [Outgoing(value=b"x", partition=n) for n in (0, 1)])
    config = load(flow.file, environment={})
    with (
        Driver(flow.file, emits=True) as driver,
        rest_of(config, flow.file, Monitor()) as standby,
    ):
        eventually(lambda: driver.state.records == 2)
        reader = StreamReader(standby)
        apply_topic_configs(flow.target, remote, {"max.message.bytes": "1000"})
        produce(flow.source, flow.topic, [Outgoing(value=os.urandom(5000), partition=1)])
        event = seen_elsewhere(standby, "RECORD_TOO_LARGE")
        assert event["who"] == f"{socket.gethostname()} (process {driver.pid})"
        assert (event["flow"], event["topic"], event["partition"]) == (flow.name, flow.topic, 1)
        eventually(lambda: event in reader.events(), what="the same event on a stream")
        reader.close()
        topic = ["topic", "pause", str(flow.file), "--topics", flow.topic]
        assert run(topic) == 0

        def pauses() -> list[str]:
            events = standby.get("/api/v1/events")["events"]
            return [one["person"] for one in events if one["person"] and one["topic"] == flow.topic]

        eventually(pauses, what="the pause, with who wanted it")
        assert len(pauses()) == 1


def test_flow_that_is_slowed_by_its_limit_has_no_problem(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    with flow.file.open("a") as file:
        file.write("twinlog.max.bytes.per.second = 20000\n")
    produce(flow.source, flow.topic, [Outgoing(value=b"x" * 5000) for _ in range(400)])
    with EmittingMirror(flow.file) as mirror:
        eventually(lambda: flow.seen().state is FlowState.THROTTLED)
        assert run(["status", str(flow.file)]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "the flow is throttled by its limit of 20.0 KB/s" in text
        mirror.stop()


def test_takeover_that_ended_in_order_is_no_kill(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader was killed, and its successor was shut down cleanly. The generation is not closed,
    because late requests of the killed process may arrive. The status must still report a clean
    shutdown.
    """
    with monkeypatch.context() as patched:
        patched.setattr(FlowClaims, "end", lambda *_: None)
        with EmittingMirror(flow.file) as killed:
            eventually(lambda: flow.seen().state is FlowState.RUNNING)
            killed.stop()
    with EmittingMirror(flow.file) as heir:
        eventually(lambda: flow.seen().state is FlowState.RUNNING)
        eventually(lambda: flow.seen().generation == 1)
        heir.stop()
    with ClusterClient(settings_for(flow.target.bootstrap)) as client:
        rows = read_to_end(client, STATE_TOPIC, 0)
        history = winning_claims((row.key, row.value) for row in rows)[flow.name]
    assert not history.is_closed
    found = flow.seen()
    assert (found.state, found.generation) == (FlowState.NOT_RUNNING, 1)
    where = f"{socket.gethostname()} (process {os.getpid()})"
    assert found.reason == f"it last ran on {where} and was shut down cleanly"


def test_an_unreadable_row_is_reported_with_the_state_of_the_clusters(flow: Flow) -> None:
    flow.write(
        structs.replace(PUBLISHED, flow=flow.name, at_ms=int(time.time() * 1000), state="FLYING")
    )
    found = flow.seen()
    assert found.state is FlowState.NOT_RUNNING
    assert "cannot be read" in found.reason


def test_other_hosts_see_why_a_flow_cannot_be_set_up(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    text = flow.file.read_text()
    bad = text.replace("replication.factor = 1", "replication.factor = 2")
    flow.file.write_text(bad)  # refused, because the target has only one broker
    config = load(flow.file, environment={})
    with (
        EmittingMirror(flow.file) as mirror,
        rest_of(config, flow.file, Monitor()) as standby,
    ):
        eventually(lambda: flow.seen().where)
        found, (own,) = flow.seen(), mirror.snapshots
        assert own.state in (FlowState.FAILED, FlowState.DEGRADED)
        assert (found.state, found.code, found.reason) == (own.state, own.code, own.reason)
        capsys.readouterr()
        assert run(["status", str(flow.file)]) == 1
        told = capsys.readouterr().out
        assert f"  on {socket.gethostname()} (process {os.getpid()}), reported " in told
        eventually(lambda: standby.get("/api/v1/flows")["flows"][0]["reportedBy"] == found.where)
        (answer,) = standby.get("/api/v1/flows")["flows"]
        assert (answer["state"], answer["code"]) == (own.state, own.code)
        mirror.stop()
    eventually(lambda: not flow.is_said_to_fail(), what="what it says last")
    with EmittingMirror(flow.file) as mirror:
        eventually(flow.is_said_to_fail)
        flow.file.write_text(text)
        mirror.reload()
        eventually(lambda: flow.seen().state is FlowState.RUNNING, what="its leader is shown")
        mirror.stop()
    assert flow.seen().state is FlowState.NOT_RUNNING, "it has ended in order"
