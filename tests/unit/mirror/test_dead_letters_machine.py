"""In any order of steps, each record is once in the dead-letter topic or once on the target.

Lanes die and lose responses at any moment, requests arrive late, and the function fails on other
records each time. The map is not part of this machine, but of the one in
`test_transformed_machine`. Here, a start knows where the target's log ends.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.support.one_copy import NOW, K, answer, arguments, batch
from tests.support.one_transformed import Rig
from twinlog.errors import Fate, PartitionError
from twinlog.lane.reporting import hand_over
from twinlog.mirror.copy.dead_letters import DeadLetters, DeadLetterTarget, origin_of_letter
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.transformed import TransformedCopy
from twinlog.mirror.start_point import KnownDeadLetters, StartPoint
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.records import Record, decode_batch

HOME: Final = DeadLetterTarget(TopicPartition("letters", 0), TopicId("e" * 32), "A->B")
GONE: Final = PartitionError("gone", code="TARGET_DISCONNECTED", fate=Fate.RETRIABLE)
STEPS: Final = 400
FETCHED: Final = 8


class QuarantineFlow:
    """One partition: its lanes one after the other, the target's log, and the dead letters."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.copied: list[tuple[int, int]] = []
        """For each record on the target, its source offset, and the source offset after its
        batch.
        """
        self.letters: list[int] = []
        """Source offsets of the dead letters, in order."""
        self.sent: deque[OutBatch] = deque()
        """Dead letters that were sent but have not arrived yet."""
        self.answers: deque[tuple[DeadLetters, int]] = deque()
        self.rig = self._lane(None)

    def function(self, record: Record) -> Record | None:
        if self.dice.random() < 0.3:
            raise ValueError("no")
        return record._replace(value=b"m%d" % record.offset)

    # -- lanes

    def _lane(self, handed: StartPoint | None) -> Rig:
        """Return a new lane. It begins when no request of the previous lane can arrive any more."""
        while self.sent:
            self.arrives() if self.dice.random() < 0.5 else self.sent.popleft()
        self.answers.clear()
        position = self.copied[-1][1] if self.copied else 0
        made = arguments(ordinal=len(self.copied), upstream=position)
        there = KnownDeadLetters(HOME.topic_id, 4, self.letters_there(position))
        start = handed or replace(made["start"], dead_letters=there)
        made |= arguments(ordinal=start.ordinal, upstream=start.upstream)
        rig = Rig(self.function)
        rig.application.quarantines = True
        rig.copy = TransformedCopy(
            transform="ab", desk=rig.desk, dead_letters=HOME, **made | {"start": start}
        )
        return rig

    def letters_there(self, position: int) -> tuple[int, ...]:
        """Return the source offsets of the dead letters that a start reads."""
        return tuple(sorted(at for at in self.letters if at >= position))

    def dies(self) -> None:
        self.rig = self._lane(None)

    def is_released(self) -> None:
        self.rig.copy.drain()
        while self.sent:
            self.arrives()
        while self.answers:
            self.is_answered()
        assert self.rig.copy.is_drained
        over = hand_over(self.rig.copy)
        self.rig = self._lane(None if over is None or self.rig.copy.trouble else over.start)

    def loses_responses(self) -> None:
        letters = self.rig.copy.dead_letters
        assert letters is not None
        if letters.in_flight:
            letters.on_disconnected(GONE, NOW)
            self.rig.copy.use_answers(NOW)
            assert self.rig.copy.has_unknown_outcomes and self.rig.copy.trouble is GONE
            self.dies()

    # -- records

    def reads(self) -> None:
        self.rig.fetch(batch(self.rig.copy.intake.position, 1 + self.dice.randrange(FETCHED)))

    def computes(self) -> None:
        if waiting := [*self.rig.application.waiting]:
            self.rig.answer(self.dice.choice(waiting))

    def sends_letters(self) -> None:
        letters = self.rig.copy.dead_letters
        assert letters is not None
        while (found := letters.next_batch(NOW)) is not None:
            self.sent.append(found)

    def arrives(self) -> None:
        if self.sent:
            (letter,) = decode_batch(self.sent.popleft().data)
            known = origin_of_letter(letter)
            assert known is not None
            self.letters.append(known[1])
            letters = self.rig.copy.dead_letters
            assert letters is not None
            self.answers.append((letters, 5 * len(self.letters)))

    def is_answered(self) -> None:
        if self.answers:
            letters, base = self.answers.popleft()
            answer(letters, base)
            self.rig.copy.use_answers(NOW)

    def copies(self) -> None:
        """Let a batch arrive on the target. The lane may die before it gets the response."""
        self.rig.written()
        found = self.rig.copy.next_batch(NOW)
        if found is None:
            return
        offsets = [found.upstream_at(at) for at in range(found.count)]
        self.copied += [(at, offsets[-1] + 1) for at in offsets]
        if self.dice.random() < 0.1:
            self.dies()
        else:
            self.rig.respond(K + found.ordinal)

    def settles(self) -> None:
        """Run steps until every record that was read is copied, filtered out, or in the dead-letter
        topic.
        """
        for _ in range(STEPS):
            self.computes()
            self.sends_letters()
            self.arrives()
            self.is_answered()
            self.copies()
        assert self.rig.copy.is_idle and self.rig.copy.is_drained

    def check(self) -> None:
        copied = [at for at, _ in self.copied]
        assert copied == sorted(set(copied)), "in order, and once"
        assert len(self.letters) == len(set(self.letters)), "each dead letter once"
        assert set(self.letters).isdisjoint(copied), "decided once"
        position = self.rig.copy.acked_upstream
        assert {*range(position)} <= {*copied, *self.letters}, "nothing is missing"


WEIGHTS: Final = {
    "reads": 4,
    "computes": 8,
    "sends_letters": 6,
    "arrives": 6,
    "is_answered": 6,
    "copies": 6,
    "dies": 1,
    "is_released": 1,
    "loses_responses": 1,
}


def run(seed: int) -> QuarantineFlow:
    flow = QuarantineFlow(seed)
    for step in flow.dice.choices([*WEIGHTS], [*WEIGHTS.values()], k=STEPS):
        getattr(flow, step)()
        flow.check()
    flow.settles()
    flow.check()
    return flow


@pytest.mark.parametrize("seed", range(100))
def test_every_order_of_steps_decides_each_record_once(seed: int) -> None:
    flow = run(seed)
    assert flow.copied and flow.letters


def uses_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    are_there = DeadLetters.are_on_target
    monkeypatch.setattr(DeadLetters, "are_on_target", lambda *given: (are_there(*given), True)[1])


def starts_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuarantineFlow, "letters_there", lambda *_: ())


def hands_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        DeadLetters, "known_from", lambda *_: KnownDeadLetters(HOME.topic_id, 4, ())
    )


@pytest.mark.parametrize(
    "without", [uses_answers_at_once, starts_without_reading, hands_nothing_over]
)
def test_removed_rule_is_detected(
    without: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    with pytest.raises(AssertionError, match=r"once|missing"):
        for seed in range(40):
            run(seed)
