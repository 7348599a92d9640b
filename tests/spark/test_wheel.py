"""The wheel is installed as users install it, in a new environment without other packages."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyspark
import pytest
import yaml

from tests.support.board import queries
from tests.support.client import Outgoing, produce, read_all
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.groups import commit
from tests.support.prometheus import Prometheus, promtool
from tests.support.sandbox_security import SandboxSecurity
from tests.support.spark_mirror import PARTITIONS, Load, as_copied, orders
from tests.support.topics import create_topic, end_offsets
from twinlog import __version__
from twinlog.addresses import Address
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.xdist_group("spark"),
]

ROOT = Path(__file__).parents[2]
OLD_SCRIPTS = {"connect-mirror-maker.sh": "mirror", "kafka-mirror-maker.sh": "mirror-maker"}


def run(*command: str | Path, within: float = 300, folder: Path = Path("/")) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=within,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def without_spark(lock: str) -> str:
    """Return the lock file without PySpark, whose 450 MB take a minute to unpack. The development
    environment has it with the same version and hash.
    """
    parts = re.split(r"^(?=[a-z])", lock, flags=re.M)
    (spark,) = (part for part in parts if part.startswith("pyspark"))
    assert spark in (ROOT / "requirements-dev.lock").read_text()
    return "".join(part for part in parts if part != spark)


def link_spark(environment: Path) -> None:
    """Link the installed PySpark and its metadata into the environment, so that `pip check` finds
    it.
    """
    (packages,) = environment.glob("lib/python3*/site-packages")
    (metadata,) = Path(pyspark.__file__).parents[1].glob("pyspark-*.dist-info")
    for folder in (Path(pyspark.__file__).parent, metadata):
        (packages / folder.name).symlink_to(folder)


def pip_install(folder: Path) -> Path:
    """Install the wheel with `pip install` into a new environment, and return the environment's
    folder.
    """
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist")
    run(sys.executable, *build, folder=ROOT)
    (wheel,) = (folder / "dist").glob("twinlog-*.whl")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", environment)
    pip = (environment / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    lock = folder / "requirements.lock"
    lock.write_text(without_spark((ROOT / "requirements.lock").read_text()))
    link_spark(environment)
    install = (*pip, "install", "--no-deps", "--no-compile")
    run(*install, "--require-hashes", "-r", lock)
    run(*install, wheel)
    run(*pip, "check")
    return environment


def secured(name: str, user: str) -> LocalCluster:
    security = SandboxSecurity(
        listeners=("SSL",), users={user: f"{user}-secret"}, client_certificates=True
    )
    return LocalCluster(name, security=security, jvm_flags=QUICK_JVM)


@pytest.fixture
def secured_pair() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """Two clusters, `source` and `target`, whose users authenticate by certificates."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        made = [secured(f"board-{name}", f"mirror-{name}") for name in ("source", "target")]
        source, target = pool.map(stack.enter_context, made)
        yield source, target


def laid_secrets(folder: Path, clusters: Mapping[str, LocalCluster]) -> Path:
    """Write the secrets that the resource of deploy/kubernetes names, as Strimzi's operator creates
    them. Return their folder.
    """
    for name, cluster in clusters.items():
        properties = cluster.client_properties("SSL", f"mirror-{name}", stores="PEM")
        identity = Path(properties["ssl.keystore.location"]).read_text()
        end_of_key = identity.index("-----BEGIN CERTIFICATE")
        authority = Path(properties["ssl.truststore.location"]).read_text()
        for secret, key, text in (
            (f"{name}-cluster-ca-cert", "ca.crt", authority),
            (f"mirror-{name}", "user.key", identity[:end_of_key]),
            (f"mirror-{name}", "user.crt", identity[end_of_key:]),
        ):
            (folder / secret).mkdir(parents=True, exist_ok=True)
            (folder / secret / key).write_text(text)
    return folder


