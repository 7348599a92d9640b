"""Names by `twinlog.rename`: which new names are refused, and how a new name is mapped back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import loader
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.copies import FlowUpstreams
from twinlog.mirror.names.acl_rules import AclRules
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.renaming import is_renamed, plain_upstream, refused_names, unkept_names
from twinlog.mirror.state.copies import CopyRow, copy_rows
from twinlog.model import TopicId
from twinlog.wire.topic_settings import READ, Pattern, Permission, TopicAcl

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
BASE = [
    "clusters = A, B",
    "A.bootstrap.servers = a:9092",
    "B.bootstrap.servers = b:9092",
    "A->B.enabled = true",
]
OLD, NEW = TopicId("a" * 32), TopicId("b" * 32)


def flow_of(folder: Path, rules: str, *lines: str) -> FlowConfig:
    (flow,) = loader(folder)(f"A->B.twinlog.rename = {rules}", *lines, base=BASE).flows
    return flow


def remote(flow: FlowConfig, topic: str) -> str:
    return policy_of(flow).format_remote_topic(flow.source_alias, topic)


@pytest.mark.parametrize(
    ("lines", "topic", "name"),
    [
        ((), "orders", "A.eu-orders"),
        ((), "heartbeats", "A.heartbeats"),
        ((), "C.heartbeats", "A.C.heartbeats"),
        ((IDENTITY,), "orders", "eu-orders"),
        ((IDENTITY,), "heartbeats", "A.heartbeats"),
        (("replication.policy.separator = _",), "orders", "A_eu-orders"),
    ],
    ids=str,
)
def test_the_policy_applies_rules_and_heartbeats_keep_their_names(
    tmp_path: Path, lines: tuple[str, ...], topic: str, name: str
) -> None:
    flow = flow_of(tmp_path, "(.*):eu-$1", *lines)
    assert remote(flow, topic) == name
    assert is_renamed(flow, topic) is (topic == "orders")


@pytest.mark.parametrize("lines", [(), (IDENTITY,)], ids=["default", "identity"])
def test_topics_that_would_share_a_name_are_all_refused(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    flow = flow_of(tmp_path, "(.*)-v[12]:$1", *lines)
    assert not refused_names(flow, ["pay-v1", "orders", "orders-x"])
    found = refused_names(flow, ["pay-v1", "pay-v2", "orders-v1", "orders", "other"])
    assert sorted(found) == ["orders", "orders-v1", "pay-v1", "pay-v2"]
    assert {error.code for error in found.values()} == {"RENAME_CLASH"}
    words = str(found["pay-v1"])
    assert "pay-v1, pay-v2" in words
    assert "(.*)-v[12]:$1" in words
    assert remote(flow, "pay-v1") in words


@pytest.mark.parametrize(
    ("topic", "lines", "words"),
    [
        ("gone-", (), "which is not a valid topic name"),
        ("gone-..", (), "which is not a valid topic name"),
        ("gone-__offsets", (), "which is that of an internal topic"),
        ("gone-A.checkpoints.internal", (), "which is that of an internal topic"),
        ("gone-mm2-twinlog-state.internal", (IDENTITY,), "which is that of an internal topic"),
        # the topic does not count as one of heartbeats on the source
        ("gone-heartbeats", (), None),
        ("in-beats", (), "which is that of a heartbeats topic"),
        ("gone-" + "x" * 249, (), "a name of 251 characters"),
        ("gone-" + "x" * 249, (IDENTITY,), None),
    ],
    ids=lambda one: one[:18] if isinstance(one, str) else None,
)
def test_a_name_that_no_copy_may_have_is_refused(
    tmp_path: Path, topic: str, lines: tuple[str, ...], words: str | None
) -> None:
    flow = flow_of(tmp_path, "gone-(?!heart)(.*):$1, in-(.*):heart$1", *lines)
    found = refused_names(flow, [topic])
    if words is None:
        assert not found
    else:
        assert found[topic].code == "RENAME_INVALID"
        assert words in str(found[topic])
        assert topic in str(found[topic])


STRIP = (
    *("A->B.transforms = strip", "A->B.transforms.strip.type = RegexRouter"),
    *(r"A->B.transforms.strip.regex = A\\.(.*)", "A->B.transforms.strip.replacement = $1"),
)
"""Configuration lines of a Kafka Connect router that removes the alias."""


def test_a_router_of_kafka_connect_is_a_rule_after_the_policy(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, "gone-(.*):$1, pay-v[12]:pay", *STRIP)
    assert remote(flow, "pay-v1") == "pay"
    assert is_renamed(flow, "orders") and not is_renamed(flow, "heartbeats")
    found = refused_names(flow, ["pay-v1", "pay", "gone-", "gone-mm2-x.internal", "orders", "A.x"])
    assert {topic: error.code for topic, error in found.items()} == {
        "pay-v1": "RENAME_CLASH",
        "pay": "RENAME_CLASH",
        "gone-": "RENAME_INVALID",
        "gone-mm2-x.internal": "RENAME_INVALID",
    }
    assert "(twinlog.rename: pay-v[12]:pay; transforms.strip)" in str(found["pay"])
    assert plain_upstream(flow, "A.orders") is None, "the flow names orders otherwise"
    assert FlowUpstreams.of(flow, [row("pay", NEW, "pay-v1")]).name("pay", NEW) == "pay-v1"


def row(topic: str, topic_id: TopicId, source: str) -> CopyRow:
    return CopyRow(
        lineage=(),
        begun=False,
        ended=False,
        flow="A->B",
        topic=topic,
        topic_id=topic_id,
        target_cluster_id="b",
        source_cluster_id="a",
        source_topic=source,
        source_topic_id=OLD,
        renamed=True,
    )


@pytest.mark.parametrize("rules", ["orders:eu-orders", "", "pay:eu-orders"], ids=str)
def test_names_map_back_to_the_copied_topics_under_any_current_rules(
    tmp_path: Path, rules: str
) -> None:
    flow = flow_of(tmp_path, rules)
    rows = copy_rows([row("A.eu-orders", NEW, "orders").encode()])
    upstreams = FlowUpstreams.of(flow, rows.values())
    assert upstreams.name("A.eu-orders", NEW) == "orders"
    assert upstreams.name("A.plain", NEW) == "plain"
    assert upstreams.name("C.plain", NEW) is None


def test_a_topic_without_a_row_has_its_plain_name_or_none(tmp_path: Path) -> None:
    upstreams = FlowUpstreams.of(flow_of(tmp_path, "eu-orders:x"), [])
    assert upstreams.name("A.eu-orders", NEW) is None, "the flow would not call it so"
    recreated = FlowUpstreams.of(flow_of(tmp_path, ""), [row("A.eu-orders", OLD, "orders")])
    assert recreated.name("A.eu-orders", NEW) == "eu-orders", "the row is of an earlier topic"
    identity = flow_of(tmp_path, "orders:eu-orders", IDENTITY)
    assert plain_upstream(identity, "orders") is None
    assert plain_upstream(identity, "pay") == "pay"


def test_rows_of_other_topics_do_not_change() -> None:
    plain = row("A.orders", NEW, "orders")
    assert b"renamed" in plain.encode()[1]
    key, value = CopyRow(
        **{name: getattr(plain, name) for name in plain.__struct_fields__} | {"renamed": False}
    ).encode()
    assert b"renamed" not in value
    assert not copy_rows([(key, value)])["A->B", "A.orders"].renamed


def test_literal_acls_follow_the_topics_that_are_copied_and_no_others(tmp_path: Path) -> None:
    rules = AclRules(flow_of(tmp_path, "orders:eu-orders, pay:eu-orders"))

    def acl(name: str) -> TopicAcl:
        return TopicAcl(
            name=name,
            pattern=int(Pattern.LITERAL),
            principal="User:app",
            host="*",
            operation=READ,
            permission=int(Permission.ALLOW),
        )

    wanted = rules.target_acls([acl("orders"), acl("pay"), acl("*")], {"orders"})
    assert {one.name for one in wanted} == {"A.eu-orders", "A.*"}


def test_topics_that_do_not_keep_their_names_under_the_identity_policy(tmp_path: Path) -> None:
    topics = ["device-heartbeats", "heartbeats", "C.heartbeats", "heartbeats-of-devices", "orders"]
    (line,) = unkept_names(loader(tmp_path)(IDENTITY, base=BASE).flows[0], topics)
    assert ": C.heartbeats is A.C.heartbeats, device-heartbeats is A.device-heartbeats;" in line
    (line,) = unkept_names(flow_of(tmp_path, "(.*):eu-$1", IDENTITY), topics)
    assert ": C.heartbeats is A.C.heartbeats, device-heartbeats is A.eu-device-heartbeats;" in line
    assert unkept_names(loader(tmp_path)(IDENTITY, base=BASE).flows[0], topics[3:]) == []
    routed = loader(tmp_path)(IDENTITY, *STRIP, base=BASE).flows[0]
    (line,) = unkept_names(routed, topics)
    assert ": C.heartbeats is A.C.heartbeats, device-heartbeats is device-heartbeats;" in line
    assert unkept_names(loader(tmp_path)(base=BASE).flows[0], topics) == []
