"""The configs of a new remote topic, without those that the target's brokers do not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.properties import flow_of, loader
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized
from twinlog.survey import topic_configs
from twinlog.survey.topic_configs import NewConfigs, new_topic_configs
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource

OLD = "message.format.version"
OLDER = "message.downconversion.enable"
HERE = {"orders": {"retention.ms": "1", OLD: "3.0"}, "sales": {OLDER: "true"}, "plain": {}}


def entries(values: Mapping[str, str]) -> list[ConfigEntry]:
    return [
        ConfigEntry(name=name, value=value, source=ConfigSource.DYNAMIC_TOPIC)
        for name, value in values.items()
    ]


class Target:
    """A target with the topics `there`, whose brokers know only the config `retention.ms`."""

    def __init__(self, *there: str, is_closed: bool = False) -> None:
        self.there, self.is_closed = there, is_closed
        self.tried: list[str] = []

    def describe(self, client: Any, topics: Iterable[str]) -> dict[str, Any]:
        if client == "source":
            return {name: entries(HERE[name]) for name in topics}
        denied = Unauthorized("grant DESCRIBE_CONFIGS", code="TOPIC_UNAUTHORIZED")
        known = entries({"retention.ms": "9"})
        return dict.fromkeys(topics, denied if self.is_closed else known)

    def validate(self, _: Any, remote: str, *, configs: Mapping[str, str], **__: int) -> None:
        (name,) = configs
        self.tried.append(f"{remote} {name}")
        if name == OLD:
            raise BrokerRefused(f"INVALID_CONFIG (Unknown topic config name: {name})")
        if name == OLDER:
            raise BrokerRefused(f"INVALID_CONFIG (Invalid value for configuration {name})")

    def configs(self, folder: Any, monkeypatch: pytest.MonkeyPatch) -> NewConfigs:
        monkeypatch.setattr(topic_configs, "describe_topic_configs", self.describe)
        monkeypatch.setattr(topic_configs, "validate_topic", self.validate)
        there = {name: SimpleNamespace(error=0, operations=None) for name in self.there}
        return new_topic_configs(
            flow_of(loader(folder)()),
            cast("ClusterClient", "source"),
            cast("ClusterClient", "target"),
            cast("ClusterMetadata", SimpleNamespace(topics=there)),
            {name: f"A.{name}" for name in HERE},
        )


def test_unknown_configs_are_left_out_and_named_in_one_line(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("state", "other")
    found = target.configs(tmp_path, monkeypatch)
    assert found.by_topic == {"orders": {"retention.ms": "1"}, "sales": {}, "plain": {}}
    assert f"{OLDER}, {OLD};" in found.unknown
    assert "config.properties.exclude" in found.unknown
    assert (target.tried, found.unread) == ([], "")


@pytest.mark.parametrize(
    "target", [Target(), Target("state", is_closed=True)], ids=["empty", "closed"]
)
def test_without_a_topic_to_describe_each_config_is_tried_on_the_brokers(
    target: Target, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic exists whose configs could be described, so each config is tried on the brokers with
    validation only. A config with a value that they reject is not removed. Otherwise the topic
    would silently be created without it.
    """
    found = target.configs(tmp_path, monkeypatch)
    assert found.by_topic["orders"] == {"retention.ms": "1"}
    assert found.by_topic["sales"] == {OLDER: "true"}
    assert sorted(target.tried) == [f"A.orders {OLD}", "A.orders retention.ms", f"A.sales {OLDER}"]


def test_known_configs_need_no_line(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HERE, "orders", {"retention.ms": "1"})
    monkeypatch.setitem(HERE, "sales", {})
    assert Target("state").configs(tmp_path, monkeypatch).unknown == ""


def test_topics_that_may_not_be_read_are_reported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("state")
    error: TwinlogError = Unauthorized("grant it", code="TOPIC_UNAUTHORIZED")
    monkeypatch.setattr(target, "describe", lambda _, topics: dict.fromkeys(topics, error))
    found = target.configs(tmp_path, monkeypatch)
    assert (found.by_topic, found.unknown) == ({}, "")
    assert "3 topics are not copied" in found.unread