def made_ours(resource: str, clusters: Mapping[str, LocalCluster]) -> str:
    """Return the resource with this test's addresses. It is changed for clusters of one broker and
    for frequent checkpoints.
    """
    (mirror,) = yaml.safe_load_all(resource)
    (flow,) = mirror["spec"]["mirrors"]
    for name, side in (("source", flow["source"]), ("target", mirror["spec"]["target"])):
        properties = clusters[name].client_properties("SSL", f"mirror-{name}", stores="PEM")
        side["bootstrapServers"] = properties["bootstrap.servers"]
    flow["sourceConnector"]["config"] |= {
        "replication.factor": -1,
        "offset-syncs.topic.replication.factor": -1,
        "twinlog.rpo.seconds": 300,
    }
    flow["checkpointConnector"]["config"] |= {
        "checkpoints.topic.replication.factor": -1,
        "emit.checkpoints.interval.seconds": 1,
    }
    flow["heartbeatConnector"] = {"config": {"heartbeats.topic.replication.factor": -1}}
    return yaml.safe_dump(mirror)


WEEK_MS: Final = 7 * 24 * 3600 * 1000
"""Kafka's default retention in milliseconds. The sandbox's brokers have no time limit."""


def is_whole(environment: Path) -> None:
    """Check that the wheel has the command, the old scripts, and all files of `deploy`."""
    assert __version__ in run(environment / "bin" / "twinlog", "--version")
    for script, command in OLD_SCRIPTS.items():
        assert f"Usage: twinlog {command} " in run(environment / "bin" / script, "--help")
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    assert len(deployed) > 2
    for path in deployed:
        installed = environment / "share" / "twinlog" / path.relative_to(ROOT / "deploy")
        assert installed.read_text() == path.read_text()


def test_from_pip_install_to_a_filled_board(
    secured_pair: tuple[LocalCluster, LocalCluster], tmp_path: Path
) -> None:
    """Follow docs/kubernetes.md without Kubernetes, with the page's resource and secrets and an
    installed wheel. In the end, every panel of the dashboard must have data.
    """
    promtool()  # skips the test before anything is created if promtool is missing
    environment = pip_install(tmp_path)
    is_whole(environment)
    clusters = dict(zip(("source", "target"), secured_pair, strict=True))
    source, target = secured_pair
    installed, twinlog = environment / "share" / "twinlog", environment / "bin" / "twinlog"
    for topic in ("orders", "payments"):
        create_topic(source, topic, PARTITIONS, configs={"retention.ms": str(WEEK_MS)})
        produce(source, topic, orders(300))
    commit(source, "shop", "orders", 5)
    secrets = laid_secrets(tmp_path / "secrets", clusters)
    resource = tmp_path / "mirror.yaml"
    resource.write_text(made_ours((installed / "kubernetes" / "mirror.yaml").read_text(), clusters))
    run(twinlog, "check", resource, "--secrets", secrets)
    arguments = ("mirror", str(resource), "--secrets", str(secrets), "--listen", "127.0.0.1:0")
    with Command(tmp_path / "mirror", *arguments, program=twinlog) as mirror:
        eventually(lambda: " serves " in mirror.stdout, what="the address of the mirror")
        found = re.search(r"http://127\.0\.0\.1:(\d+) serves", mirror.stdout)
        assert found is not None
        address = Address("127.0.0.1", int(found[1]))
        rules = installed / "prometheus" / "twinlog.rules.yml"
        with Prometheus(tmp_path, address, rules=rules) as prometheus, ExitStack() as stack:
            stack.callback(Load(source, "orders", 300).stop)
            copied = "sum(twinlog_verified_records_total) > 0"
            eventually(lambda: prometheus.query(copied), what="records that were compared")
            # cause a problem that the dashboard shows: another client writes to the copy
            produce(target, "source.payments", [Outgoing(b"x", b"not from the source")])
            produce(source, "payments", orders(300, begin=300))
            empty = queries(installed / "grafana" / "twinlog-mirror.json")
            assert len(empty) > 40

            def is_filled() -> bool:
                empty[:] = [
                    one for one in empty if not prometheus.query(one.of("source", "target"))
                ]
                assert empty == []
                return True

            eventually(is_filled, what="a value in every panel")
            (end, *_) = prometheus.query("min(twinlog_certificate_expiry_timestamp_seconds)")
            assert end.value > time.time()
            assert {rule["health"] for rule in prometheus.rules()} == {"ok"}
        produced = end_offsets(source, "orders")
        eventually(lambda: end_offsets(target, "source.orders") == produced)
        mirror.terminate()
        assert mirror.wait() == 1, "payments had stopped, and nothing else"
        assert mirror.stderr.count("[EXTRA_RECORDS]") == 1
    assert as_copied(read_all(target, "source.orders")) == as_copied(read_all(source, "orders"))
