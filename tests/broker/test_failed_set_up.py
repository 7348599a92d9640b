"""A set-up that fails has started no lane, so the next leader of the flow does not wait for
lanes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from tests.support.client import eventually, produce
from tests.support.eventually import PATIENCE_S
from tests.support.groups import Pair, numbered
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import create_topic, log_size
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.config.load import load
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.leading.lead import Fenced, StandingBy
from twinlog.errors import TwinlogError, Unreachable
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.generations import FlowHistory, winning_claims
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

TOO_MANY = "replication.factor = 2\n"
"""Configuration line that demands more replicas than the target has brokers."""


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


def fails_at_once(setup: FlowSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(FlowSetup, "_discover", no_answer)
        fails(setup)


def another_leads(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> tuple[FlowSetup, PreparedFlow]:
    """Return the set-up of a process that failed and lost the lead, and the flow of the process
    that leads now.
    """
    first, second = set_up(pair), set_up(pair)
    fails_at_once(first, monkeypatch)
    assert first.membership is not None
    first.membership.leave()
    return first, second.prepare(once=False)


def was_killed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(FlowClaims, "end", lambda *_: None)
        with Mirror(pair.config, once=True) as mirror:
            mirror.wait()
    assert not history(pair).is_closed


def copied(pair: Pair) -> int:
    return log_size(pair.b, pair.remote)


def history(pair: Pair) -> FlowHistory:
    with ClusterClient(settings_for(pair.b.bootstrap)) as client:
        rows = [(row.key, row.value) for row in read_to_end(client, STATE_TOPIC, 0)]
    return winning_claims(rows)[f"{pair.alias_a}->{pair.alias_b}"]


@pytest.mark.witness("after a failed set-up nothing waits for lanes")
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


def test_nor_does_its_next_try(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = set_up(pair)
    fails_at_once(setup, monkeypatch)
    prepared = setup.prepare(once=False)
    assert prepared.clean
    prepared.close(drained=False)
    assert not history(pair).is_closed, "lanes may have run in this one"


def test_a_set_up_waits_for_late_requests_of_a_killed_process(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_killed(pair, monkeypatch)
    first = set_up(pair)
    fails_at_once(first, monkeypatch)
    first.close(None)
    assert not history(pair).is_closed
    prepared = set_up(pair).prepare(once=False)
    assert not prepared.clean
    prepared.close(drained=False)


def test_a_set_up_waits_for_late_requests_once_however_often_it_fails(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was killed, and the set-up of the next process fails repeatedly. The wait for late
    requests begins at the first attempt in which that process leads. Later attempts do not extend
    the wait.
    """
    was_killed(pair, monkeypatch)
    monkeypatch.setattr("twinlog.lane.late_requests.wait_s", lambda: 3600.0)
    first = set_up(pair)
    fails_at_once(first, monkeypatch)
    until = first.claims.quiet_at
    fails_at_once(first, monkeypatch)
    assert first.claims.quiet_at == until
    monkeypatch.setattr(first.claims, "quiet_at", 0.0)
    prepared = first.prepare(once=False)
    assert prepared.clean
    prepared.close(drained=False)


def test_a_generation_that_another_process_claimed_is_not_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process's claim was lost from the state topic, and another process has won a claim of the
    same generation. When the earlier process ends, it must not record that the generation has
    ended, because the other process still runs it.
    """
    first, prepared = another_leads(pair, monkeypatch)
    idle = first.claims.idle
    assert idle is not None
    first.claims.idle = structs.replace(idle, generation=prepared.generation)
    first.close(None)
    assert not history(pair).is_closed
    prepared.close(drained=True)


def test_a_process_that_sees_another_leader_ends_no_generation(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, prepared = another_leads(pair, monkeypatch)
    first.membership = None
    assert not prepared.clean, "it has not said that it ended"
    with pytest.raises(StandingBy):
        eventually(lambda: first.prepare(once=False) is None)
    assert first.claims.idle is None
    first.close(None)
    prepared.close(drained=True)


def test_a_promotion_ends_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = set_up(pair)
    fails_at_once(setup, monkeypatch)
    assert run(["flow", "promote", "--yes", str(pair.config)]) == 0
    with pytest.raises(Fenced):
        setup.prepare(once=False)
    assert history(pair).is_closed


def test_mirror_copies_immediately_after_one_that_could_not_start(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ending the generation may take longer than a second on a busy machine, so wait longer
    monkeypatch.setattr("twinlog.control.leading.claims.IDLE_ENDS_WITHIN_S", PATIENCE_S)
    text = pair.config.read_text()
    pair.config.write_text(text + TOO_MANY)
    with Mirror(pair.config) as mirror:
        eventually(lambda: any("replication.factor" in one.reason for one in mirror.snapshots))
        mirror.stop()
    assert history(pair).is_closed
    pair.config.write_text(text)
    monkeypatch.setattr("twinlog.lane.late_requests.wait_s", lambda: 3600.0)
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 10)
        mirror.stop()


def test_a_corrected_file_is_applied_immediately(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = pair.config.read_text()
    pair.config.write_text(text + TOO_MANY)
    with Mirror(pair.config) as mirror:
        eventually(lambda: any("replication.factor" in one.reason for one in mirror.snapshots))
        pair.config.write_text(text)
        monkeypatch.setattr("twinlog.lane.late_requests.wait_s", lambda: 3600.0)
        mirror.reload()
        eventually(lambda: copied(pair) == 10)
        mirror.stop()


def test_a_run_without_partitions_does_not_end_the_generation_of_a_killed_process(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_killed(pair, monkeypatch)
    killed = history(pair).latest
    text = pair.config.read_text()
    pair.config.write_text(text.replace(f"topics = {pair.topic}", f"topics = no-{pair.topic}"))
    with Mirror(pair.config) as mirror:
        eventually(lambda: history(pair).latest != killed)
        mirror.stop()
    assert not history(pair).is_closed
