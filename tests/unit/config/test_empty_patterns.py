"""Patterns that provably match no name, and patterns for which this is unknown."""

from __future__ import annotations

import pytest

from tests.support.properties import Loader, refusal, warnings_of
from twinlog.config.advice.audit import intended_pattern, why_never_matches
from twinlog.config.regex.patterns import compile_java
from twinlog.config.values.warnings import WarningCode

NAMES = ("", "a", "b", "orders", "heartbeats", "a.heartbeats", "app1-t1")


@pytest.mark.parametrize(
    "pattern",
    ["^(?!.*(heartbeats|)).*$", "(?!.*).*", "(?!a?)b", "(?!(a|b)*).+", r"(?!\d*)[a-z]+"],
)
def test_nothing_matches(pattern: str) -> None:
    assert why_never_matches(pattern, names_topics=False)
    assert [name for name in NAMES if compile_java(pattern).fullmatch(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?!.*heartbeats).*$",
        "(?!a+).*",
        "(?!^$).*",  # excludes only the empty name, because `^$` matches only there
        r"(?!a*\z).*",
        "(?!.*)a|b",
        "(?!(a*))?.*",
        "(?=.*).*",
        "[(?!)]",
        r"\(?!x",
    ],
)
def test_something_may_match(pattern: str) -> None:
    assert why_never_matches(pattern, names_topics=False) is None


@pytest.mark.parametrize("entry", ["orders payments", "orders/eu", "orders;payments"])
def test_no_topic_has_such_a_name_but_a_group_may(entry: str) -> None:
    assert "matches no topic" in (why_never_matches(entry, names_topics=True) or "")
    assert why_never_matches(entry, names_topics=False) is None


@pytest.mark.parametrize(
    ("entry", "meant"),
    [("orders*", "orders.*"), ("app_1-*", "app_1-.*"), ("orders.*", None), ("a[b]*", None)],
)
def test_a_star_of_a_shell(entry: str, meant: str | None) -> None:
    assert intended_pattern(entry) == meant


def test_they_are_reported_with_their_line(read: Loader) -> None:
    config = read("topics = a b, orders*", "A->B.groups.exclude = (?!.*)x")
    blank, never = warnings_of(config, WarningCode.MATCHES_NOTHING)
    assert (blank.line, never.line) == (5, 6)
    assert "topic names cannot have a blank; separate names by commas" in blank.message
    (star,) = warnings_of(config, WarningCode.STAR_PATTERN)
    assert "did you mean orders.*?" in star.message


@pytest.mark.parametrize(
    ("lines", "starts", "holds"),
    [
        (
            ["emit.offset-syncs.enabled = false", "A->B.offset-syncs.topic.location = target"],
            "mm2.properties:6: A->B.offset-syncs.topic.location: ",
            "emit.offset-syncs.enabled is false (",
        ),
        (
            ["offset-syncs.topic.replication.factor = 1", "A->B.emit.offset-syncs.enabled=FALSE"],
            "mm2.properties:5: offset-syncs.topic.replication.factor: ",
            "mm2.properties:6); remove one",
        ),
        (
            [
                "A.consumer.isolation.level = read_uncommitted",
                "A->B.exactly.once.support = required",
            ],
            "mm2.properties:6: A->B.exactly.once.support: ",
            "A.consumer.isolation.level is read_uncommitted (",
        ),
        (
            ["twinlog.target.partitions = same", "A->B.twinlog.new.topic.partitions = default"],
            "mm2.properties:6: A->B.twinlog.new.topic.partitions: ",
            "add twinlog.target.partitions = keyed, or remove",
        ),
        (
            ["twinlog.rpo.enforce = quota"],
            "mm2.properties:5: twinlog.rpo.enforce: ",
            "add twinlog.rpo.seconds = NUMBER",
        ),
    ],
)
def test_settings_that_contradict_each_other(
    read: Loader, lines: list[str], starts: str, holds: str
) -> None:
    message = refusal(lambda: read(*lines))
    assert message.startswith(starts)
    assert holds in message


def test_patterns_that_only_look_like_a_contradiction(read: Loader) -> None:
    read("emit.offset-syncs.enabled = true", "offset-syncs.topic.location = target")
    read("emit.offset-syncs.enabled = false", "offset.lag.max = 5")
    read("exactly.once.support = required")
    read("twinlog.rpo.enforce = quota", "A->B.twinlog.rpo.seconds = 30")
    read("twinlog.target.partitions = keyed", "A->B.twinlog.new.topic.partitions = default")
    read("twinlog.target.partitions = same", "A->B.twinlog.new.topic.partitions = source")
