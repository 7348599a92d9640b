"""A promoted flow copies nothing any more, whichever processes are restarted, on real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.groups import Pair, commit, committed, numbered
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import create_topic, log_size
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.codes import FlowState, PartitionState
from twinlog.config.load import load
from twinlog.control.flow.steering import IntentFollower
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.leading.lead import Fenced
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.errors import FlowError
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.generations import FlowHistory, winning_claims
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.fixture
def pair(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Pair:
    made = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    with made.config.open("a") as file:
        file.write("refresh.topics.interval.seconds = 1\n")
    create_topic(made.a, made.topic)
    produce(made.a, made.topic, numbered(0, 10))
    return made


def name_of(pair: Pair) -> str:
    return f"{pair.alias_a}->{pair.alias_b}"


def copied(pair: Pair) -> int:
    return log_size(pair.b, pair.remote)


def state(mirror: Mirror) -> FlowSnapshot:
    (found,) = mirror.snapshots
    return found


def history(pair: Pair) -> FlowHistory:
    with ClusterClient(settings_for(pair.b.bootstrap)) as client:
        rows = [(row.key, row.value) for row in read_to_end(client, STATE_TOPIC, 0)]
    return winning_claims(rows)[name_of(pair)]


def do(pair: Pair, *words: str) -> int:
    command, verb, *rest = words
    return run([command, verb, str(pair.config), *rest])


@pytest.mark.witness("a promoted flow copies nothing, also after restarts")
def test_promoted_flow_copies_nothing_after_any_restart(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"{pair.group}-one"
    commit(pair.a, group, pair.topic, 4)
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 10)
        eventually(lambda: committed(pair.b, group, pair.remote) == 4)
        assert do(pair, "flow", "promote", "--dry-run") == 0
        assert "would be promoted" in capsys.readouterr().out
        assert do(pair, "flow", "promote", "--yes", "--reason", "A is lost") == 0
        assert f"{name_of(pair)}: promoted" in capsys.readouterr().out
        eventually(lambda: state(mirror).state is FlowState.FENCED)
        assert "A is lost" in state(mirror).reason
        assert history(pair).is_closed, "its lanes ended in order, and it says so"
        generation = history(pair).latest
        produce(pair.a, pair.topic, numbered(10, 5))
        commit(pair.a, group, pair.topic, 9)
        # the remote topic's new owner writes to it
        produce(pair.b, pair.remote, [Outgoing(value=b"1000")])
        mirror.stop()
    with Mirror(pair.config) as mirror:
        eventually(lambda: bool(mirror.snapshots) and state(mirror).state is FlowState.FENCED)
        assert do(pair, "flow", "promote", "--yes") == 0
        assert "promoted already, by " in capsys.readouterr().out
        mirror.stop()
    assert [one.value for one in read_all(pair.b, pair.remote)][-1] == b"1000"
    assert copied(pair) == 11
    assert committed(pair.b, group, pair.remote) == 4, "groups are not written either"
    assert history(pair).latest == generation, "nobody led it since"
    with Mirror(pair.config, once=True) as mirror:
        (flow,) = mirror.wait()
    assert (flow.state, flow.code) == (FlowState.FAILED, "FENCED")
    assert run(["status", str(pair.config), "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["mirrors"][0]["flows"]
    assert shown["state"] == "FENCED"
    assert "A is lost" in shown["reason"]


def copy(pair: Pair) -> None:
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        mirror.wait()


def test_it_is_fenced_though_its_source_is_gone(pair: Pair) -> None:
    copy(pair)
    assert do(pair, "flow", "promote", "--yes") == 0
    text = pair.config.read_text().replace(pair.a.bootstrap, "127.0.0.1:1")
    pair.config.write_text(text)
    with Mirror(pair.config) as mirror:
        eventually(lambda: bool(mirror.snapshots) and state(mirror).state is FlowState.FENCED)
        mirror.stop()


def test_demoted_flow_continues_at_the_next_record(pair: Pair) -> None:
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 10)
        assert do(pair, "flow", "promote", "--yes") == 0
        eventually(lambda: state(mirror).state is FlowState.FENCED)
        produce(pair.a, pair.topic, numbered(10, 5))
        assert do(pair, "flow", "demote", "--yes") == 0
        eventually(lambda: copied(pair) == 15)
        mirror.stop()
    assert [one.value for one in read_all(pair.b, pair.remote)] == [b"%d" % n for n in range(15)]


def test_promoted_topic_is_left_unchanged_until_it_is_demoted(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 10)
        assert do(pair, "topic", "promote", "--topics", pair.topic) == 0
        mirror.eventually(lambda parts: {p.state for p in parts} == {PartitionState.PROMOTED})
        assert do(pair, "topic", "resume", "--topics", pair.topic) == 2, "that is for a release"
        assert state(mirror).state is FlowState.RUNNING
        produce(pair.a, pair.topic, numbered(10, 5))
        assert do(pair, "topic", "demote", "--topics", pair.topic) == 0
        assert "demoted" in capsys.readouterr().out
        eventually(lambda: copied(pair) == 15)
        mirror.stop()


@pytest.mark.witness("a promoted topic is shown with who promoted it, when and why")
def test_promoted_topic_is_shown_with_author_time_and_reason_after_any_restart(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(parts: list[PartitionSnapshot]) -> bool:
        return [
            (one.topic, one.target_topic, one.state, "A is lost" in one.message) for one in parts
        ] == [(pair.topic, pair.remote, PartitionState.PROMOTED, True)]

    group = f"{pair.group}-one"
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 10)
        assert do(pair, "topic", "promote", "--topics", pair.topic, "--reason", "A is lost") == 0
        mirror.eventually(shown)
        mirror.stop()
    commit(pair.a, group, pair.topic, 4)
    with Mirror(pair.config) as mirror:
        mirror.eventually(shown)
        eventually(lambda: "A is lost" in state(mirror).groups_without_checkpoint.get(group, ""))
        mirror.stop()
    with Mirror(pair.config, once=True) as mirror:
        (flow,) = mirror.wait()
    assert shown(list(flow.partitions))
    capsys.readouterr()
    assert run(["status", str(pair.config), "--format", "json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["mirrors"][0]["flows"]
    (part,) = seen["partitions"]
    assert (part["state"], "A is lost" in part["message"]) == ("PROMOTED", True)
    assert run(["status", str(pair.config)]) == 0
    out = capsys.readouterr().out
    assert ("PROMOTED" in out, "promoted by " in out) == (True, True), out
    run(["groups", "ready", str(pair.config), "--group", group])
    said = capsys.readouterr().out
    assert "A is lost" in said
    assert "not mirrored by this flow" not in said


def test_promotion_between_a_check_and_the_claim_is_detected_before_anything_runs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion writes its row and then reads the claims. A process writes its claim and then
    reads the promotions. So if a flow is promoted directly before a claim, the process stops before
    it starts a lane.
    """
    copy(pair)
    real = FlowClaims.claim

    def claim(*arguments: Any, **named: Any) -> Any:
        assert do(pair, "flow", "promote", "--yes") == 0
        return real(*arguments, **named)

    monkeypatch.setattr(FlowClaims, "claim", claim)
    setup = flow_setup(load(pair.config, environment={}).flows[0])
    with pytest.raises(Fenced):
        setup.prepare(once=False)
    assert history(pair).is_closed
    assert setup.membership is None, "whoever demotes it finds the lead free"
    with pytest.raises(FlowError) as caught:
        setup.prepare(once=True)
    assert caught.value.code == "FENCED"
    setup.close(None)


