"""The archive for support contains information about a secured mirror, and no secret."""

from __future__ import annotations

import json
import logging
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce
from tests.support.mirror import Mirror
from tests.support.sandbox_security import SandboxSecurity
from tests.support.topics import create_topic
from twinlog import __version__
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.control.support_bundle import HIDDEN, SecretScrubber, settings_of
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.status_file import StatusFile
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("support-bundle")]

READER, WRITER = "reader", "writer"
PASSWORDS = {READER: "read-pass%1", WRITER: "wr1te-pass"}
FROM_FILE = "only-in-a-file-of-its-own"


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    security = SandboxSecurity(
        listeners=("SASL_SSL", "SSL"), users=dict(PASSWORDS), client_certificates=True
    )
    with LocalCluster("secured-bundle", security=security, jvm_flags=QUICK_JVM) as cluster:
        yield cluster


def a_config(folder: Path, cluster: LocalCluster, topic: str) -> Path:
    """Write a configuration that reaches the source by SASL with a PKCS#12 truststore, and the
    target with a key in the file.
    """
    clusters = {
        "A": cluster.client_properties("SASL_SSL", READER, stores="PKCS12"),
        "B": cluster.client_properties("SSL", WRITER, stores="PEM"),
    }
    (folder / "secrets.properties").write_text(f"truststore = {FROM_FILE}\n")
    lines = {
        "clusters": "A, B",
        "A->B.enabled": "true",
        "A->B.topics": topic,
        "replication.factor": "1",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "A.producer.ssl.truststore.password": f"${{file:{folder}/secrets.properties:truststore}}",
        "A.consumer.sasl.login.callback.url": "http://user:hunter22@tokens.example/x",
    }
    pem = Path(clusters["B"].pop("ssl.keystore.location")).read_text()
    (key,) = re.findall(r"-----BEGIN PRIVATE KEY.*END PRIVATE KEY-----", pem, re.DOTALL)
    clusters["B"] |= {
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": pem[pem.index("-----BEGIN CERTIFICATE") :],
    }
    for alias, properties in clusters.items():
        lines |= {f"{alias}.{key}": value for key, value in properties.items()}
    text = "".join(
        "{} = {}\n".format(key, value.replace("\\", "\\\\").replace("\n", "\\n"))
        for key, value in lines.items()
    )
    path = folder / "mm2.properties"
    path.write_text(text)
    return path


def secrets_in(config: Path) -> set[str]:
    """Return every secret in the file, found by the test's own parser."""
    text = config.read_text()
    (key,) = re.findall(r"ssl\.keystore\.key = (.*)", text)
    body = [line for line in key.split("\\n") if len(line) > 40]
    passwords = set(re.findall(r"(?:store|key)\.password = (?!\$)(.*)", text))
    return {PASSWORDS[READER], *passwords, *body, FROM_FILE, "hunter22"}


