"""When the copy has certainly ended for topics that were promoted by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.control.cutover import promotion
from twinlog.control.cutover.promotion import wait_until_over
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import Disconnected, FlowError, TwinlogError, or_raise
from twinlog.model import TopicPartition
from twinlog.survey import ends

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
OURS, THEIRS = 7, 8
Answer = int | TwinlogError


class Cluster:
    """A target that responds with delays, and a mirror that leads a flow."""

    def __init__(self, end: Callable[[float], Answer], *, end_s: float, state_s: float) -> None:
        self.now, self.end, self.end_s, self.state_s = 0.0, end, end_s, state_s
        self.checked: list[TopicPartition] = []
        self.producers: Callable[[float], dict[int, int]] = lambda _: {}
        """Last sequence of each producer ID that the leaders remember, by time."""
        self.scope = cast(
            "CutoverScope",
            SimpleNamespace(
                error=partial(FlowError, flow="A->B"),
                is_whole=False,
                intents=lambda: SimpleNamespace(promotion=None),
                history=self.history,
                is_led=lambda: True,
                rows=lambda: SimpleNamespace(producers=frozenset({OURS})),
                target=SimpleNamespace(metadata=lambda _: SimpleNamespace(topics=TOPICS)),
            ),
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def history(self) -> Any:
        self.now += self.state_s
        latest = SimpleNamespace(generation=1, host="here", pid=7)
        return SimpleNamespace(latest=latest, is_closed=False)

    def append_ends(self, _: object, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.now += self.end_s
        self.checked = [*tps]
        return dict.fromkeys(self.checked, or_raise(self.end(self.now)))

    def known_producers(self, _: object, tps: Iterable[TopicPartition]) -> dict[Any, Any]:
        states = self.producers(self.now).items()
        return {tp: {id_: SimpleNamespace(last_sequence=n) for id_, n in states} for tp in tps}

    def wait(self, monkeypatch: pytest.MonkeyPatch, *, is_fenced: bool = True) -> float:
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(promotion, "time", clock)
        monkeypatch.setattr(ends, "append_ends", self.append_ends)
        monkeypatch.setattr(ends, "known_producers", self.known_producers)
        wait_until_over(self.scope, [THERE.topic], lambda _: None, is_fenced=is_fenced)
        return self.now


TOPICS = {"A.orders": SimpleNamespace(tps=[TopicPartition("A.orders", n) for n in (0, 1)])}


def test_it_is_still_between_the_end_of_one_look_and_the_beginning_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy counts as ended if the log ends did not change from the end of one check to the
    start of the next one. Records appended between these two checks are detected, however long a
    query takes.
    """
    appends_until = 9.0
    for end_s, state_s in ((0.0, 0.0), (5.0, 0.0), (0.0, 5.0), (3.0, 3.0)):
        cluster = Cluster(lambda now: int(min(now, appends_until)), end_s=end_s, state_s=state_s)
        assert cluster.wait(monkeypatch) > appends_until + promotion.FENCED_STILL_S
        assert cluster.checked == [THERE, TopicPartition("A.orders", 1)], "those by key as well"


def test_a_log_that_cannot_be_checked_does_not_count_as_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def frozen(now: float) -> Answer:
        return Disconnected("its broker does not answer") if now < 20 else 5

    assert Cluster(frozen, end_s=1.0, state_s=0.0).wait(monkeypatch) > 20 + promotion.FENCED_STILL_S
    gone = Cluster(lambda _: Disconnected("it is gone"), end_s=1.0, state_s=0.0)
    with pytest.raises(FlowError) as caught:
        gone.wait(monkeypatch)
    assert caught.value.code == "COPY_RUNS"


def test_a_source_that_may_be_written_to_is_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source may still be written to, and the flow's leader may only be frozen, so its lanes
    could copy the next record. The command waits longer than with a fence.
    """
    cluster = Cluster(lambda _: 5, end_s=0.0, state_s=0.0)
    assert cluster.wait(monkeypatch, is_fenced=False) > promotion.OPEN_STILL_S


def test_records_of_new_owners_do_not_count_if_the_flows_producer_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command is run again after its hook has failed, and new owners already write to the remote
    topic. Their records do not delay the command. Records of the flow do, and so does each record
    if the leader does not remember the flow's producer.
    """
    cluster = Cluster(int, end_s=0.0, state_s=0.0)
    cluster.producers = lambda now: {OURS: 4, THEIRS: int(now)}
    assert cluster.wait(monkeypatch) < promotion.FENCED_STILL_S + 1
    late = Cluster(int, end_s=0.0, state_s=0.0)
    late.producers = lambda now: {OURS: int(min(now, 9.0)), THEIRS: int(now)}
    assert late.wait(monkeypatch) > 9 + promotion.FENCED_STILL_S
    forgotten = Cluster(int, end_s=0.0, state_s=0.0)
    forgotten.producers = lambda now: {THEIRS: int(now)}
    with pytest.raises(FlowError) as caught:
        forgotten.wait(monkeypatch)
    assert caught.value.code == "COPY_RUNS"