def test_a_claim_that_finds_a_promotion_does_not_end_a_killed_generation(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was killed, so its lanes may still write. The next process claims a generation,
    finds the promotion, and stops (`Fenced`). It must not record that the lanes have ended,
    because the promotion has to wait for the lanes of the killed process.
    """
    real = FlowClaims.claim

    def claim(*arguments: Any, **named: Any) -> Any:
        assert do(pair, "flow", "promote", "--yes") == 0
        return real(*arguments, **named)

    with monkeypatch.context() as killed:
        killed.setattr(FlowClaims, "end", lambda *_: None)
        with Mirror(pair.config, once=True) as mirror:
            mirror.wait()
    before = history(pair)
    assert not before.is_closed
    monkeypatch.setattr(FlowClaims, "claim", claim)
    setup = flow_setup(load(pair.config, environment={}).flows[0])
    with pytest.raises(Fenced):
        setup.prepare(once=False)
    setup.close(None)
    after = history(pair)
    assert after.latest != before.latest
    assert not after.is_closed


QUICK = {
    "twinlog.control.cutover.promotion.FOLLOWS_WITHIN_S": 0.2,
    "twinlog.control.cutover.promotion.ENDS_WITHIN_S": 0.2,
    "twinlog.lane.late_requests.wait_s": lambda: 0.2,
    "twinlog.control.leading.lead.ONCE_WAITS_S": 2.0,
}


def test_clients_are_not_moved_while_the_copy_may_run(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leader is frozen and does not apply the promotion: `failover run` fails with COPY_RUNS.
    In another promotion, the leader was killed: `failover run` waits until none of its requests can
    still arrive. Only then does it report that clients can move.
    """
    for name, value in QUICK.items():
        monkeypatch.setattr(name, value)
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 10)
        with monkeypatch.context() as frozen:
            frozen.setattr(IntentFollower, "poll", lambda *_: None)
            assert do(pair, "failover", "run", "--yes") == 1
            said = capsys.readouterr()
            assert "[COPY_RUNS]" in said.err
            assert "Let no producer write to the target yet" in said.err
            assert "clients may move to the target" not in said.out
        eventually(lambda: state(mirror).state is FlowState.FENCED)
        assert do(pair, "failover", "run", "--yes") == 0
        assert "have drained and ended" in capsys.readouterr().out
        with monkeypatch.context() as killed:
            killed.setattr(FlowClaims, "end", lambda *_: None)
            assert do(pair, "flow", "demote", "--yes") == 0
            eventually(lambda: state(mirror).state is FlowState.RUNNING)
            mirror.stop()
    assert not history(pair).is_closed
    capsys.readouterr()
    assert do(pair, "failover", "run", "--yes") == 0
    said = capsys.readouterr()
    assert "did not shut down cleanly: waiting" in said.out
    assert "was killed, and none of its requests can still arrive" in said.out
    assert history(pair).is_closed
