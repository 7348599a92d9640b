"""Settings without effect are printed by `check` and logged by `mirror`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twinlog.cli.main import run
from twinlog.errors import TwinlogError

pytestmark = pytest.mark.usefixtures("logs_as_before")

PROPERTIES = {
    "metric.reporters": "com.example.Reporter",
    "B.producer.metric.reporters": "com.example.Reporter",
    "A->B.transforms.mask.type": "com.example.Mask",
    "A->B.topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "3",
    "listeners.https.ssl.keystore.location": "/k",
    "producer.interceptor.classes": "com.example.X",
}
RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: m}
spec:
  connectCluster: B
  clusters:
    - {alias: A, bootstrapServers: "127.0.0.1:1"}
    - {alias: B, bootstrapServers: "127.0.0.1:1"}
  mirrors:
    - sourceCluster: A
      targetCluster: B
      sourceConnector: {}
      checkpointConnector: {tasksMax: 8}
"""
TASKS = "spec.mirrors[0].checkpointConnector.tasksMax"


@pytest.fixture(params=["properties", "resource"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str]]:
    """A configuration file, and the keys of its lines that have no effect."""
    if request.param == "resource":
        file = tmp_path / "mirror.yaml"
        file.write_text(RESOURCE)
        return file, [TASKS]
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\n"
        "B.bootstrap.servers = 127.0.0.1:1\nA->B.enabled = true\n"
        + "".join(f"{key} = {value}\n" for key, value in PROPERTIES.items())
    )
    return file, list(PROPERTIES)


def test_check_prints_a_line_of_each(
    case: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, keys = case
    assert run(["check", str(file)]) == 1
    out = "".join(capsys.readouterr().out.split())
    assert out.count("[DEAD_KEY]") == len(keys)
    assert run(["check", str(file), "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)["warnings"]
    assert [key for key in keys if not any(f": {key}: " in one for one in told)] == []


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_of_a_mirror_has_a_line_of_each(
    case: tuple[Path, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log_format: str,
) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise TwinlogError("started")

    monkeypatch.setattr("twinlog.control.process.run.run_mirror", started)
    file, keys = case
    to_file = tmp_path / "twinlog.log"
    words = ["mirror", str(file), "--listen", "off", "--log-file", str(to_file)]
    assert run([*words, "--log-format", log_format]) == 1
    lines = [one for one in to_file.read_text().splitlines() if "DEAD_KEY" in one]
    assert [line for line in capsys.readouterr().err.splitlines() if line in lines] == lines
    for key in keys:
        (line,) = [line for line in lines if f": {key}: " in line]
        assert "WARNING" in line
        assert log_format == "text" or json.loads(line)["code"] == "DEAD_KEY"
