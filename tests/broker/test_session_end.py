"""Brokers end SASL sessions after a time (KIP-368). Connections are replaced before that, without
errors.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from tests.support.client import read_all
from tests.support.load import Load
from tests.support.machine_pace import paced
from tests.support.mirror import Mirror
from tests.support.sandbox_security import SandboxSecurity
from tests.support.settings import settings_of
from tests.support.topics import create_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.connection import SESSION_SHARE
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.faults]

SESSION_MS = 8_000
MARGIN_S = SESSION_MS / 1000 * (1 - SESSION_SHARE)
RUNS_S = 3.1 * SESSION_MS / 1000


def test_no_connection_is_used_beyond_its_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlog.control")
    security = SandboxSecurity(listeners=("SASL_PLAINTEXT",), users={"mirror": "mirror-secret"})
    short = {"connections.max.reauth.ms": str(SESSION_MS)}
    with LocalCluster("reauth", security=security, config=short, jvm_flags=QUICK_JVM) as cluster:
        create_topic(cluster, "orders", 2)
        path = tmp_path / "mm2.properties"
        lines = ["clusters = A, B", "A->B.enabled = true", "A->B.topics = orders"]
        lines += ["replication.factor = 1", "twinlog.state.topic.replication.factor = 1"]
        login = cluster.client_properties("SASL_PLAINTEXT", "mirror", mechanism="SCRAM-SHA-512")
        lines += [f"{alias}.{key} = {value}" for alias in "AB" for key, value in login.items()]
        path.write_text("\n".join(lines) + "\n")
        client = ClusterClient(settings_of(cluster))
        with client, Mirror(path) as mirror, Load(cluster, "orders", partitions=2) as load:
            mirror.eventually(lambda parts: all(p.records > 20 for p in parts))
            while True:
                caplog.clear()
                with paced(lambda: client.metadata(["orders"])) as pace:
                    time.sleep(RUNS_S)  # long enough for three sessions of every connection
                if pace.longest_stall_s < MARGIN_S / 2:
                    # after a longer stall, an authentication may be late, so the loop tries again
                    break
            assert "TARGET_DISCONNECTED" not in caplog.text
            count = load.stop()
            mirror.eventually(lambda parts: sum(p.records for p in parts) >= count)
            mirror.stop()
        copied = sorted((r.partition, r.offset, r.value) for r in read_all(cluster, "A.orders"))
        assert copied == sorted(
            (r.partition, r.offset, r.value) for r in read_all(cluster, "orders")
        )
