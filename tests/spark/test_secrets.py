"""Passwords and keys do not appear in anything that Spark stores: properties, closures, the event
log and files.
"""

from __future__ import annotations

import functools
import os
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import psutil
import pytest

from tests.support.client import Outgoing, produce
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.sandbox_security import SandboxSecurity
from tests.support.spark_mirror import alias_of, arrived
from tests.support.topics import create_topic
from twinlog.channel.codec import MessageCodec
from twinlog.channel.frames import ChannelAddress
from twinlog.channel.server import ChannelServer
from twinlog.lane.messages import MESSAGES
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.spark.lease import run_lane_task

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("commands")]

USER = "reader"
PASSWORD = f"pw{uuid.uuid4().hex}"


@pytest.fixture
def source() -> Iterator[LocalCluster]:
    security = SandboxSecurity(
        listeners=("SASL_SSL",), mechanisms=("SCRAM-SHA-512",), users={USER: PASSWORD}
    )
    with LocalCluster("secret-source", jvm_flags=QUICK_JVM, security=security) as cluster:
        yield cluster


def environment_of(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), *process.environ().values()])
    except psutil.Error:
        return ""


def test_a_job_contains_the_drivers_address_and_no_secret() -> None:
    assert {one.name for one in fields(ChannelAddress)} == {"host", "port", "token", "fingerprint"}
    address = ChannelServer(MessageCodec(MESSAGES), lambda _: None).address
    assert address.token == ""  # each lane's own token is sent only with its own task
    task = functools.partial(run_lane_task, entry="m:f", lease=1, address=address)
    assert len(pickle.dumps(task)) < 400


@pytest.mark.witness("Spark stores no password")
def test_nothing_that_spark_keeps_has_a_password(
    source: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(source, fresh_topic)
    produce(source, fresh_topic, [Outgoing(value=b"x")] * 20)
    there = alias_of(fresh_topic)
    lines = [
        f"clusters = A, {there}",
        f"{there}.bootstrap.servers = {target_cluster.bootstrap}",
        f"A->{there}.enabled = true",
        f"A->{there}.topics = {fresh_topic}",
        "replication.factor = 1",
        "emit.heartbeats.enabled = false",
        "heartbeats.replication.enabled = false",
    ]
    properties = source.client_properties("SASL_SSL", USER, mechanism="SCRAM-SHA-512", stores="PEM")
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"A.{key} = {escaped}")
    assert any(PASSWORD in line for line in lines)
    file = tmp_path / "mm2.properties"
    file.write_text("\n".join(lines) + "\n")
    scratch, events = tmp_path / "scratch", tmp_path / "events"
    for folder in (scratch, events):
        folder.mkdir()
    log = {
        "enabled": "true",
        "dir": events.as_uri(),
        "compress": "false",
        "rolling.enabled": "false",
    }
    options = " ".join(f"-Dspark.eventLog.{key}={value}" for key, value in log.items())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    monkeypatch.setenv("TMPDIR", str(scratch))
    with Command(tmp_path / "run", "mirror", str(file), "--listen", "off") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 20)
        below = mirror.children()
        seen = " ".join(environment_of(process) for process in below)
        kept = [path for path in scratch.rglob("*") if path.is_file()]
        guilty = [path for path in kept if PASSWORD.encode() in path.read_bytes()]
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    assert len(below) >= 3, "a JVM, a daemon, a worker"
    assert "spark.eventLog" in seen
    assert PASSWORD not in seen
    assert guilty == []
    (told,) = [path for path in events.rglob("*") if path.is_file() and path.suffix != ".crc"]
    text = told.read_text()
    assert "spark.app.name" in text
    assert "SparkListenerJobEnd" in text
    assert PASSWORD not in text
    assert "sasl.jaas.config" not in text
    assert PASSWORD not in mirror.stdout + mirror.stderr
    assert PASSWORD not in " ".join(os.environ.values())
