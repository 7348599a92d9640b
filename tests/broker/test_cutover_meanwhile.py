"""Other clients make changes between two checks of a switchover or failover, on real brokers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import eventually, produce
from tests.support.cutover import Commands
from tests.support.groups import Pair, commit, committed, numbered, offsets_in_transaction
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.topics import create_topic, delete_records, log_size
from twinlog.cli.main import run
from twinlog.control.cutover import switchover as steps
from twinlog.control.cutover.failover import Failover
from twinlog.control.cutover.promotion import promote, wait_until_over
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]

UNFENCED = ("run", "--yes", "--fence", "none")


@pytest.fixture
def pair(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Pair:
    made = Pair(tmp_path, source_cluster, target_cluster, both_ways=False, sync=False)
    with made.config.open("a") as file:
        file.write("refresh.topics.interval.seconds = 1\ntwinlog.status.interval.seconds = 1\n")
    create_topic(made.a, made.topic)
    produce(made.a, made.topic, numbered(0, 20))
    return made


def copied(pair: Pair, topic: str = "") -> int:
    remote = f"{pair.alias_a}.{topic or pair.topic}"
    return log_size(pair.b, remote)


def copy(pair: Pair) -> None:
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        mirror.wait()


@pytest.mark.witness("a group that moves while the plan is read is not set to an older offset")
def test_a_group_that_continued_while_the_plan_was_read_is_not_set_back(
    pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = pair.stop_at(7)
    copy(pair)
    plan = Failover.plan

    def read_slowly(self: Failover) -> Any:
        seen = plan(self)
        if committed(pair.b, group, pair.remote) < 0:
            commit(pair.b, group, pair.remote, 15)
        return seen

    monkeypatch.setattr(Failover, "plan", read_slowly)
    assert Commands("failover", pair.config, capsys).do("run", "--yes")[0] == 0
    assert committed(pair.b, group, pair.remote) == 15


def test_offsets_in_a_transaction_that_is_about_to_end_are_waited_for(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    switchover = Commands("switchover", pair.config, capsys)
    group = pair.stop_at(7)
    here = TopicPartition(pair.topic, 0)
    with Mirror(pair.config) as mirror, offsets_in_transaction(pair.a, group, {here: 12}) as end:
        eventually(lambda: copied(pair) == 20)
        eventually(lambda: switchover.show("plan")[0] == 0)
        ends = threading.Timer(3, end)  # the mirror ends while only the groups are left to set
        ends.start()
        assert switchover.do(*UNFENCED)[0] == 0
        ends.join()
        mirror.stop()
    assert committed(pair.b, group, pair.remote) == 12


def test_topics_promoted_by_name_do_not_delay_the_others(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    other, third = f"{pair.topic}-b", f"{pair.topic}-c"
    text = pair.config.read_text().replace(f"topics = {pair.topic}", f"topics = {pair.topic}.*")
    pair.config.write_text(text)
    for topic in (other, third):
        create_topic(pair.a, topic)
        produce(pair.a, topic, numbered(0, 5))
    group = pair.stop_at(7)
    switchover = Commands("switchover", pair.config, capsys)
    with Mirror(pair.config) as mirror:
        eventually(lambda: (copied(pair), copied(pair, other), copied(pair, third)) == (20, 5, 5))
        eventually(lambda: switchover.show("plan")[0] == 0)
        code, out, err = switchover.do(*UNFENCED, "--topics", pair.topic)
        assert code == 0, (out, err)
        assert run(["topic", "release", str(pair.config), "--topics", third]) == 0
        produce(pair.b, pair.remote, numbered(20, 5))  # the topic's new owner writes to it
        produce(pair.a, third, numbered(5, 5))
        commit(pair.a, group, other, 3)
        eventually(lambda: switchover.show("plan")[0] == 0)
        code, out, err = switchover.do(*UNFENCED)
        assert code == 0, (out, err)
        mirror.stop()
    assert committed(pair.b, group, f"{pair.alias_a}.{other}") == 3


def test_records_that_reach_the_source_after_the_promotion_are_a_failure(
    pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that is not fenced writes to the source after the promotion, when the copy has
    ended. The switchover must fail with FENCE_LEAKS and not run its hook. After a demotion the
    records are copied, and a second switchover succeeds.
    """
    switchover, flag = Commands("switchover", pair.config, capsys), pair.config.parent / "over"

    def leaked(*words: Any, **more: Any) -> None:
        wait_until_over(*words, **more)
        produce(pair.a, pair.topic, numbered(20, 3))

    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 20)
        eventually(lambda: switchover.show("plan")[0] == 0)
        with monkeypatch.context() as leaking:
            leaking.setattr(steps, "wait_until_over", leaked)
            code, out, err = switchover.do(*UNFENCED, "--hook", f"touch {flag}")
        assert (code, "[FENCE_LEAKS]" in err) == (1, True), (out, err)
        assert "flow demote" in err
        assert not flag.exists()
        assert run(["flow", "demote", "--yes", str(pair.config)]) == 0
        eventually(lambda: copied(pair) == 23)
        eventually(lambda: switchover.show("plan")[0] == 0)
        code, out, err = switchover.do(*UNFENCED, "--hook", f"touch {flag}")
        assert code == 0, (out, err)
        assert flag.exists()
        mirror.stop()


