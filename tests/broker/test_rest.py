"""REST of two processes. Both respond for a flow that one of them leads, and both can steer it."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.mirror import EmittingMirror
from tests.support.rest import DOCUMENT, Rest, rest_of
from tests.support.topics import create_topic, delete_records
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

AT_END = [(0, "AT_END", 0, 5), (1, "AT_END", 0, 5)]


def flow_of(rest: Rest) -> Any:
    (flow,) = rest.get("/api/v1/flows")["flows"]
    return flow


def states(rest: Rest, path: str) -> list[tuple[int, str, int | None, int | None]]:
    found = rest.get(f"{path}/partitions")["partitions"]
    return [(one["partition"], one["state"], one["lag"], one["nextOffset"]) for one in found]


def kinds(rest: Rest) -> set[tuple[str, str | None]]:
    return {(one["intent"], one["topic"]) for one in flow_of(rest)["wanted"]}


def steer_as_connect(leader: Rest, other: Rest, mark: str, topic: str) -> None:
    """Steer the flow through Kafka Connect's paths, as a script for MirrorMaker 2 does."""
    connector = f"/s{mark}/t/connectors/MirrorSourceConnector"
    eventually(lambda: other.get(f"{connector}/status")["connector"]["state"] == "PAUSED")
    wanted = [
        {
            "partition": {"cluster": f"s{mark}", "partition": number, "topic": topic},
            "offset": {"offset": 4},
        }
        for number in (0, 1)
    ]
    eventually(lambda: other.get(f"{connector}/offsets")["offsets"] == wanted)
    assert other.ask(f"{connector}/resume", "PUT").status == 202
    eventually(lambda: flow_of(leader)["state"] == "RUNNING")


def limit_and_pause_topics(leader: Rest, other: Rest, path: str, topic: str) -> None:
    limited = other.post(f"{path}/limit", bytesPerSecond=50_000_000)
    assert limited["changes"][0]["bytesPerSecond"] == 50_000_000
    other.post(f"{path}/topics/pause", topics=["orders-.*"], reason="a consumer is repaired")
    eventually(lambda: {one[1] for one in states(leader, path)} == {"PAUSED"})
    eventually(lambda: kinds(other) == {("limit", None), ("pause", topic)})
    nothing = other.ask(f"{path}/topics/pause", "POST", {"topics": ["nothing-like-this"]})
    assert (nothing.status, nothing.json["code"]) == (400, "USAGE")
    other.post(f"{path}/topics/resume", topics=[topic])
    eventually(lambda: states(leader, path) == AT_END)
    declare_a_state(leader, other, path, topic)


def declare_a_state(leader: Rest, other: Rest, path: str, topic: str) -> None:
    """Set the wanted state with one request. Check that repeating the request changes nothing."""
    state: dict[str, Any] = {"paused": False, "bytesPerSecond": 40_000_000, "releasedTopics": []}

    def put(paused_topics: list[str], **more: object) -> set[tuple[str, str | None, bool]]:
        found = other.put(f"{path}/wanted", **state, pausedTopics=paused_topics, **more)
        needed = (one for one in found["changes"] if one["isNeeded"])
        return {(one["intent"], one["topic"], one["isSet"]) for one in needed}

    wanted = {("limit", None, True), ("pause", topic, True)}
    assert put([topic], dryRun=True) == put([topic]) == wanted
    assert put([topic]) == set()
    eventually(lambda: other.get(f"{path}/wanted") == state | {"pausedTopics": [topic]})
    eventually(lambda: {one[1] for one in states(leader, path)} == {"PAUSED"})
    eventually(lambda: kinds(other) == {("limit", None), ("pause", topic)})
    body = state | {"pausedTopics": ["orders-.*"]}
    nothing = other.ask(f"{path}/wanted", "PUT", body)
    assert (nothing.status, nothing.json["code"]) == (400, "USAGE"), "a name, and no pattern"
    state["bytesPerSecond"] = None
    assert put([]) == {("limit", None, False), ("pause", topic, False)}
    eventually(lambda: kinds(other) == set())
    eventually(lambda: states(leader, path) == AT_END)


def use_a_generated_client(leader: Rest, other: Rest, flow: str, topic: str, folder: Path) -> None:
    """Generate a client from the OpenAPI document with openapi-python-client. Read and steer a flow
    with it.
    """
    settings = folder / "client.yaml"
    settings.write_text("post_hooks: []\n")  # no post hooks, which would format the client's source
    command = f"generate --path {DOCUMENT} --config {settings} --output-path {folder / 'client'}"
    subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command.split(), "--fail-on-warning"],
        check=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "client")
        client = import_module("twinlog_client").Client(base_url=f"http://{other.address}")
        models = import_module("twinlog_client.models")

        def call(operation: str, *of: str, **more: object) -> Any:
            module = import_module(f"twinlog_client.api.default.{operation}")
            return module.sync(*of, client=client, **more)

        (found,) = call("get_flows").flows
        assert (found.flow, found.state, found.loss.records) == (flow, models.FlowState.RUNNING, 0)
        page = call("get_flow_partitions", flow, of_topic=topic, limit=1)
        assert [(one.topic, one.partition) for one in page.partitions] == [(topic, 0)]
        assert page.next_ is not None
        before = call("get_flow_wanted", flow)
        paused = models.WantedState.from_dict(before.to_dict() | {"pausedTopics": [topic]})
        changes = call("put_flow_wanted", flow, body=paused).changes
        (change,) = (one for one in changes if one.is_needed)
        assert (change.topic, change.is_set) == (topic, True)
        path = f"/api/v1/flows/{flow.replace('->', ':')}"
        eventually(lambda: {one[1] for one in states(leader, path)} == {"PAUSED"})
        changes = call("put_flow_wanted", flow, body=before).changes
        (change,) = (one for one in changes if one.is_needed)
        assert (change.topic, change.is_set) == (topic, False)
        eventually(lambda: states(leader, path) == AT_END)
        problem = call("get_flow", "no:flow")
        assert (type(problem), problem.code) == (models.Problem, "NOT_FOUND")


