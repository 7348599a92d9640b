"""Filters written in Python, which replace MirrorMaker 2's Java classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import Loader, flow_of, refusal, warnings_of
from twinlog.config.values.warnings import WarningCode
from twinlog.errors import ConfigError
from twinlog.mirror.names.filters import ConfigPropertyFilter, TopicSelector, Verdict
from twinlog.wire.topic_settings import ConfigEntry

MODULE = """
class Topics:
    def __init__(self, properties):
        self.suffix = properties["topics"]

    def should_replicate_topic(self, topic):
        return topic.endswith(self.suffix)


class Groups:
    def should_replicate_group(self, group):
        return group[0] != "x"


class Configs:
    def should_replicate_config_property(self, name):
        return name == "retention.ms"


class Fails(Groups):
    def should_replicate_topic(self, topic):
        raise KeyError(topic)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_filters.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_class_alone_chooses_topics(read: Loader) -> None:
    config = read(
        "topic.filter.class = our_filters:Topics", "topics = -eu", "topics.exclude = orders.*"
    )
    selector = TopicSelector.of(flow_of(config))
    assert selector.verdict("orders-eu") is Verdict.SELECTED
    assert selector.verdict("orders-us") is Verdict.NOT_INCLUDED
    assert selector.verdict("__consumer_offsets") is Verdict.INTERNAL, "never"
    (warning,) = warnings_of(config, WarningCode.CUSTOM_CODE)
    assert warning.line == 5


def test_the_class_alone_chooses_groups(read: Loader) -> None:
    groups = flow_of(read("group.filter.class = our_filters:Groups", "groups = x.*")).groups
    assert (groups.selects("shop"), groups.selects("xshop")) == (True, False)
    assert not groups.selects("__twinlog-7.query"), "Twinlog's own groups are never translated"


def test_the_class_alone_chooses_config_properties(read: Loader) -> None:
    config = read("A->B.config.property.filter.class = our_filters:Configs")
    chosen = ConfigPropertyFilter.of(flow_of(config))

    def is_copied(name: str) -> bool:
        entry = ConfigEntry(name=name, value="1")
        return chosen.may_be_copied(entry)

    assert [is_copied(name) for name in ("retention.ms", "cleanup.policy")] == [True, False]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("topic.filter.class = our_filters:Groups", "no attribute 'should_replicate_topic'"),
        ("topic.filter.class = nowhere:Topics", "No module named 'nowhere'"),
        ("group.filter.class = com.example.Groups", "a Python class with should_replicate_group"),
    ],
)
def test_a_class_that_cannot_filter(read: Loader, line: str, words: str) -> None:
    message = refusal(lambda: read(line))
    assert message.startswith("mm2.properties:5: ")
    assert words in message


def test_an_error_of_the_filter_names_the_topic_and_the_line(read: Loader) -> None:
    flow = flow_of(read("topic.filter.class = our_filters:Fails"))
    with pytest.raises(ConfigError, match=r"properties:5: .*\('orders'\) .* failed: KeyError"):
        TopicSelector.of(flow).selects("orders")
