"""Twinlog's syncs set the same configs and create the same ACLs as MirrorMaker 2's own source
connector.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.java import kafka_jvm
from tests.support.led_flow import led_flow
from tests.support.properties import flow_of, loader
from tests.support.topics import create_topic, topic_configs
from twinlog.cluster.client import ClusterClient
from twinlog.control.duties.config_sync import config_sync, find_drift
from twinlog.control.duties.rounds import LedFlow
from twinlog.mirror.names.acl_rules import AclRules
from twinlog.mirror.names.config_rules import wanted_configs
from twinlog.mirror.names.filters import ConfigPropertyFilter
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.survey.copied_topics import copies_by_name
from twinlog.wire.topic_settings import ConfigEntry, Pattern, Permission, TopicAcl

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

MIRROR = "org.apache.kafka.connect.mirror."
IDENTITY = MIRROR + "IdentityReplicationPolicy"
NAMES = (
    "orders",
    "orders-2",
    "payments",
    "B.orders",
    "A.orders",
    "*",
    "mm2-x.internal",
    "heartbeats",
)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as started:
        yield started


class Connector:
    """Calls package-private methods of a MirrorSourceConnector that was never started."""

    def __init__(self, jvm: Any, config: dict[str, str], alias: str = "A") -> None:
        self._jvm = jvm
        mirror = jvm.org.apache.kafka.connect.mirror
        policy = (
            mirror.IdentityReplicationPolicy
            if IDENTITY in config.values()
            else mirror.DefaultReplicationPolicy
        )()
        policy.configure({"source.cluster.alias": alias})
        topics, properties = mirror.DefaultTopicFilter(), mirror.DefaultConfigPropertyFilter()
        topics.configure(config)
        properties.configure(config)
        self.connector = mirror.MirrorSourceConnector()
        self.set("sourceAndTarget", mirror.SourceAndTarget(alias, "B"))
        self.set("replicationPolicy", policy)
        self.set("topicFilter", topics)
        self.set("configPropertyFilter", properties)
        self.set("heartbeatsReplicationEnabled", True)

    def set(self, name: str, value: Any) -> None:
        field = self.connector.getClass().getDeclaredField(name)
        field.setAccessible(True)
        field.set(self.connector, value)

    def call(self, name: str, *given: Any) -> Any:
        methods = self.connector.getClass().getDeclaredMethods()
        method = next(
            m for m in methods if m.getName() == name and m.getParameterCount() == len(given)
        )
        method.setAccessible(True)
        arrays, objects = self._jvm.java.lang.reflect.Array, self._jvm.java.lang.Object
        values = arrays.newInstance(objects().getClass(), len(given))
        for at, value in enumerate(given):
            arrays.set(values, at, value)
        return method.invoke(self.connector, values)


# -- ACLs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["", IDENTITY], ids=["default", "identity"])
def test_the_same_acls_are_made(jvm: Any, tmp_path: Path, policy: str) -> None:
    """Twinlog creates the same ACLs as MirrorMaker 2 (its testAclFiltering and
    testAclTransformation).
    """
    keys = {"topics": "orders.*, \\*, A.*, B.*", "topics.exclude": "orders-2"}
    if policy:
        keys["replication.policy.class"] = policy
    theirs = Connector(jvm, keys)
    lines = [f"{key} = {value}".replace("\\", "\\\\") for key, value in keys.items()]
    ours = AclRules(flow_of(loader(tmp_path)(*lines)))
    for name, operation, permission, pattern in itertools.product(
        NAMES, range(2, 13), Permission, Pattern
    ):
        if policy and name == "*" and pattern == Pattern.LITERAL:
            continue  # with unchanged names, this ACL would also apply to topics that are no copies
        acl = TopicAcl(name, pattern, "User:app", "*", operation, permission)
        assert ours.target_acls([acl], NAMES) == _mirror_makers(jvm, theirs, acl), acl


def _mirror_makers(jvm: Any, connector: Connector, acl: TopicAcl) -> set[TopicAcl]:
    """Return the ACLs that MirrorMaker 2's syncTopicAcls would create. Its filter accepts only
    LITERAL patterns.
    """
    common = jvm.org.apache.kafka.common
    pattern = common.resource.ResourcePattern(
        common.resource.ResourceType.TOPIC,
        acl.name,
        common.resource.PatternType.fromCode(acl.pattern),
    )
    entry = common.acl.AccessControlEntry(
        acl.principal,
        acl.host,
        common.acl.AclOperation.fromCode(acl.operation),
        common.acl.AclPermissionType.fromCode(acl.permission),
    )
    binding = common.acl.AclBinding(pattern, entry)
    passes = (
        acl.pattern == Pattern.LITERAL
        and connector.call("shouldReplicateAcl", binding)
        and connector.call("shouldReplicateTopic", acl.name)
    )
    if not passes:
        return set()
    made = connector.call("targetAclBinding", binding)
    return {
        TopicAcl(
            made.pattern().name(),
            made.pattern().patternType().code(),
            made.entry().principal(),
            made.entry().host(),
            made.entry().operation().code(),
            made.entry().permissionType().code(),
        )
    }


# -- configs -------------------------------------------------------------------------------


@pytest.mark.parametrize("defaults", ["source", "target"])
def test_the_same_configs_are_set_and_removed(jvm: Any, tmp_path: Path, defaults: str) -> None:
    """Twinlog sets and removes the same configs as MirrorMaker 2 (its testConfigPropertyFiltering,
    ...WithAlterConfigs, ...AndSourceDefault).
    """
    keys = {"config.properties.exclude": "min\\..*, x", "use.defaults.from": defaults}
    theirs = Connector(jvm, keys)
    lines = [f"{key} = {value}".replace("\\", "\\\\") for key, value in keys.items()]
    chosen = ConfigPropertyFilter.of(flow_of(loader(tmp_path)(*lines)))
    admin = jvm.org.apache.kafka.clients.admin
    sources = getattr(admin, "ConfigEntry$ConfigSource").values()
    numbers = {
        "DYNAMIC_TOPIC_CONFIG": 1,
        # without DYNAMIC_BROKER_CONFIG, which MirrorMaker 2 copies, because its value depends on
        # the broker that responds
        "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
        "STATIC_BROKER_CONFIG": 4,
        "DEFAULT_CONFIG": 5,
    }
    compared = 0
    for source, name, sensitive, read_only in itertools.product(
        [each for each in sources if each.name() in numbers],
        ("retention.ms", "min.insync.replicas", "x"),
        (False, True),
        (False, True),
    ):
        java = admin.ConfigEntry(name, "7", source, sensitive, read_only, [], None, None)
        entry = ConfigEntry(
            name=name,
            value="7",
            source=numbers[source.name()],
            is_read_only=read_only,
            is_sensitive=sensitive,
        )
        assert entry.is_default == java.isDefault()
        assert wanted_configs(chosen, [entry]) == _mirror_makers_configs(admin, theirs, java)
        compared += 1
    assert compared == 48


def _mirror_makers_configs(admin: Any, connector: Connector, java: Any) -> dict[str, str | None]:
    """Return the value that incrementalAlterConfigs sets for each config, or None if it deletes the
    config.
    """
    kept = connector.call("targetConfig", admin.Config([java]), True).entries().toArray()
    return {
        entry.name(): None
        if entry.isDefault() and not connector.call("shouldReplicateSourceDefault", entry.name())
        else entry.value()
        for entry in kept
    }


@pytest.mark.parametrize("defaults", ["source", "target"])
def test_both_syncs_leave_the_same_configs_on_brokers(
    jvm: Any,
    tmp_path: Path,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    defaults: str,
) -> None:
    """MirrorMaker 2 and Twinlog each sync the configs of one copy of the same topic. Afterwards,
    Twinlog's sync finds nothing to change in either copy. Both copies have the same configs, except
    two limits that Twinlog leaves out.
    """
    mark, configs = uuid.uuid4().hex[:8], {"retention.ms": "7200000", "min.insync.replicas": "1"}
    topic = create_topic(source_cluster, f"y{mark}", configs=configs)
    stray = {"retention.ms": "1", "cleanup.policy": "compact", "min.insync.replicas": "1"}
    config = tmp_path / "mm2.properties"
    keys = {"topics": topic, "use.defaults.from": defaults}
    ended = {}
    for alias in (f"m{mark}", f"t{mark}"):
        remote = create_topic(target_cluster, f"{alias}.{topic}", configs=stray)
        lines = [f"clusters = {alias}, B", f"{alias}->B.enabled = true"]
        lines += [f"{alias}.bootstrap.servers = {source_cluster.bootstrap}"]
        lines += [f"B.bootstrap.servers = {target_cluster.bootstrap}"]
        lines += [f"{key} = {value}" for key, value in keys.items()]
        config.write_text("\n".join(lines) + "\n")
        flow, told = led_flow(config)
        if alias.startswith("m"):
            _let_mirror_maker_sync(jvm, keys, alias, topic, (source_cluster, target_cluster))
        else:
            duty = config_sync(flow)
            assert duty is not None
            duty.round()
        eventually(lambda: drifted(flow) == {})  # noqa: B023 (a broker learns of it a moment later)
        assert told == []
        ended[alias] = topic_configs(target_cluster, remote)
    first, second = ended.values()
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        # MirrorMaker 2 copies these limits, but they would stop a copy that lags
        first.pop(name, None)
        assert name not in second
    assert first == second
    assert first["retention.ms"] == "7200000"
    assert first["min.insync.replicas"] == "1"
    assert ("segment.ms" in first) == (defaults == "source")


def drifted(flow: LedFlow) -> Mapping[str, object]:
    """Return the topics whose configs differ from those of the source."""
    with ClusterClient(flow.source) as source, ClusterClient(flow.target) as target:
        topics = copies_by_name(flow.config, source, target)
        return find_drift(flow.config, topics, source, target).topics


def _let_mirror_maker_sync(
    jvm: Any,
    keys: dict[str, str],
    alias: str,
    topic: str,
    clusters: tuple[LocalCluster, LocalCluster],
) -> None:
    connector = Connector(jvm, keys, alias)
    forwarding = jvm.org.apache.kafka.clients.admin.ForwardingAdmin
    admins = [forwarding({"bootstrap.servers": cluster.bootstrap}) for cluster in clusters]
    partition = jvm.org.apache.kafka.common.TopicPartition
    try:
        connector.set("sourceAdminClient", admins[0])
        connector.set("targetAdminClient", admins[1])
        for name, known in (("Source", topic), ("Target", f"{alias}.{topic}")):
            connector.set(f"known{name}TopicPartitions", [partition(known, 0)])
        connector.call("syncTopicConfigs")
    finally:
        for admin in admins:
            admin.close()  # waits for the responses, because the connector does not