def logs_of_second(rest: Rest, path: str, topic: str, remote: str) -> Any:
    """Check both logs of two partitions, of which the second has lost 2 of 5 copied records on the
    source. Return the lane of the second partition.
    """
    first, found = rest.get(f"{path}/logs?topic={topic}&partitions=0,1")["partitions"]
    assert (first["partition"], first["source"]["problem"]) == (0, "")
    assert found["nextOffset"] == 5
    for side, name, start in (("source", topic, 2), ("target", remote, 0)):
        log = found[side]
        assert (log["topic"], log["problem"]) == (name, "")
        assert (log["start"], log["lastStable"], log["end"]) == (start, 5, 5)
        assert log["replicas"] == log["inSync"] == [log["leader"]]
    return found["lane"]


@pytest.mark.witness("any process responds to REST requests for any flow")
def test_any_process_answers_for_the_flow_and_steers_it(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mark = f"{time.time_ns():x}"[-8:]
    topic, name = f"orders-{mark}", f"s{mark}->t"
    path = f"/api/v1/flows/s{mark}-%3Et"
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = s{mark}, t\n"
        f"s{mark}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"t.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{name}.enabled = true\ntopics = {topic}\nreplication.factor = 1\n"
        "emit.heartbeats.enabled = false\nemit.offset-syncs.enabled = false\n"
        "heartbeats.replication.enabled = false\ntwinlog.status.interval.seconds = 1\n"
        "twinlog.rpo.seconds = 3600\ntwinlog.verify = full\n"
    )
    create_topic(source_cluster, topic, 2)
    produce(source_cluster, topic, [Outgoing(value=b"x", partition=one % 2) for one in range(10)])
    config, here, there = load(file, environment={}), Monitor(), Monitor()
    with (
        rest_of(config, file, here) as leader,
        rest_of(config, file, there) as other,
        EmittingMirror(file, on_snapshot=here.update) as mirror,
    ):
        eventually(lambda: states(leader, path) == AT_END)
        # the other process leads no flow: it reads the leader's row, and queries both clusters
        eventually(lambda: flow_of(other)["state"] == "RUNNING")
        # the leader's row was written after the last record
        eventually(lambda: flow_of(other)["records"] == 10)
        eventually(lambda: flow_of(other)["loss"]["records"] == 0)
        told, led = flow_of(other), flow_of(leader)
        assert (led["reportedBy"], "(process " in told["reportedBy"]) == ("here", True)
        assert told["sinceMs"] == led["sinceMs"]
        assert (told["records"], told["partitions"], told["problem"]) == (10, 2, "")
        eventually(
            lambda: (flow_of(other)["lag"], flow_of(other)["lagUnknownPartitions"]) == (0, 0)
        )
        assert told["loss"]["objectiveMs"] == 3_600_000
        for rest in (leader, other):
            eventually(lambda rest=rest: flow_of(rest)["verified"]["records"] == 10)  # type: ignore[misc]
        eventually(lambda: states(other, path) == AT_END)
        # a dry run writes nothing, and repeated requests to pause write one intent
        reason = "brokers are upgraded"
        dry = other.post(f"{path}/pause", reason=reason, dryRun=True)
        assert [(one["isNeeded"], one["isSet"]) for one in dry["changes"]] == [(True, True)]
        assert flow_of(other)["wanted"] == []
        assert other.post(f"{path}/pause", reason=reason)["changes"][0]["isNeeded"]
        eventually(lambda: len(flow_of(other)["wanted"]) == 1)
        (wanted,) = flow_of(other)["wanted"]
        assert (wanted["intent"], wanted["topic"], wanted["reason"]) == ("pause", None, reason)
        assert wanted["who"].startswith("local (REST)@")
        for rest in (leader, other):
            eventually(lambda rest=rest: flow_of(rest)["state"] == "PAUSED")  # type: ignore[misc]
            assert reason in flow_of(rest)["reason"]
        capsys.readouterr()
        assert run(["flow", "pause", str(file), "--dry-run"]) == 0
        assert "paused already, by local (REST)@" in capsys.readouterr().out
        steer_as_connect(leader, other, mark, topic)
        limit_and_pause_topics(leader, other, path, topic)
        use_a_generated_client(leader, other, name, topic, tmp_path)
        # this response is read from both clusters
        delete_records(source_cluster, topic, 1, 2)
        has, knows_not = (
            logs_of_second(rest, path, topic, f"s{mark}.{topic}") for rest in (leader, other)
        )
        assert (has in (0, 1), knows_not) == (True, None), "its own process knows its lane"
        nothing = other.ask(f"{path}/logs?topic={topic}&partitions=1,2")
        assert nothing.status == 404
        assert f"{topic}-2" in nothing.body.decode()
        diff = other.get(f"{path}/diff?topics={topic}")
        assert (diff["flow"], diff["isEqual"]) == (name, True)
        assert other.get(f"{path}/groups")["flow"] == name
        assert other.get(f"{path}/doctor")["flow"] == name
        mirror.stop()
        eventually(lambda: flow_of(other)["state"] == "NOT_RUNNING", what="it ended in order")
