"""Key files are renewed under the same path while a mirror runs. When brokers begin to reject the
old keys, the mirror connects with the new ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Issued, authority
from tests.support.client import Outgoing, produce, read_all
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.mirror import Mirror
from tests.support.sandbox_security import SandboxSecurity
from tests.support.topics import create_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.security import renewal
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.process.run import KeyFileWatch
from twinlog.errors import AuthenticationFailed
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.sandbox.layout import Listeners

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("key-file-renewal")]


CA = "cluster-ca"
"""Name of the certificate authority. Its key is renewed but its name is unchanged, as with
Strimzi's operator.
"""


class Trusting(SandboxSecurity):
    """Brokers that have a certificate of one authority, and reject clients whose certificates are
    of another authority.
    """

    issuer: Issued

    def prepare(self, folder: Path) -> Listeners:
        listeners = super().prepare(folder)
        self.trust(authority(CA))
        return listeners

    def trust(self, issuer: Issued) -> None:
        """Make the brokers trust this authority instead. This takes effect at their next start."""
        assert self.files is not None
        self.issuer = issuer
        broker = issuer.issue("broker", hosts=self.hosts)
        self.files.server_pem.write_text(broker.key_pem + broker.pem)
        self.files.authority_pem.write_text(issuer.pem)


class KeyFiles:
    """The keystore and truststore of a mirror."""

    def __init__(self, folder: Path) -> None:
        self.identity, self.trust = folder / "mirror.pem", folder / "ca.pem"

    def write(self, issuer: Issued, days: tuple[int, int] = (-1, 10)) -> None:
        mine = issuer.issue("mirror", days=days)
        for path, text in ((self.identity, mine.key_pem + mine.pem), (self.trust, issuer.pem)):
            scratch = path.with_suffix(".new")
            scratch.write_text(text)
            scratch.replace(path)

    def keys(self, cluster: LocalCluster) -> dict[str, str]:
        return {
            "bootstrap.servers": cluster.bootstrap_for("SSL"),
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }

    def config(self, cluster: LocalCluster, topic: str) -> Path:
        lines = ["clusters = A, B", "A->B.enabled = true", f"A->B.topics = {topic}"]
        lines += ["replication.factor = 1", "twinlog.state.topic.replication.factor = 1"]
        # source and target are one cluster, so heartbeats would be copied again and again
        lines += ["emit.heartbeats.enabled = false", "heartbeats.replication.enabled = false"]
        lines += [f"{a}.{key} = {value}" for a in "AB" for key, value in self.keys(cluster).items()]
        path = self.identity.with_name("mm2.properties")
        path.write_text("\n".join(lines) + "\n")
        return path


@pytest.fixture(scope="module")
def security() -> Trusting:
    return Trusting(listeners=("SSL",), client_certificates=True)


@pytest.fixture(scope="module")
def cluster(security: Trusting) -> Iterator[LocalCluster]:
    with LocalCluster("renewal", security=security, jvm_flags=QUICK_JVM) as started:
        yield started


@pytest.fixture
def files(tmp_path: Path) -> KeyFiles:
    return KeyFiles(tmp_path)


def values(first: int, count: int) -> list[Outgoing]:
    return [Outgoing(value=b"%d" % number) for number in range(first, first + count)]


def is_refused(cluster: LocalCluster, files: KeyFiles) -> bool:
    settings = ClusterSettings(
        alias="A",
        bootstrap=parse_bootstrap(cluster.bootstrap_for("SSL")),
        security=load_security(files.keys(cluster), where="A"),
    )
    with ClusterClient(settings) as client:
        try:
            client.metadata([])
        except AuthenticationFailed:
            return True
    return False


@pytest.mark.usefixtures("lasting_lead")  # a new lead would start other lanes
@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "too late"])
def test_driver_and_lanes_enter_with_renewed_files_once_the_old_ones_are_refused(
    is_late: bool,
    cluster: LocalCluster,
    security: Trusting,
    files: KeyFiles,
    fresh_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "twinlog")
    monkeypatch.setattr(renewal, "CHECK_EVERY_S", 0.2)
    files.write(security.issuer)
    before = KeyFiles(files.identity.parent / "before")
    before.identity.parent.mkdir()
    for new, old in ((files.identity, before.identity), (files.trust, before.trust)):
        os.link(new, old)
    create_topic(cluster, fresh_topic)
    produce(cluster, fresh_topic, values(0, 100))
    config = files.config(cluster, fresh_topic)
    watch = KeyFileWatch(turn_s=0.1, on_renewed=lambda: mirror.supervisor.retry_now())  # noqa: PLW0108 (it is made below)
    with watch, Mirror(config, lanes=1, on_snapshot=watch.update) as mirror:
        mirror.eventually(lambda parts: [p.records for p in parts] == [100])
        lanes = mirror.leases.pids()
        assert not is_refused(cluster, before)

        security.trust(authority(CA))
        if not is_late:
            files.write(security.issuer)
        cluster.restart(1)
        assert is_refused(cluster, before)
        if is_late:
            eventually(lambda: ") lacks the issuer" in mirror.snapshots[0].reason)
            assert "ssl.truststore.* (" in mirror.snapshots[0].reason
            files.write(security.issuer)
        produce(cluster, fresh_topic, values(100, 100))
        mirror.eventually(lambda parts: [(p.records, p.state) for p in parts] == [(200, "AT_END")])
        assert mirror.leases.pids() == lanes, "the same lane: it was told"
        assert len(mirror.supervisor.errors) == 0
        mirror.stop()
    assert "new connections use the renewed key files" in caplog.text
    assert "PRIVATE KEY" not in caplog.text
    copied = [record.value for record in read_all(cluster, f"A.{fresh_topic}")]
    assert copied == [record.value for record in values(0, 200)]


def test_check_warns_of_certificates_that_end_soon_and_refuses_those_that_ended(
    cluster: LocalCluster, security: Trusting, files: KeyFiles, fresh_topic: str
) -> None:
    create_topic(cluster, fresh_topic)
    files.write(security.issuer, days=(-1, 5))
    config = files.config(cluster, fresh_topic)
    report = check(load(config, environment={}))
    ours = [line for line in report.warnings if line.endswith("[CERTIFICATE_ENDS_SOON]")]
    assert [str(files.identity) in line for line in ours] == [True, True]
    assert report.problems == ()

    files.write(security.issuer, days=(-5, -1))
    report = check(load(config, environment={}))
    expired = [one for one in report.problems if one.code == "CERTIFICATE_EXPIRED"]
    assert [one.message.partition(":")[0] for one in expired] == ["cluster A", "cluster B"]
    assert all("CN=mirror" in one.message for one in expired)


def test_a_mirror_warns_while_it_runs(
    cluster: LocalCluster, security: Trusting, files: KeyFiles, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(cluster, fresh_topic)
    files.write(security.issuer, days=(-1, 5))
    config = files.config(cluster, fresh_topic)
    arguments = ("mirror", str(config), "--master", "local[1]", "--listen", "off")
    with Command(tmp_path / "run", *arguments) as command:
        eventually(lambda: command.stderr.count("[CERTIFICATE_ENDS_SOON]") == 2)
        assert str(files.identity) in command.stderr
        command.terminate()
        assert command.wait() == 0, command.stderr
