"""The paths of Kafka Connect's REST interface, as scripts for MirrorMaker 2 use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.rest import Rest, rest_of
from tests.support.snapshots import flow, partition
from twinlog.client import steering
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import leaders

SOURCE = "/A/B/connectors/MirrorSourceConnector"


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor()
    parts = [replace(partition("orders", number), upstream=number * 5) for number in range(3)]
    monitor.update([flow(*parts)])
    return monitor


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "AB")
    path.write_text(f"clusters = A, B\n{servers}A->B.enabled = true\ntopics = orders.*\n")
    return path


@pytest.fixture
def rest(monitor: Monitor, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    monkeypatch.setattr(steering, "GIVES_UP_S", 0.5)
    monkeypatch.setattr(leaders, "WAITED_S", 0.05)
    with rest_of(load(file, environment={}), file, monitor) as rest:
        yield rest


def test_names_at_the_root_have_their_flow_in_front(rest: Rest) -> None:
    kinds = ["MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"]
    assert rest.get("/A/B/connectors") == kinds
    assert rest.get("/connectors") == [f"A->B.{kind}" for kind in kinds]
    assert rest.get("/B/A/connectors") == []


def test_flows_that_clusters_leaves_to_others_are_connectors_too(
    monitor: Monitor, file: Path
) -> None:
    text = file.read_text().replace("clusters = A, B", "clusters = A, B, C")
    file.write_text(f"{text}C.bootstrap.servers = 127.0.0.1:1\nA->C.enabled = true\n")
    with rest_of(load(file, ["C"], environment={}), file, monitor) as rest:
        assert len(rest.get("/connectors")) == 6
        assert rest.get(f"{SOURCE}/status")["connector"]["state"] == "RUNNING"


@pytest.mark.parametrize(
    "path",
    [SOURCE, "/connectors/A-%3EB.MirrorSourceConnector", "/connectors/MirrorSourceConnector"],
)
def test_a_connector(rest: Rest, path: str) -> None:
    name = path.rpartition("/")[2].replace("%3E", ">")
    found = rest.get(path)
    assert (found["name"], found["type"]) == (name, "source")
    assert found["tasks"] == [{"connector": name, "task": 0}, {"connector": name, "task": 1}]
    config = found["config"]
    assert config == rest.get(f"{path}/config")
    assert config["connector.class"] == "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    assert (config["source.cluster.alias"], config["topics"]) == ("A", "orders.*")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", "RUNNING"),
        ("DEGRADED", "RUNNING"),
        ("PAUSED", "PAUSED"),
        ("FENCED", "STOPPED"),
        ("FAILED", "FAILED"),
        ("STANDBY", "UNASSIGNED"),
    ],
)
def test_states_in_the_words_of_connect(
    rest: Rest, monitor: Monitor, state: str, expected: str
) -> None:
    monitor.update([flow(state=state, reason="because")])
    found = rest.get(f"{SOURCE}/status")
    assert found["connector"]["state"] == expected
    assert found["connector"]["worker_id"]
    assert [one["id"] for one in found["tasks"]] == [0, 1]
    assert ("trace" in found["connector"]) is (state == "FAILED")
    listed = rest.get("/connectors?expand=status&expand=info")["A->B.MirrorSourceConnector"]
    assert listed["status"]["connector"]["state"] == expected
    assert listed["info"]["type"] == "source"


def test_a_stopped_partition_is_a_failed_task(rest: Rest, monitor: Monitor) -> None:
    """A stopped partition is shown as a failed task. As in Kafka Connect, the connector keeps
    running, and alarms watch the tasks.
    """
    monitor.update([flow(state="PARTLY_FAILED", reason="1 partition has stopped")])
    found = rest.get(f"{SOURCE}/status")
    assert found["connector"]["state"] == "RUNNING"
    assert [one["state"] for one in found["tasks"]] == ["FAILED", "RUNNING"]
    assert found["tasks"][0]["trace"] == "1 partition has stopped"


def test_offsets_are_those_of_the_last_record_as_in_connect(rest: Rest) -> None:
    assert rest.get(f"{SOURCE}/offsets")["offsets"] == [
        {
            "partition": {"cluster": "A", "partition": number, "topic": "orders"},
            "offset": {"offset": number * 5 - 1},
        }
        for number in (1, 2)
    ]
    assert rest.get("/A/B/connectors/MirrorHeartbeatConnector/offsets") == {"offsets": []}


@pytest.mark.parametrize(
    ("path", "method", "status", "said"),
    [
        ("/connectors/none", "GET", 404, "Connector none not found"),
        ("/A/C/connectors/MirrorSourceConnector/status", "GET", 404, "not found"),
        ("/A/B/connectors/MirrorHeartbeatConnector/pause", "PUT", 409, "[CONNECTOR_OF_A_FLOW]"),
        (f"{SOURCE}/pause", "PUT", 503, "[UNREACHABLE]"),
        (f"{SOURCE}/stop", "PUT", 503, "[UNREACHABLE]"),
        (f"{SOURCE}/resume", "PUT", 503, "[UNREACHABLE]"),
    ],
)
def test_errors_are_in_the_format_of_connect(
    rest: Rest, path: str, method: str, status: int, said: str
) -> None:
    answer = rest.ask(path, method)
    assert (answer.status, answer.json["error_code"]) == (status, status)
    assert said in answer.json["message"]
