"""Twinlog takes over from connectors on a live Kafka Connect worker, and hands back. The connectors
have the names that Strimzi gives them, or a name given by `--connector`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.clusters import private_cluster
from tests.support.eventually import eventually
from tests.support.kafka_connect import ConnectWorker, connect_worker
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import create_topic, end_offsets, topic_names
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_members import connect_group
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

GROUP = "mirrormaker2-cluster"
STRIMZI = "A->B.MirrorSourceConnector"
OWN_NAME = "bills to B"
RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {{name: mirror}}
spec:
  version: 4.1.0
  replicas: 1
  connectCluster: B
  clusters:
    - {{alias: A, bootstrapServers: "{bootstrap}"}}
    - {{alias: B, bootstrapServers: "{bootstrap}"}}
  mirrors:
    - sourceCluster: A
      targetCluster: B
      topicsPattern: orders
      sourceConnector:
        config: {{replication.factor: 1, sync.topic.acls.enabled: false}}
"""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """The only cluster, with the aliases A, B and C. Other tests do not use it, because it has the
    worker's topics.
    """
    with private_cluster("connect", 1) as running:
        yield running


@pytest.fixture
def worker(cluster: LocalCluster, tmp_path: Path) -> Iterator[ConnectWorker]:
    """A Connect worker with two connectors. Its internal topics are named as Strimzi names them."""
    for topic in ("orders", "bills"):
        create_topic(cluster, topic)
        more(cluster, topic, 100)
    with connect_worker(tmp_path, cluster, group=GROUP, prefix=GROUP) as running:
        for name, alias, topic in ((STRIMZI, "A", "orders"), (OWN_NAME, "C", "bills")):
            running.create(
                name,
                {
                    "source.cluster.alias": alias,
                    "target.cluster.alias": "B",
                    "source.cluster.bootstrap.servers": cluster.bootstrap,
                    "target.cluster.bootstrap.servers": cluster.bootstrap,
                    "topics": topic,
                    "replication.factor": "1",
                    "offset-syncs.topic.replication.factor": "1",
                    "sync.topic.acls.enabled": "false",
                },
            )
        yield running


def more(cluster: LocalCluster, topic: str, count: int) -> None:
    begin = sum(end_offsets(cluster, topic).values())
    produce(cluster, topic, [Outgoing(value=b"%d" % (begin + n)) for n in range(count)])


def is_copied(cluster: LocalCluster, topic: str, remote: str) -> bool:
    names = topic_names(cluster)
    return remote in names and end_offsets(cluster, remote) == end_offsets(cluster, topic)


def assert_copied(cluster: LocalCluster, topic: str, remote: str) -> None:
    eventually(lambda: is_copied(cluster, topic, remote))
    here, there = read_all(cluster, topic), read_all(cluster, remote)
    assert [one[2:6] for one in there] == [one[2:6] for one in here], "each record once"


def wait_for_state(worker: ConnectWorker, name: str, state: str) -> None:
    eventually(lambda: worker.state(name) == state)


def wait_for_no_tasks(cluster: LocalCluster, name: str) -> None:
    """Wait until the connector has no running task, which needs a rebalance of the workers'
    group.
    """
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        group = Coordinators(client)
        eventually(lambda: not connect_group(group, GROUP).may_run(name))


def a_resource(folder: Path, cluster: LocalCluster) -> Path:
    file = folder / "mirror.yaml"
    file.write_text(RESOURCE.format(bootstrap=cluster.bootstrap))
    return file


def a_file_that_names_the_workers_topics(folder: Path, cluster: LocalCluster) -> Path:
    file = folder / "bills.properties"
    lines = {
        "clusters": "C, B",
        "C.bootstrap.servers": cluster.bootstrap,
        "B.bootstrap.servers": cluster.bootstrap,
        "C->B.enabled": "true",
        "C->B.topics": "bills",
        "replication.factor": "1",
        "B.offset.storage.topic": f"{GROUP}-offsets",
        "B.group.id": GROUP,
    }
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    return file


def test_each_connector_is_taken_over_once_it_is_stopped_and_takes_its_work_back(
    cluster: LocalCluster,
    worker: ConnectWorker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    strimzi = a_resource(tmp_path, cluster), None, STRIMZI
    plain = a_file_that_names_the_workers_topics(tmp_path, cluster), OWN_NAME, OWN_NAME
    remotes = {"orders": "A.orders", "bills": "C.bills"}
    for topic, remote in remotes.items():
        assert_copied(cluster, topic, remote)

    def said(file: Path, connector: str | None, expected: int) -> str:
        options = ["--adopt-mm2", *([] if connector is None else ["--connector", connector])]
        assert run(["check", str(file), *options]) == expected
        return " ".join(capsys.readouterr().out.split())

    for file, connector, name in (strimzi, plain):
        for verb, state in (("resume", "RUNNING"), ("pause", "PAUSED")):
            worker.request(name, verb)
            wait_for_state(worker, name, state)
            answer = said(file, connector, 1)
            assert "[MM2_RUNNING]" in answer
            assert "is taken over from MirrorMaker 2, by partition: 0 at" in answer
            assert f"workers of group {GROUP} on B run {name}; stop it first" in answer
        worker.request(name, "resume")
    # the worker and the other connector continue while one connector is taken over
    for (file, connector, name), (topic, remote) in zip(
        (strimzi, plain), remotes.items(), strict=True
    ):
        worker.request(name, "stop")
        wait_for_state(worker, name, "STOPPED")
        wait_for_no_tasks(cluster, name)
        for each in remotes:
            more(cluster, each, 100)
        answer = said(file, connector, 0)
        assert f"{topic} is taken over from MirrorMaker 2, by partition: 0 at" in answer
        with Mirror(file, once=True, adopt_mm2=True, connector=connector) as mirror:
            assert [p.code for flow in mirror.wait() for p in flow.partitions] == [""]
        assert_copied(cluster, topic, remote)
        more(cluster, topic, 100)
        worker.request(name, "resume")
        for each, there in remotes.items():
            assert_copied(cluster, each, there)
