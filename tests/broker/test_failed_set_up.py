"""A set-up that fails runs no lane: whoever leads the flow next waits for none of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client import eventually, produce
from tests.support.groups import Pair, numbered
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import create_topic, end_offsets, topic_names
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.config.load import load
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.leading.claims import FlowClaims
from twinlog.errors import TwinlogError, Unreachable
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.generations import FlowHistory, winning_claims
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

TOO_MANY = "replication.factor = 2\n"
"""The target has one broker."""


@pytest.fixture
def pair(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Pair:
    made = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    create_topic(made.a, made.topic)
    produce(made.a, made.topic, numbered(0, 10))
    return made


def set_up(pair: Pair, more: str = "") -> FlowSetup:
    text = pair.config.read_text()
    pair.config.write_text(text + more)
    setup = flow_setup(load(pair.config, environment={}).flows[0])
    pair.config.write_text(text)
    return setup


def fails(setup: FlowSetup) -> None:
    with pytest.raises(TwinlogError, match="replication"):
        setup.prepare(once=False)


def no_answer(*_: object, **__: object) -> None:
    raise Unreachable("no answer of replication")


def history(pair: Pair) -> FlowHistory:
    with ClusterClient(settings_for(pair.b.bootstrap)) as client:
        rows = [(row.key, row.value) for row in read_to_end(client, STATE_TOPIC, 0)]
    return winning_claims(rows)[f"{pair.alias_a}->{pair.alias_b}"]


@pytest.mark.witness("a set-up that failed leaves nothing to wait for")
def test_the_next_process_waits_for_nothing(pair: Pair) -> None:
    first = set_up(pair, TOO_MANY)
    fails(first)
    fails(first)
    assert not history(pair).is_closed, "it tries again, and leads as long"
    first.close(None)
    assert history(pair).is_closed
    prepared = set_up(pair).prepare(once=False)
    assert prepared.clean
    prepared.close(drained=True)


def test_nor_does_the_next_try_or_the_configuration_that_replaces_this_one(pair: Pair) -> None:
    first, second = set_up(pair, TOO_MANY), set_up(pair)
    fails(first)
    first.hand_on(second)
    prepared = second.prepare(once=False)
    assert prepared.clean
    assert second.claims.idle is None, "lanes run in this one"
    prepared.close(drained=False)
    assert not history(pair).is_closed


def test_what_was_killed_before_it_is_waited_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(FlowClaims, "end", lambda *_: None)
        with Mirror(pair.config, once=True) as mirror:
            mirror.wait()
    first = set_up(pair)
    with monkeypatch.context() as failing:
        failing.setattr(FlowSetup, "_discover", no_answer)
        fails(first)
        fails(first)
    first.close(None)
    assert not history(pair).is_closed
    prepared = set_up(pair).prepare(once=False)
    assert not prepared.clean
    prepared.close(drained=False)


def test_mirror_copies_at_once_behind_one_that_could_not_begin(pair: Pair) -> None:
    text = pair.config.read_text()
    pair.config.write_text(text + TOO_MANY)
    with Mirror(pair.config) as mirror:
        eventually(lambda: any("REPLICATION_FACTOR" in one.reason for one in mirror.snapshots))
        mirror.stop()
    assert history(pair).is_closed
    pair.config.write_text(text)
    with Mirror(pair.config) as mirror:
        eventually(
            lambda: (
                pair.remote in topic_names(pair.b)
                and sum(end_offsets(pair.b, pair.remote).values()) == 10
            )
        )
        mirror.stop()
