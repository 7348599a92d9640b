"""Output and findings of `check` on real clusters. `check` changes nothing on them."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.sandbox_security import SandboxSecurity
from tests.support.topics import (
    allow,
    alter_topic_configs,
    create_topic,
    partition_count,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.check.report import CheckReport, Plan
from twinlog.mirror.names.naming import PROBE_TOPIC
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = pytest.mark.broker

NOVEMBER_MS = 1_793_491_200_000


class Checked:
    """A configuration file with one flow, to which tests add lines."""

    def __init__(self, folder: Path, source: str, target: str) -> None:
        # unique aliases, so that internal topics of other tests on the same clusters do not matter
        self.source, self.target = f"a{uuid.uuid4().hex[:8]}", f"b{uuid.uuid4().hex[:8]}"
        self.flow = f"{self.source}->{self.target}"
        self.path = folder / "mm2.properties"
        self._lines = [
            f"clusters = {self.source}, {self.target}",
            f"{self.source}.bootstrap.servers = {source}",
            f"{self.target}.bootstrap.servers = {target}",
            f"{self.flow}.enabled = true",
            "replication.factor = 1",
        ]

    def write(self, *lines: str) -> Path:
        self.path.write_text("\n".join([*self._lines, *lines]) + "\n")
        return self.path

    def report(self, *lines: str, gives_up_s: float = 10.0, probe: bool = False) -> CheckReport:
        config = load(self.write(*lines), environment={})
        return check(config, gives_up_s=gives_up_s, with_probe=probe)


@pytest.fixture
def checked(tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster) -> Checked:
    return Checked(tmp_path, source_cluster.bootstrap, target_cluster.bootstrap)


def codes(report: CheckReport) -> list[str]:
    return [problem.code for problem in report.problems]


@pytest.mark.witness("check prints what would be created, and creates nothing")
def test_shows_the_topics_to_create_and_creates_none(
    checked: Checked, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic, 3, configs={"retention.ms": "77000"})
    report = checked.report(f"topics = {fresh_topic}")
    assert codes(report) == []
    (flow,) = report.flows
    (topic,) = flow.topics
    assert (topic.topic, topic.partitions, topic.plan) == (fresh_topic, 3, Plan.CREATE)
    assert topic.remote_topic == f"{checked.source}.{fresh_topic}"
    assert topic.configs["retention.ms"] == "77000"
    assert flow.memory is not None
    assert 1 <= flow.memory.lanes <= 3
    assert flow.memory.lane_bytes == 160 << 20
    assert [name for name in topic_names(target_cluster) if checked.source in name] == []


def test_shows_where_each_topic_would_begin(
    checked: Checked,
    source_cluster: LocalCluster,
    fresh_topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in "abc":
        create_topic(source_cluster, f"{fresh_topic}-{name}", 2)
        produce(
            source_cluster,
            f"{fresh_topic}-{name}",
            [Outgoing(value=b"x", partition=0, timestamp=NOVEMBER_MS + n) for n in range(9)],
        )
    lines = (
        f"topics = {fresh_topic}-.*",
        f"twinlog.start = .*-a:{NOVEMBER_MS + 5}, .*-b:0=4;1=1, latest",
    )
    report = checked.report(*lines)
    found = {topic.topic[-1]: topic for topic in report.flows[0].topics}
    assert found["a"].begins == {0: 5, 1: 0}
    assert found["a"].start == "2026-11-01T00:00:00.005Z (0=5;1=0)"
    assert (found["b"].begins, found["b"].start) == ({0: 4, 1: 1}, "0=4;1=1")
    assert (found["c"].begins, found["c"].start) == ({0: 9, 1: 0}, "latest")
    assert codes(report) == ["START_BEYOND_END"], "partition 1 of b is empty"
    assert f"{fresh_topic}-b-1: twinlog.start begins at offset 1" in str(report.problems[0])
    assert run(["check", str(checked.write(*lines))]) == 1
    assert "begins at" in capsys.readouterr().out


def test_shows_which_copies_resume_at_their_position(
    checked: Checked, source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    lines = (f"topics = {fresh_topic}", "twinlog.state.topic.replication.factor = 1")
    with Mirror(checked.write(*lines), once=True) as mirror:
        mirror.wait()
    (topic,) = checked.report(*lines, "twinlog.start = latest").flows[0].topics
    assert (topic.start, topic.begins) == ("at the copied position", {})


def test_shows_which_topics_would_get_partitions(
    checked: Checked, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic, 3)
    remote = create_topic(target_cluster, f"{checked.source}.{fresh_topic}", 2)
    (topic,) = checked.report(f"topics = {fresh_topic}").flows[0].topics
    assert (topic.plan, topic.remote_partitions) == (Plan.GROW, 2)
    assert partition_count(target_cluster, remote) == 2


def test_shows_topics_that_differ_and_must_not_get_partitions(
    checked: Checked, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    for name, here, there in (("less", 2, 1), ("more", 1, 2), ("same", 1, 1)):
        create_topic(source_cluster, f"{fresh_topic}-{name}", here)
        create_topic(target_cluster, f"{checked.source}.{fresh_topic}-{name}", there)
    report = checked.report(f"topics = {fresh_topic}-.*", "twinlog.target.partitions = same")
    assert [(one.code, one.topic) for one in report.flows[0].problems] == [
        ("PARTITIONS_DIFFER", f"{fresh_topic}-less"),
        ("PARTITIONS_DIFFER", f"{fresh_topic}-more"),
    ]
    assert {one.plan for one in report.flows[0].topics} == {Plan.EXISTS}


def test_a_topic_that_is_not_there_is_a_note(checked: Checked) -> None:
    (flow,) = checked.report("topics = not-there-yet").flows
    assert "topic not-there-yet does not exist" in flow.notes[0]


def test_foreign_data_in_a_prefixed_topic(
    checked: Checked, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    remote = create_topic(target_cluster, f"{checked.source}.{fresh_topic}", 2)
    produce(target_cluster, remote, [Outgoing(value=b"mine", partition=1)])
    (problem,) = checked.report(f"topics = {fresh_topic}").problems
    assert problem.code == "FOREIGN_DATA"
    assert f"{remote}-1: the topic already holds records [0, 1)" in problem.message


def test_a_topic_to_which_clients_have_moved_is_not_reported_as_changed(
    checked: Checked, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    keys = (
        f"topics = {fresh_topic}",
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "twinlog.state.topic.replication.factor = 1",
        # only the end of the process writes a status row with TAKEN_OVER, because the interval is
        # longer than the test
        "twinlog.status.interval.seconds = 600",
        "emit.heartbeats.enabled = false",
    )
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"ours")] * 5)
    with EmittingMirror(checked.write(*keys), lanes=1) as mirror:
        mirror.eventually(
            lambda parts: [p.state for p in parts if p.topic == fresh_topic] == ["AT_END"]
        )
        produce(target_cluster, fresh_topic, [Outgoing(value=b"app")] * 5)
        mirror.eventually(
            lambda parts: [p.state for p in parts if p.topic == fresh_topic] == ["TAKEN_OVER"]
        )
        mirror.stop()
    alter_topic_configs(source_cluster, fresh_topic, {"retention.ms": "77000"})
    (flow,) = checked.report(*keys).flows
    assert not [line for line in flow.changes if fresh_topic in line]
    assert (
        f"{checked.flow}: configs and ACLs of {fresh_topic} are not changed: it had the code "
        "TAKEN_OVER when the flow last ran"
    ) in flow.notes


def test_a_replication_factor_above_the_live_brokers(
    checked: Checked, source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    report = checked.report(f"topics = {fresh_topic}", f"{checked.flow}.replication.factor = 3")
    (problem,) = report.problems
    assert problem.code == "REPLICATION_FACTOR"
    assert "is alive, so 1 topic cannot be created" in problem.message
    assert "but only 1 broker of" in problem.message


def test_a_name_that_is_too_long_is_a_problem_and_does_not_stretch_the_table(
    checked: Checked,
    source_cluster: LocalCluster,
    fresh_topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = fresh_topic + "x" * (249 - len(fresh_topic))
    create_topic(source_cluster, long)
    create_topic(source_cluster, fresh_topic)
    topics = f"topics = {fresh_topic}.*"
    (problem,) = checked.report(topics).problems
    assert (problem.code, problem.topic) == ("NAME_TOO_LONG", long)
    assert f"a name of {len(checked.source) + 1 + 249} characters" in problem.message
    assert run(["check", str(checked.write(topics))]) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if "would be created" in line]
    assert len(rows) == 2
    assert max(map(len, rows)) < 250


def test_the_identity_policy_on_one_cluster(
    tmp_path: Path, source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    checked = Checked(tmp_path, source_cluster.bootstrap, source_cluster.bootstrap)
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    report = checked.report(f"topics = {fresh_topic}", f"replication.policy.class = {policy}")
    assert codes(report) == ["SAME_CLUSTER"]


def test_clusters_that_cannot_be_reached_are_waited_for_together_and_not_in_silence(
    tmp_path: Path,
) -> None:
    here = ("127.0.0.1", 0)
    with socket.create_server(here) as one, socket.create_server(here) as two:
        source, target = (each.getsockname()[1] for each in (one, two))
        checked = Checked(tmp_path, f"127.0.0.1:{source}", f"127.0.0.1:{target}")
        config, said = load(checked.write(), environment={}), list[str]()
        report = check(config, gives_up_s=5.0, say=said.append)
    assert said == [
        f"no response yet from cluster {checked.source} at 127.0.0.1:{source}; giving up after 5 s",
        f"no response yet from cluster {checked.target} at 127.0.0.1:{target}; giving up after 5 s",
    ]
    assert codes(report) == ["UNREACHABLE", "UNREACHABLE"]
    assert str(source) in report.problems[0].message
    assert "not checked" in report.flows[0].notes[0]


@pytest.mark.witness("check probes the target's features")
def test_the_probe_states_the_guarantee_and_keeps_one_topic(
    checked: Checked, target_cluster: LocalCluster
) -> None:
    before = topic_names(target_cluster)
    for _ in range(2):
        (flow,) = checked.report("topics = none", probe=True).flows
        assert flow.guarantee == "exact"
    # mirrors of other tests may create their own topics at the same time
    new = topic_names(target_cluster) - before
    assert {name for name in new if "probe" in name} <= {PROBE_TOPIC}


def test_the_command_prints_and_answers_by_its_exit_code(
    checked: Checked,
    source_cluster: LocalCluster,
    fresh_topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create_topic(source_cluster, fresh_topic, 3)
    file = checked.write(f"topics = {fresh_topic}", "frobnicate = 1")
    assert run(["check", str(file)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("READY: 1 warning\n")
    assert "no problem" not in text, "below a warning"
    (warning,) = [line for line in text.splitlines() if line.startswith("warning")]
    assert warning.split(maxsplit=3)[2:] == [
        "frobnicate",
        "unknown key, nothing reads it [UNKNOWN_KEY]",
    ]
    assert text.index("would be created") < text.index("warning  ")
    assert "bootstrap.servers" not in text, "keys are explained by --explain alone"
    assert f"{checked.flow}: 1 topic with 3 partitions" in text
    assert "would be created" in text
    assert text.endswith("3 differences from MirrorMaker 2, and every key: --explain\n")
    checked.write(f"topics = {fresh_topic}")
    assert run(["check", str(file)]) == 0
    assert capsys.readouterr().out.startswith("READY\n")
    assert run(["check", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["version"], found["ok"]) == ("check", 1, True)
    checked.write(f"topics = {fresh_topic}", f"{checked.flow}.replication.factor = 3")
    assert run(["check", str(file)]) == 1
    assert "[REPLICATION_FACTOR]" in capsys.readouterr().out
    assert run(["check", str(file), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert {error["code"] for error in found["errors"]} == {"REPLICATION_FACTOR"}


# -- rights --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    """A cluster that denies every operation without an ACL. It is the source and the target."""
    security = SandboxSecurity(
        listeners=("SASL_PLAINTEXT",),
        mechanisms=("PLAIN",),
        users={"reader": "reader-secret", "writer": "writer-secret", "nobody": "nobody-secret"},
        authorizer=True,
    )
    with LocalCluster("guarded", jvm_flags=QUICK_JVM, security=security) as cluster:
        yield cluster


def login(alias: str, cluster: LocalCluster, user: str) -> list[str]:
    """Return the configuration lines with which an alias authenticates as this user."""
    assert isinstance(cluster.security, SandboxSecurity)
    properties = cluster.security.client_properties("SASL_PLAINTEXT", user)
    return [f"{alias}.{key} = {value}" for key, value in properties.items()]


def test_a_source_topic_without_read(
    tmp_path: Path, guarded: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    readable = create_topic(guarded, f"{fresh_topic}-readable")
    described = create_topic(guarded, f"{fresh_topic}-described")
    allow(guarded, "reader", ["read", "describe_configs"], topic=readable)
    allow(guarded, "reader", ["describe", "describe_configs"], topic=described)
    checked = Checked(tmp_path, guarded.bootstrap, target_cluster.bootstrap)
    user = login(checked.source, guarded, "reader")
    (problem,) = checked.report(f"topics = {fresh_topic}.*", *user).problems
    assert (problem.code, problem.topic) == ("TOPIC_UNAUTHORIZED", described)
    assert f"grant READ on topic {described}" in problem.message


def test_a_target_without_create(
    tmp_path: Path, source_cluster: LocalCluster, guarded: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    checked = Checked(tmp_path, source_cluster.bootstrap, guarded.bootstrap)
    user = login(checked.target, guarded, "nobody")
    report = checked.report(f"topics = {fresh_topic}", *user)
    assert set(codes(report)) == {"TOPIC_UNAUTHORIZED", "GROUP_UNAUTHORIZED"}
    remote = f"{checked.source}.{fresh_topic}"
    assert f"grant CREATE on topic {remote}" in report.problems[0].message
    assert any("mm2-twinlog-state.internal" in problem.message for problem in report.problems)
    assert f"grant READ on group twinlog-{checked.flow}" in report.problems[-1].message


def test_a_target_without_write(
    tmp_path: Path, source_cluster: LocalCluster, guarded: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    checked = Checked(tmp_path, source_cluster.bootstrap, guarded.bootstrap)
    remote = create_topic(guarded, f"{checked.source}.{fresh_topic}")
    allow(guarded, "writer", ["read"], topic=remote)
    allow(guarded, "writer", ["all"], topic="mm2-twinlog", prefixed=True)
    allow(guarded, "writer", ["read"], group="twinlog-", prefixed=True)
    user = login(checked.target, guarded, "writer")
    report = checked.report(f"topics = {fresh_topic}", *user)
    assert [problem.message for problem in report.problems] == [
        f"cluster {checked.target}: Twinlog's user may not WRITE topic {remote}: "
        f"grant WRITE on topic {remote}"
    ]
    assert "twinlog.target.producer.id.expiration.ms" in report.flows[0].notes[-1]


def test_a_wrong_password(
    tmp_path: Path, guarded: LocalCluster, target_cluster: LocalCluster
) -> None:
    checked = Checked(tmp_path, guarded.bootstrap, target_cluster.bootstrap)
    lines = [
        line.replace("reader-secret", "mistaken-7f3")
        for line in login(checked.source, guarded, "reader")
    ]
    report = checked.report(*lines)
    assert codes(report) == ["AUTHENTICATION_FAILED"]
    assert "mistaken-7f3" not in str(report.problems[0])
