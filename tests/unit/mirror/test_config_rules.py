"""What a config sync sends, as in MirrorMaker 2's MirrorSourceConnectorTest on config properties,
and the differences from it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinlog.config.regex.patterns import compile_names
from twinlog.mirror.names.config_rules import (
    ConfigDiff,
    differences,
    may_shorten_life,
    shortens_life,
    unknown_names,
    wanted_configs,
)
from twinlog.mirror.names.filters import ConfigPropertyFilter
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource

NAME = "retention.ms"


def test_a_removed_value_may_shorten_life_depending_on_the_brokers() -> None:
    """If a topic's own retention is removed, the brokers' default applies, which may be an hour. So
    the removal may shorten the life of records.
    """
    gone = ConfigDiff(name=NAME, new=None, old="172800000", was_own=True)
    assert (shortens_life(gone), may_shorten_life(gone)) == (False, True)
    assert not may_shorten_life(replace(gone, new="172800001"))
    assert not may_shorten_life(replace(gone, name="segment.bytes"))
    tier = ConfigDiff(name="remote.storage.enable", new="false", old="true", was_own=True)
    assert may_shorten_life(tier)


def entry(
    value: str | None, source: int = ConfigSource.DYNAMIC_TOPIC, **changes: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=NAME,
        value=value,
        source=source,
        **changes,
    )


def chosen(*, copies_defaults: bool = False, exclude: str = "") -> ConfigPropertyFilter:
    return ConfigPropertyFilter(
        exclude=compile_names([exclude] if exclude else []), copies_defaults=copies_defaults
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (entry("1"), {NAME: "1"}),
        (entry(""), {NAME: ""}),
        (entry("1", ConfigSource.DYNAMIC_BROKER), {}),
        (entry("1", ConfigSource.DYNAMIC_DEFAULT_BROKER), {NAME: "1"}),
        (entry("1", ConfigSource.DEFAULT), {NAME: None}),
        (entry(None, ConfigSource.DEFAULT), {NAME: None}),
        (entry("1", ConfigSource.STATIC_BROKER), {}),
        (entry("1", is_read_only=True), {}),
        (entry(None, is_sensitive=True), {}),
        (entry(None), {}),
    ],
    ids=str,
)
def test_which_sources_count(given: ConfigEntry, wanted: dict[str, str | None]) -> None:
    """MirrorMaker 2's testConfigPropertyFiltering: only DEFAULT_CONFIG is a default. Values from a
    broker's file, or that are set for a single broker, are ignored, because another broker would
    respond differently.
    """
    assert wanted_configs(chosen(), [given]) == wanted


def test_the_sources_defaults_are_set_on_request() -> None:
    """MirrorMaker 2's testConfigPropertyFilteringWithAlterConfigsAndSourceDefault: the source's
    defaults are set if the configuration requests it.
    """
    given = [entry("1", ConfigSource.DEFAULT)]
    assert wanted_configs(chosen(copies_defaults=True), given) == {NAME: "1"}


@pytest.mark.parametrize("source", [ConfigSource.DYNAMIC_TOPIC, ConfigSource.DEFAULT])
def test_excluded_configs_are_neither_set_nor_removed(source: ConfigSource) -> None:
    rules = chosen(exclude=r"retention\..*", copies_defaults=source is ConfigSource.DYNAMIC_TOPIC)
    assert wanted_configs(rules, [entry("1", source)]) == {}


@pytest.mark.parametrize(
    ("wanted", "target", "change"),
    [
        ("1", entry("1"), None),
        ("1", entry("2"), ConfigDiff(name=NAME, new="1", old="2", was_own=True)),
        # the topic's own value equals the default today, but not after the default changes
        (
            "1",
            entry("1", ConfigSource.DEFAULT),
            ConfigDiff(name=NAME, new="1", old="1", was_own=False),
        ),
        (
            "1",
            entry("1", ConfigSource.STATIC_BROKER),
            ConfigDiff(name=NAME, new="1", old="1", was_own=False),
        ),
        (None, entry("2"), ConfigDiff(name=NAME, new=None, old="2", was_own=True)),
        (None, entry("2", ConfigSource.DEFAULT), None),
        (None, entry("2", ConfigSource.DYNAMIC_DEFAULT_BROKER), None),
    ],
)
def test_only_differences_are_sent(
    wanted: str | None, target: ConfigEntry, change: ConfigDiff | None
) -> None:
    assert differences({NAME: wanted}, [target]) == ([] if change is None else [change])


def test_a_config_that_the_targets_brokers_do_not_have_is_not_sent() -> None:
    wanted = {NAME: "1", "new.in.kafka.5": "x", "other": None}
    assert [one.name for one in differences(wanted, [entry("2")])] == [NAME]
    assert unknown_names(wanted, [entry("2")]) == ["new.in.kafka.5"]


def test_a_difference_shows_both_values() -> None:
    one = ConfigDiff(name=NAME, new=None, old="2", was_own=True)
    assert str(one) == "retention.ms 2 -> (default)"


@pytest.mark.parametrize(
    ("name", "old", "new", "shortens"),
    [
        ("retention.ms", "7200000", "3600000", True),
        ("retention.ms", "3600000", "7200000", False),
        ("retention.ms", "-1", "3600000", True),
        ("retention.ms", "3600000", "-1", False),
        ("retention.ms", "-1", None, True),  # the default is a week
        ("retention.ms", "604800000", None, False),
        ("retention.ms", "3600000", None, False),
        ("retention.ms", None, "3600000", True),
        ("retention.bytes", "-1", "1000", True),
        ("retention.bytes", "1000", None, False),
        ("cleanup.policy", "compact", "compact,delete", True),
        ("cleanup.policy", "compact", None, True),
        ("cleanup.policy", "delete", "compact", True),
        ("cleanup.policy", "compact, delete", "delete", False),
        ("cleanup.policy", "compact,delete", "compact", False),
        ("segment.bytes", "2000000", "1048576", False),
    ],
)
def test_changes_that_shorten_the_life_of_records(
    name: str, old: str | None, new: str | None, shortens: bool
) -> None:
    assert shortens_life(ConfigDiff(name=name, new=new, old=old, was_own=True)) is shortens
