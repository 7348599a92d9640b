"""A switchover of one flow: its clusters, topics and groups, its clients on both clusters, and its
fences.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import connection_of, producer
from tests.support.cutover import Commands
from tests.support.live import LiveConsumer, LiveProducer
from tests.support.rights import SECRET, USERS, SecuredPair
from tests.support.topics import allow, create_topic, log_size
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import topic_acls
from twinlog.config.load import load
from twinlog.control.cutover.fence import fence_acl
from twinlog.control.flow.wiring import flow_setup
from twinlog.sandbox import LocalCluster

__all__ = ["CREATE_ACLS", "Case"]

CREATE_ACLS = "twinlog.control.cutover.fence:create_topic_acls"
numbers = itertools.count()


class Case:
    """A flow of two topics, one of which has transactions, and applications that move between its
    clusters.
    """

    def __init__(
        self,
        pair: SecuredPair,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        has_alias: bool = False,
    ) -> None:
        """`has_alias`: the source's alias in topic names differs from its name in the file."""
        number = next(numbers)
        self.site = f"site{number}" if has_alias else f"over{number}"
        self.pair, self.folder = pair, folder
        self.alias = f"over{number}"
        self.orders, self.sales = f"orders{number}", f"sales{number}"
        self.group = f"app{number}"
        # from the end, because other tests use users from the beginning
        self.user = USERS[-1 - number]
        self.file = self._config()
        self.commands = Commands("switchover", self.file, capsys)
        for topic in (self.orders, self.sales):
            create_topic(pair.source, topic)
            allow(pair.source, self.user, ["write", "describe"], topic=topic)
            allow(pair.target, self.user, ["write", "describe"], topic=self.remote(topic))
        for cluster in (pair.source, pair.target):
            every = ["write", "describe"]
            allow(cluster, self.user, every, transactional_id="pay", prefixed=True)

    def _config(self) -> Path:
        text = [f"clusters = {self.alias}, B", f"{self.alias}->B.enabled = true"]
        text += [f"topics = {self.orders}, {self.sales}", f"groups = {self.group}.*"]
        text += [f"source.cluster.alias = {self.site}"] if self.site != self.alias else []
        text += ["replication.factor = 1", "refresh.topics.interval.seconds = 1"]
        text += ["twinlog.status.interval.seconds = 1"]
        text += [
            "sync.topic.acls.interval.seconds = 1",
            "consumer.isolation.level = read_committed",
        ]
        for alias, cluster in ((self.alias, self.pair.source), ("B", self.pair.target)):
            found = connection_of(cluster)
            login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            user = f'username="{found["sasl.username"]}" password="{found["sasl.password"]}"'
            text += [
                f"{alias}.bootstrap.servers = {found['bootstrap.servers']}",
                f"{alias}.security.protocol = SASL_PLAINTEXT",
                f"{alias}.sasl.mechanism = PLAIN",
                f"{alias}.sasl.jaas.config = {login} {user};",
            ]
        path = self.folder / "mm2.properties"
        path.write_text("\n".join(text) + "\n")
        return path

    def remote(self, topic: str) -> str:
        return f"{self.site}.{topic}"

    def keys(self, cluster: LocalCluster, **more: Any) -> dict[str, Any]:
        """Return the connection keys of an ordinary user, to whom ACLs apply."""
        return {
            "bootstrap.servers": cluster.bootstrap_for("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": SECRET + self.user,
            **more,
        }

    def producer(self, over: threading.Event, topic: str, **more: Any) -> LiveProducer:
        source, target = self.pair.source, self.pair.target
        return LiveProducer(
            over,
            (self.keys(source, **more), topic),
            (self.keys(target, **more), self.remote(topic)),
            pause_s=0.04,
        )

    def consumer(self, over: threading.Event, topic: str) -> LiveConsumer:
        source, target = self.pair.source, self.pair.target
        return LiveConsumer(
            over,
            f"{self.group}-{topic}",
            (connection_of(source), topic),
            (connection_of(target), self.remote(topic)),
        )

    def copied(self, topic: str) -> int:
        return log_size(self.pair.target, self.remote(topic))

    def fences(self) -> set[str]:
        """Return the flow's topics for which the fence denies all clients to write on the
        source.
        """
        setup = flow_setup(load(self.file, environment={}).flows[0])
        with ClusterClient(setup.source) as client:
            acls = topic_acls(client)
        return {topic for topic in (self.orders, self.sales) if fence_acl(topic) in acls}

    def is_refused(self) -> bool:
        keys = self.keys(self.pair.source, **{"enable.idempotence": False})
        client = producer(self.pair.source, config=keys)
        errors: list[Any] = []
        client.produce(self.orders, b"0", on_delivery=lambda error, _: errors.append(error))
        client.flush()
        return errors[0] is not None
