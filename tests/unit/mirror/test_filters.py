"""Which topics are mirrored, and with which configs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.properties import flow_of, loader
from twinlog.config.regex.patterns import compile_names
from twinlog.mirror.names.config_rules import own_values, wanted_configs
from twinlog.mirror.names.filters import (
    ConfigPropertyFilter,
    TopicSelector,
    Verdict,
    is_remote_topic_of,
    policy_of,
)
from twinlog.mirror.names.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
)
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_alias="source")
IDENTITY_CLASS = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def selector(
    topics: str = ".*",
    exclude: str = "",
    *,
    heartbeats: bool = True,
    policy: DefaultReplicationPolicy = DEFAULT,
) -> TopicSelector:
    return TopicSelector(
        topics=compile_names([topics] if topics else []),
        topics_exclude=compile_names([exclude] if exclude else []),
        heartbeats=heartbeats,
        policy=policy,
        target_alias="target",
    )


@pytest.mark.parametrize(
    ("topics", "exclude", "topic", "verdict"),
    [
        ("a.*", "", "abc", Verdict.SELECTED),
        ("a.*", "", "bab", Verdict.NOT_INCLUDED),
        ("a.*", "ab.*", "abc", Verdict.EXCLUDED),
        ("", "", "abc", Verdict.NOT_INCLUDED),
        (".*", "", "__consumer_offsets", Verdict.INTERNAL),
        (".*", "", "mm2-offsets.x.internal", Verdict.INTERNAL),
        (".*", "", "target.abc", Verdict.CYCLE),
        (".*", "", "orders.internal", Verdict.SELECTED),
    ],
)
def test_the_filter_decides_within_limits(
    topics: str, exclude: str, topic: str, verdict: Verdict
) -> None:
    assert selector(topics, exclude).verdict(topic) is verdict


@pytest.mark.parametrize(
    "topic", ["target.t", "target.source.t", "source.target.t", "x.y.target.t"]
)
def test_nothing_goes_back_to_where_it_came_from(topic: str) -> None:
    assert selector().is_cycle(topic)
    assert not selector().selects(topic)


@pytest.mark.parametrize("topic", ["t", "source.t", "source.source.t", "target", "targets.t", "t."])
def test_other_remote_topics_are_mirrored_on(topic: str) -> None:
    assert selector().selects(topic)


@pytest.mark.parametrize("topic", ["target.t", "target.source.t", "source.t", "t"])
def test_the_identity_policy_sees_no_cycles(topic: str) -> None:
    assert selector(policy=IDENTITY).selects(topic)


@pytest.mark.parametrize("topic", ["target.heartbeats", "target.source.heartbeats"])
def test_the_identity_policy_sees_cycles_of_heartbeats(topic: str) -> None:
    assert selector(policy=IDENTITY).verdict(topic) is Verdict.CYCLE


@pytest.mark.parametrize(
    ("topic", "verdict"),
    [
        ("eu.west.t", Verdict.CYCLE),
        ("us.east.eu.west.t", Verdict.CYCLE),
        ("eu.west..", Verdict.SELECTED),
        ("eu.west", Verdict.SELECTED),
        ("neu.west.t", Verdict.SELECTED),
        ("eu.t", Verdict.SELECTED),
    ],
)
def test_an_alias_that_contains_the_separator_is_found_as_a_whole(
    topic: str, verdict: Verdict
) -> None:
    chosen = replace(selector(), target_alias="eu.west")
    assert chosen.verdict(topic) is verdict


@pytest.mark.parametrize("topic", ["heartbeats", "source.heartbeats"])
def test_heartbeats_are_mirrored_despite_the_filter(topic: str) -> None:
    assert selector("nothing").selects(topic)
    assert selector(".*", ".*").selects(topic)
    assert not selector("nothing", heartbeats=False).selects(topic)
    assert selector(heartbeats=False).selects(topic)


def test_internal_topics_of_twinlog_are_not_mirrored_whatever_the_separator_is() -> None:
    policy = DefaultReplicationPolicy(separator="_", internal_separator="_")
    chosen = selector(policy=policy)
    assert chosen.verdict("mm2-twinlog-state.internal") is Verdict.INTERNAL


def test_a_selector_of_a_flow(tmp_path: Path) -> None:
    config = loader(tmp_path)("A->B.topics = a.*, B.x", "A->B.topics.exclude = ab")
    chosen = TopicSelector.of(flow_of(config))
    names = ["a", "ab", "abc", "B.x", "heartbeats", "mm2-x.internal", "c"]
    assert [name for name in names if chosen.selects(name)] == ["a", "abc", "heartbeats"]


def test_the_policy_of_a_flow(tmp_path: Path) -> None:
    load = loader(tmp_path)
    plain = policy_of(flow_of(load("replication.policy.separator = _")))
    assert plain == DefaultReplicationPolicy(separator="_", internal_separator="_")
    same = policy_of(flow_of(load(f"replication.policy.class = {IDENTITY_CLASS}")))
    assert same == IdentityReplicationPolicy(source_alias="A")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("source.t", True),
        ("source.other.t", True),
        ("t", False),
        ("other.t", False),
        ("source.checkpoints.internal", False),
    ],
)
def test_remote_topics_of_a_source(topic: str, expected: bool) -> None:
    assert is_remote_topic_of(DEFAULT, "source", topic) is expected


def entry(name: str, **changes: object) -> ConfigEntry:
    return ConfigEntry(name=name, value=f"{name}-value", **changes)  # type: ignore[arg-type]


DEFAULT_ENTRY = entry("a.default", source=ConfigSource.DEFAULT)


@pytest.mark.parametrize(
    ("given", "copied"),
    [
        (entry("retention.ms"), True),
        (entry("dynamic.broker", source=ConfigSource.DYNAMIC_BROKER), False),
        (entry("cluster.wide", source=ConfigSource.DYNAMIC_DEFAULT_BROKER), True),
        (DEFAULT_ENTRY, False),
        (entry("static", source=ConfigSource.STATIC_BROKER), False),
        (entry("read.only", is_read_only=True), False),
        (entry("sensitive", is_sensitive=True), False),
        (entry("excluded.one"), False),
        (ConfigEntry(name="no.value", value=None), False),
    ],
)
def test_configs_of_a_new_remote_topic(given: ConfigEntry, copied: bool) -> None:
    chosen = ConfigPropertyFilter(exclude=compile_names([r"excluded\..*"]), copies_defaults=False)
    expected = {given.name: given.value} if copied else {}
    assert own_values(wanted_configs(chosen, [given])) == expected


def test_the_sources_defaults_are_copied_on_request() -> None:
    chosen = ConfigPropertyFilter(exclude=compile_names(["b"]), copies_defaults=True)
    others = [
        entry("b", source=ConfigSource.DEFAULT),
        entry("c", source=ConfigSource.DEFAULT, is_read_only=True),
    ]
    assert own_values(wanted_configs(chosen, [DEFAULT_ENTRY, *others])) == {
        "a.default": "a.default-value"
    }


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("retention.ms", True),
        ("message.timestamp.before.max.ms", False),
        ("message.timestamp.after.max.ms", False),
        ("message.timestamp.difference.max.ms", False),
        ("min.insync.replicas", False),
        ("unclean.leader.election.enable", False),
        ("follower.replication.throttled.replicas", False),
        ("message.timestamp.type", False),
    ],
)
def test_the_default_exclusions(tmp_path: Path, name: str, copied: bool) -> None:
    chosen = ConfigPropertyFilter.of(flow_of(loader(tmp_path)()))
    assert (own_values(wanted_configs(chosen, [entry(name)])) != {}) is copied


@pytest.mark.parametrize(
    ("exclude", "copied"),
    [
        ("message.timestamp.difference.max.ms", False),
        ("log\\.message\\..*", False),
        ("message.timestamp.before.max.ms", False),
        ("message.timestamp.type, min.insync.replicas", True),
    ],
)
def test_limits_of_timestamps_are_left_out_under_any_of_their_names(
    exclude: str, copied: bool
) -> None:
    chosen = ConfigPropertyFilter(exclude=compile_names(exclude.split(", ")), copies_defaults=False)
    assert chosen.may_be_copied(entry("message.timestamp.before.max.ms")) is copied


@pytest.mark.parametrize(("value", "copied"), [("source", True), ("target", False), ("x", False)])
def test_whose_defaults_a_flow_takes(tmp_path: Path, value: str, copied: bool) -> None:
    flow = flow_of(loader(tmp_path)(f"use.defaults.from = {value}"))
    assert ConfigPropertyFilter.of(flow).copies_defaults is copied
