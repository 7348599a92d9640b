"""A migration with a commonly used Kubernetes resource on two secured clusters, by the commands of
docs/recipes/migration.md. Consumers move first, producers last, and then the topic is removed from
the list.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction, read_all
from tests.support.config_examples import RESOURCES
from tests.support.groups import commit, committed, numbered, resume
from tests.support.live import LiveConsumer, LiveProducer
from tests.support.mirror import EmittingMirror
from tests.support.quotas import user_quota
from tests.support.sandbox_security import SandboxSecurity
from tests.support.settings import settings_of
from tests.support.topics import allow, create_topic, topic_names
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "migration.md"
SOURCE, TARGET = "my-source-cluster", "my-target-cluster"
MIRROR, OPERATOR, SHOP = "kafka.mm2.migration-user", "operator", "shop"
TOPICS = ("app1-t1", "app1-t2", "app2-t1", "app3-t1", "app3-t2")
MOVED, LATER = "app1-t1", "app2-t1"
QUOTAS = {"consumer_byte_rate": 50 << 20, "producer_byte_rate": 50 << 20, "request_percentage": 50}


def secret(user: str) -> str:
    return f"secret-of-{user}"


def secured(name: str) -> LocalCluster:
    security = SandboxSecurity(
        listeners=("SSL", "SASL_SSL", "SASL_PLAINTEXT"),
        mechanisms=("SCRAM-SHA-512", "PLAIN"),
        users={user: secret(user) for user in (MIRROR, OPERATOR, SHOP)},
        client_certificates=True,
        authorizer=True,
    )
    return LocalCluster(name, security=security, jvm_flags=QUICK_JVM)


def grant(source: LocalCluster, target: LocalCluster) -> None:
    """Grant the rights that the recipe lists: for the mirror, for the operator who runs the
    switchover, and for the application.
    """
    allow(source, MIRROR, ["read", "describe_configs"], topic="*")
    allow(source, MIRROR, ["describe"], group="*")
    allow(source, MIRROR, ["describe"])
    allow(target, MIRROR, ["all"], topic="*")
    allow(target, MIRROR, ["all"], group="*")
    allow(target, MIRROR, ["describe"])
    allow(source, OPERATOR, ["read", "describe_configs"], topic="*")
    allow(source, OPERATOR, ["describe"], group="*")
    allow(source, OPERATOR, ["describe", "alter"])
    for cluster in (source, target):
        for topic in TOPICS:
            create_topic(cluster, topic)  # created by hand, because topic.creation.enable=false
        allow(cluster, SHOP, ["read", "write", "describe"], topic="app1-t", prefixed=True)
        allow(cluster, SHOP, ["read"], group="app1-", prefixed=True)
        allow(cluster, SHOP, ["write", "describe"], transactional_id="app1-", prefixed=True)


class Migration:
    """The recipe's resource with the addresses of these clusters, and the folders with its
    secrets.
    """

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        self.source, self.target = source, target
        self.file = folder / "mirror.yaml"
        text = (RESOURCES / "migration-mended.yaml").read_text()
        text = text.replace(f"{SOURCE}-kafka-bootstrap:9093", source.bootstrap_for("SSL"))
        text = text.replace(f"{TARGET}-kafka-bootstrap:9093", target.bootstrap_for("SASL_SSL"))
        # each cluster has only one broker
        self.file.write_text(re.sub(r"(topic\.replication\.factor): 3", r"\1: 1", text))
        self.secrets = self._secrets(folder / "secrets", MIRROR)
        self.operators = self._secrets(folder / "operators", OPERATOR)

    def _secrets(self, folder: Path, user: str) -> Path:
        """Write the secrets in the layout in which Kubernetes mounts them. `user`: the user on the
        source.
        """
        here = self.source.client_properties("SSL", user)
        there = self.target.client_properties("SASL_SSL", MIRROR)
        identity = Path(here["ssl.keystore.location"]).read_text()
        end_of_key = identity.index("-----BEGIN CERTIFICATE")
        for path, text in {
            f"{SOURCE}-cluster-ca-cert/ca.crt": Path(here["ssl.truststore.location"]).read_text(),
            f"{TARGET}-cluster-ca-cert/ca.crt": Path(there["ssl.truststore.location"]).read_text(),
            "mm2-source-cluster/tls.key": identity[:end_of_key],
            "mm2-source-cluster/tls.crt": identity[end_of_key:],
            "mm2-target-cluster/password": secret(MIRROR),
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    def do(self, command: str, *more: str) -> int:
        """Run the command of the recipe that begins with these words. The recipe's names are
        replaced by those of this test.
        """
        told = re.sub(r"\s+", " ", PAGE.read_text())
        (words,) = {
            one for one in re.findall(r"`twinlog ([^`]+)`", told) if one.startswith(command)
        }
        names = {"migration.properties": str(self.file), "shop": "app1-shop", "payments": MOVED}
        folder = self.operators if command.startswith("switchover") else self.secrets
        return run([names.get(w, w) for w in words.split()] + ["--secrets", str(folder), *more])

    def keys(self, cluster: LocalCluster, **more: str) -> dict[str, Any]:
        """Return the connection keys of the application, to which ACLs apply."""
        return {
            "bootstrap.servers": cluster.bootstrap_for("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": SHOP,
            "sasl.password": secret(SHOP),
            **more,
        }

    def both(self, **more: str) -> tuple[tuple[dict[str, Any], str], tuple[dict[str, Any], str]]:
        """Return the connection keys and the topic of each cluster, for a client that moves from
        one cluster to the other.
        """
        return (self.keys(self.source, **more), MOVED), (self.keys(self.target, **more), MOVED)

    def values(self, cluster: LocalCluster, topic: str) -> list[int]:
        return [int(one.value or b"-1") for one in read_all(cluster, topic)]


@pytest.fixture
def migration(tmp_path: Path) -> Iterator[Migration]:
    with ExitStack() as stack:
        source, target = (stack.enter_context(secured(f"amq-{n}")) for n in ("source", "target"))
        grant(source, target)
        yield Migration(tmp_path, source, target)


def prepare(source: LocalCluster) -> None:
    """Write records with and without transactions, set groups to offsets within them, and set the
    user quota.
    """
    with ClusterClient(settings_of(source)) as client:
        user_quota(client, MIRROR, QUOTAS)
    # source offsets: 0, 1, a marker, 3, 4, a marker; on the target the records are at 0 to 3
    for first in (0, 2):
        produce_transaction(source, MOVED, numbered(first, 2), commit=True)
    produce_transaction(source, MOVED, numbered(900, 2), commit=False)
    commit(source, "app1-audit", MOVED, 4)
    produce(source, LATER, numbered(0, 20))
    commit(source, "app2-ledger", LATER, 7)


@pytest.mark.witness("clients migrate by the recipe: consumers first, producers last")
def test_clients_move_by_the_recipe_and_the_mirror_continues(migration: Migration) -> None:
    source, target = migration.source, migration.target
    prepare(source)
    moves, starts, fenced = threading.Event(), threading.Event(), threading.Event()
    shop = LiveConsumer(moves, "app1-shop", *migration.both(), starts=starts)
    keys = {"transactional.id": "app1-sales"}
    # slow enough for the consumer, which commits after each record
    sales = LiveProducer(fenced, *migration.both(**keys), pause_s=0.1)
    sales.count = 4
    with shop, sales:
        eventually(lambda: shop.works() and len(shop.read) > 20)
        assert migration.do("check") == 0
        with EmittingMirror(migration.file, secrets=migration.secrets) as mirror:
            eventually(lambda: len(migration.values(target, MOVED)) > 20)
            eventually(lambda: len(migration.values(target, LATER)) == 20)
            assert migration.do("status") == 0
            moves.set()
            eventually(lambda: shop.works() and migration.do("groups ready") == 0)
            eventually(lambda: committed(target, "app1-shop", MOVED) == len(shop.read))
            starts.set()
            count = len(shop.read)
            eventually(lambda: shop.works() and len(shop.read) > count + 20)
            eventually(lambda: migration.do("switchover plan") == 0)
            assert migration.do("switchover run", "--yes") == 0
            fenced.set()
            eventually(lambda: sales.works() and sales.first_there_at)
            count = sales.count
            eventually(lambda: sales.works() and sales.count > count + 20)
            text = migration.file.read_text()
            migration.file.write_text(
                text.replace(f'topicsPattern: "{MOVED}, ', 'topicsPattern: "')
            )
            assert mirror.reload()
            # written by a super user, whom no ACL stops
            produce(source, MOVED, [Outgoing(value=b"-7")])
            produce(source, LATER, numbered(20, 5))
            commit(source, "app2-ledger", LATER, 22)
            eventually(lambda: len(migration.values(target, LATER)) == 25)
            eventually(lambda: committed(target, "app2-ledger", LATER) == 22)
            sales.end()
            eventually(lambda: len(shop.read) >= sales.count)
            shop.end()
            mirror.stop()
    everything = list(range(sales.count))
    assert shop.read == everything
    assert migration.values(target, MOVED) == everything
    assert migration.values(source, MOVED)[-1] == -7
    assert migration.values(target, LATER) == list(range(25))
    assert committed(target, "app1-audit", MOVED) == 3
    assert resume(target, "app1-audit", MOVED) == [b"%d" % n for n in everything[3:]]
    written = {name for name in topic_names(source) if not name.startswith("__")}
    assert written == {*TOPICS}, "the mirror writes nothing there"