def test_a_group_that_continues_on_the_source_after_the_check_is_set_again(
    pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group commits a higher offset on the source after the switchover has set the group's offset
    on the target. The switchover must set the offset again. Otherwise the group would read some
    records twice.
    """
    switchover = Commands("switchover", pair.config, capsys)
    group = pair.stop_at(7)

    def promoted_late(*words: Any) -> None:
        commit(pair.a, group, pair.topic, 20)
        promote(*words)

    monkeypatch.setattr(steps, "promote", promoted_late)
    with Mirror(pair.config) as mirror:
        eventually(lambda: copied(pair) == 20)
        eventually(lambda: switchover.show("plan")[0] == 0)
        code, out, err = switchover.do(*UNFENCED)
        assert code == 0, (out, err)
        mirror.stop()
    assert committed(pair.b, group, pair.remote) == 20


def test_topics_are_not_over_while_lanes_of_a_frozen_leader_may_copy(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failover is run while the leader is frozen, so the leader's lanes may still copy. The
    source is idle, so its unchanged log end does not prove that they have stopped. Records that the
    source accepts after the failover must not be copied.
    """
    failover = Commands("failover", pair.config, capsys)
    with Driver(pair.config) as driver:
        eventually(lambda: copied(pair) == 20)
        driver.signal(signal.SIGSTOP)
        code, out, err = failover.do("run", "--yes", "--topics", pair.topic)
        assert code == 0, (out, err)
        produce(pair.a, pair.topic, numbered(20, 5))
        driver.signal(signal.SIGCONT)
        eventually(lambda: driver.state.state != "RUNNING" or driver.state.generation > 0)
        driver.until("RUNNING")
    assert copied(pair) == 20


def _deleted_there(pair: Pair) -> None:
    copy(pair)
    delete_records(pair.b, pair.remote, before=10)


def _copied_late(pair: Pair) -> None:
    with pair.config.open("a") as file:
        file.write("twinlog.start = .*:0=15\n")
    copy(pair)


@pytest.mark.parametrize("happened", [_deleted_there, _copied_late])
def test_a_group_whose_next_records_are_on_the_source_alone_is_not_exact(
    pair: Pair, capsys: pytest.CaptureFixture[str], happened: Callable[[Pair], None]
) -> None:
    group, failover = pair.stop_at(7), Commands("failover", pair.config, capsys)
    happened(pair)
    code, plan = failover.show("plan")
    (one,) = plan["plan"]["groups"]
    assert (code, one["group"], one["is_exact"]) == (1, group, False)
    assert "on the source alone" in one["places"][0]["why_not_exact"]
    commit(pair.a, group, pair.topic, 20)
    _, plan = failover.show("plan")
    (one,) = plan["plan"]["groups"]
    assert one["is_exact"]