def unpacked(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        out = {}
        for member in opened.getmembers():
            file = opened.extractfile(member)
            assert file is not None
            out[member.name.partition("/")[2]] = file.read().decode()
        return out


@pytest.fixture
def config(
    secured: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Path:
    """A configuration whose mirror has just run and has logged a secret."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    create_topic(secured, fresh_topic)
    produce(secured, fresh_topic, [Outgoing(b"k", b"v")])
    path = a_config(tmp_path, secured, fresh_topic)
    caplog.set_level(logging.INFO, "twinlog")  # the level that `twinlog mirror` sets
    events, status = EventLog(path), StatusFile(path)
    events.start()
    try:
        with Mirror(path, once=True, on_snapshot=status.write) as mirror:
            (flow,) = mirror.wait()
        assert [(p.state, p.records) for p in flow.partitions] == [("DONE", 1)]
        log = logging.getLogger("twinlog.careless")
        for secret in sorted(secrets_in(path)):
            log.warning("it is %s, and %s!", secret, {"password": secret})
    finally:
        events.stop()
    return path


@pytest.mark.witness("a support bundle has no secret")
def test_a_bundle_has_the_needed_information_and_no_secret(
    config: Path, secured: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = secrets_in(config)
    assert len(known) == 7, "four passwords, three lines of a private key"
    careless = tmp_path / "twinlog.log"
    careless.write_text("".join(f"WARNING {one} leaked\n" for one in known))
    archive = tmp_path / "bundle.tar.gz"
    arguments = ["support-bundle", str(config), "--output", str(archive)]
    assert run([*arguments, "--log-file", str(careless)]) == 0, capsys.readouterr().err

    files = unpacked(archive)
    assert archive.stat().st_mode & 0o777 == 0o600
    everything = "\n".join(files.values())
    escaped = {json.dumps(one)[1:-1] for one in known}
    assert {one for one in known | escaped if one in everything} == set()

    configuration = files["configuration.txt"]
    assert "[flow A->B: source_consumer]" in configuration
    assert "security.protocol = SASL_SSL" in configuration
    assert f"sasl.jaas.config = {HIDDEN}" in configuration
    assert f"bootstrap.servers = {secured.client_properties('SSL')['bootstrap.servers']}" in (
        configuration
    )
    versions = json.loads(files["versions.json"])
    assert versions["twinlog"] == __version__
    assert "version" in versions["java"]
    assert versions["packages"]["pyspark"].startswith("4.")
    clusters = json.loads(files["clusters.json"])
    for alias in ("A", "B"):
        (broker,) = clusters[alias]["brokers"]
        assert broker["apis"]["Produce"][1] >= 11
        assert broker["features"]["metadata.version"] > 0
    (process,) = json.loads(files["events.json"])
    told = [event["message"] for event in process["events"]]
    assert any(HIDDEN in line for line in told)
    assert any(line.startswith("lane connected") for line in told)
    (running,) = json.loads(files["status.json"])["mirrors"]
    assert running["flows"][0]["flow"] == "A->B"
    assert files["log/twinlog.log"].count(HIDDEN) >= len(known)


def test_a_bundle_of_a_configuration_that_cannot_be_read_has_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    config, archive = tmp_path / "mm2.properties", tmp_path / "bundle.tar.gz"
    config.write_text("clusters = A, B\nA->B.enabled = perhaps\nA.ssl.key.password = hunter22\n")
    assert run(["support-bundle", str(config), "--output", str(archive)]) == 0
    files = unpacked(archive)
    assert "CONFIG_INVALID" in files["configuration.txt"]
    assert json.loads(files["versions.json"])["twinlog"] == __version__
    assert "hunter22" not in "".join(files.values())


def test_a_bundle_of_several_files_or_a_pair_has_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinlog.control import support_bundle

    monkeypatch.setattr(support_bundle, "CLUSTER_GIVES_UP_S", 0.5)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    names, passwords = ("one", "two", "three"), ("first-pass", "second-pass")
    for name, password in zip(names, (*passwords, ""), strict=True):
        (tmp_path / f"{name}.properties").write_text(
            f"clusters = {name}, B\n{name}->B.enabled = true\n"
            f"{name}.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
            f"{name}.ssl.truststore.password = {password}\n"
        )
    broken = tmp_path / "three.properties"
    broken.write_text(broken.read_text() + "topics = a(\n")
    log = tmp_path / "twinlog.log"
    log.write_text("they are " + " and ".join(passwords))
    StatusFile(tmp_path / "one.properties", tmp_path / "two.properties").write([])
    arguments = [str(tmp_path / f"{name}.properties") for name in names]
    archive = tmp_path / "several.tar.gz"
    assert (
        run(["support-bundle", *arguments, "--log-file", str(log), "--output", str(archive)]) == 0
    )
    files = unpacked(archive)
    configuration = files["configuration.txt"]
    for name in names[:2]:
        assert f"# {tmp_path}/{name}.properties" in configuration
        assert f"[flow {name}->B]" in configuration
    assert "three.properties:6: topics: " in configuration
    assert {*json.loads(files["clusters.json"])} == {"one", "two", "B"}
    assert len(json.loads(files["status.json"])["mirrors"]) == 1, "one process runs both"
    assert files["log/twinlog.log"] == f"they are {HIDDEN} and {HIDDEN}"

    (tmp_path / "c.properties").write_text("bootstrap.servers = 127.0.0.1:1\ngroup.id = g\n")
    (tmp_path / "p.properties").write_text("bootstrap.servers = 127.0.0.1:2\n")
    pair = ["--consumer.config", str(tmp_path / "c.properties"), "--include", "orders"]
    pair += ["--producer.config", str(tmp_path / "p.properties")]
    archive = tmp_path / "pair.tar.gz"
    assert run(["support-bundle", *pair, "--output", str(archive)]) == 0
    files = unpacked(archive)
    assert "[flow g->target]" in files["configuration.txt"]
    assert "orders  # --include" in files["configuration.txt"]
    assert {*json.loads(files["clusters.json"])} == {"g", "target"}


def test_a_bundle_is_never_written_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "bundle.tar.gz"
    archive.write_text("precious")
    config = tmp_path / "mm2.properties"
    config.write_text("")
    assert run(["support-bundle", str(config), "--output", str(archive)]) == 2
    assert "File exists" in capsys.readouterr().err
    assert archive.read_text() == "precious"


def test_clusters_that_cannot_be_reached_cost_one_wait_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinlog.control import support_bundle

    monkeypatch.setattr(support_bundle, "CLUSTER_GIVES_UP_S", 1.0)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    config = tmp_path / "mm2.properties"
    config.write_text(
        "clusters = A, B\nA->B.enabled = true\n"
        "A.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
    )
    files = support_bundle.collect({config: load(config, environment={})})
    clusters = json.loads(files["clusters.json"])
    assert ["[UNREACHABLE]" in clusters[alias]["problem"] for alias in "AB"] == [True, True]


def test_only_the_secret_is_removed_and_not_the_words_around_it(tmp_path: Path) -> None:
    config = tmp_path / "mm2.properties"
    config.write_text(
        "clusters = A, B\nA->B.enabled = true\n"
        "A.bootstrap.servers = a:1\nB.bootstrap.servers = b:2\n"
        'A.sasl.jaas.config = org.example.Login required username="alice" password="s3cret;x";\n'
        "A.ssl.keystore.type = PEM\n"
    )
    scrubber = SecretScrubber(settings_of(load(config, environment={})))
    text = "alice logged in with s3cret;x and a PEM from http://bob:pw@host/"
    expected = f"alice logged in with {HIDDEN} and a PEM from http://{HIDDEN}@host/"
    assert scrubber.clean(text) == expected
