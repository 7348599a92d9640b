"""A replication policy that is written in Python is imported by its name and used, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import Loader, flow_of, refusal
from twinlog.config.flow.schema import PolicyKind
from twinlog.mirror.names.filters import TopicSelector, Verdict, policy_of

MODULE = '''
from dataclasses import dataclass
from twinlog.mirror.names.naming import DefaultReplicationPolicy, IdentityReplicationPolicy


class Suffixed(DefaultReplicationPolicy):
    """Names orders of us-west orders@us-west, with the separator instead of the @."""

    def format_remote_topic(self, source_alias, topic):
        return f"{topic}{self.separator}{source_alias}"

    def topic_source(self, topic):
        return topic.rpartition(self.separator)[2] if self.separator in topic else None

    def upstream_topic(self, topic):
        return topic.rpartition(self.separator)[0] or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(IdentityReplicationPolicy):
    """The identity policy under another name."""


class OneWay(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        return f"{topic}-of-{source_alias}"


class NoPolicy:
    pass


class Nameless(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        return None
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_names.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_it_names_topics_and_finds_cycles(read: Loader) -> None:
    flow = flow_of(
        read("replication.policy.class = our_names:Suffixed", "replication.policy.separator = _")
    )
    assert flow.policy.kind is PolicyKind.DEFAULT
    policy = policy_of(flow)
    assert policy.format_remote_topic("A", "orders") == "orders_A"
    assert policy.topic_source("orders_A") == "A"
    assert policy.original_topic("orders_A_C") == "orders"
    selector = TopicSelector.of(flow)
    assert selector.verdict("orders_B") is Verdict.CYCLE
    assert selector.verdict("orders_C") is Verdict.SELECTED


def test_one_that_keeps_names_counts_as_the_identity(read: Loader) -> None:
    flow = flow_of(read("A->B.replication.policy.class = our_names:Kept"))
    assert flow.policy.kind is PolicyKind.IDENTITY
    assert policy_of(flow).topic_source("orders") == "A"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("no_such_module:Policy", "ModuleNotFoundError"),
        ("our_names:Absent", "AttributeError"),
        ("our_names:NoPolicy", "is not a replication policy"),
        ("our_names:Nameless", "is not a replication policy"),
        (":", "cannot be used"),
    ],
)
def test_an_invalid_policy_is_refused_with_its_line(read: Loader, name: str, what: str) -> None:
    message = refusal(lambda: read("topics = a", f"replication.policy.class = {name}"))
    assert message.startswith("mm2.properties:6: replication.policy.class: ")
    assert what in message
    assert "write package.module:Class" in message


def test_one_that_does_not_undo_its_names_is_refused(read: Loader) -> None:
    message = refusal(lambda: read("replication.policy.class = our_names:OneWay"))
    assert "names `topic` of `source` 'topic-of-source', but maps that name back to None" in message
    assert (
        "make topic_source() and upstream_topic() the inverse of format_remote_topic()" in message
    )


@pytest.mark.parametrize("key", ["replication.policy.class", "topic.filter.class"])
def test_a_module_that_ends_the_process_is_refused_with_the_line(
    read: Loader, tmp_path: Path, key: str
) -> None:
    (tmp_path / "a_script.py").write_text("import sys\nsys.exit(0)\n")
    message = refusal(lambda: read(f"{key} = a_script:Class"))
    assert f'5: {key}: "a_script:Class" cannot be used: SystemExit: 0; write' in message
