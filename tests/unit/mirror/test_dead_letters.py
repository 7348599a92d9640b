"""Records on which a transform fails are in the dead-letter topic before their answer is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.support.one_copy import NOW, answer, arguments, batch, sent
from tests.support.one_transformed import Rig, values
from tests.support.python_transformer import transformed
from twinlog.errors import Fate, PartitionError
from twinlog.lane.reporting import hand_over
from twinlog.mirror.copy.dead_letters import (
    DeadLetters,
    DeadLetterTarget,
    LetterOrigin,
    dead_letter,
    origin_of_letter,
)
from twinlog.mirror.copy.partition import CopyState
from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure
from twinlog.mirror.copy.transformed import TransformedCopy
from twinlog.mirror.start_point import KnownDeadLetters
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.records import Record, decode_batch

NOT_LEADER, TOO_FEW = 6, 20
HOME = DeadLetterTarget(TopicPartition("letters", 0), TopicId("e" * 32), "A->B")
HERE = TopicPartition("orders", 3)
ORIGIN = LetterOrigin("A->B", "a", "b", "3")
FIVES = 5


def fails_at_fives(record: Record) -> Record | None:
    """Return the record masked if its offset is odd, else None, which filters it out. Raises
    ValueError at multiples of five.
    """
    if not record.offset % FIVES:
        raise ValueError("a five")
    return record._replace(value=b"m%d" % record.offset) if record.offset % 2 else None


class LettersRig(Rig):
    """A copy whose failed records go to a dead-letter topic. Records of other partitions are
    between its dead letters.
    """

    def __init__(self, there: tuple[int, ...] = (), **given: Any) -> None:
        super().__init__(fails_at_fives, **given)
        self.application.quarantines = True
        made = arguments(**given)
        start = replace(made["start"], dead_letters=KnownDeadLetters(HOME.topic_id, 4, there))
        self.copy = TransformedCopy(
            transform="ab", desk=self.desk, dead_letters=HOME, **made | {"start": start}
        )
        self._end = 100

    @property
    def letters(self) -> DeadLetters:
        assert self.copy.dead_letters is not None
        return self.copy.dead_letters

    def send_letters(self, error: int = 0) -> list[Record]:
        """Send all dead letters that can be sent, acknowledge them, and return them."""
        found: list[Record] = []
        while batches := sent(self.letters):
            for one in batches:
                self._end += 7  # records of other partitions are between them
                found += decode_batch(one.data)
                answer(self.letters, self._end, error=error)
                self.copy.use_answers(NOW)
        return found

    @property
    def position(self) -> int:
        return self.copy.acked_upstream


def offsets(letters: list[Record]) -> list[int]:
    found = [origin_of_letter(one) for one in letters]
    return [one[1] for one in found if one is not None]


def test_letter_is_the_record_with_its_origin_and_the_reason() -> None:
    record = Record(7, 5, b"k", b"v", (("a", b"1"), ("__connect.errors.offset", b"99")))
    failure = RangeFailure(offset=7, text="ValueError (f.py, line 3, in mask)", transform="mask, x")
    letter = dead_letter(record, failure, ORIGIN, HERE)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"v", 5)
    assert letter.headers[:2] == record.headers
    assert dict(letter.headers[2:]) == {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"7",
        "__connect.errors.connector.name": b"A->B",
        "__connect.errors.stage": b"TRANSFORMATION",
        "__connect.errors.class.name": b"mask, x",
        "__connect.errors.exception.class.name": b"ValueError",
        "__connect.errors.exception.message": b"ValueError (f.py, line 3, in mask)",
        "twinlog.topic.id": b"a",
        "twinlog.target.topic.id": b"b",
    }
    assert origin_of_letter(letter) == (ORIGIN, 7)
    assert origin_of_letter(record) is None


def test_answer_is_used_only_after_its_letters_are_there() -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 8), batch(8, 4))
    rig.answer()
    assert rig.send() == [] and rig.position == 0
    letters = rig.send_letters()
    assert offsets(letters) == [0, 5, 10]
    assert [one.value for one in letters] == [b"v"] * 3
    assert values(rig.copied()) == [b"m1", b"m3", b"m7", b"m9", b"m11"]
    assert (rig.position, rig.copy.acked_ordinal, rig.copy.queued_bytes) == (12, 5, 0)


def test_position_is_after_letters_though_nothing_else_is_kept() -> None:
    rig = LettersRig(upstream=5)
    rig.fetch(batch(5, 1))
    rig.answer()
    assert rig.position == 5
    assert offsets(rig.send_letters()) == [5]
    assert rig.position == 6


def test_letters_of_later_answers_wait_for_the_order_of_the_source() -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 4))
    rig.fetch(batch(4, 4))
    first, second = rig.ranges
    rig.answer(second.number)
    assert rig.send_letters() == []
    rig.answer(first.number)
    assert offsets(rig.send_letters()) == [0, 5]


def test_letters_that_are_there_are_not_computed_again() -> None:
    rig = LettersRig(there=(0, 10))
    rig.fetch(batch(0, 12))
    rig.answer()
    assert offsets(rig.send_letters()) == [5]
    assert values(rig.copied()) == [b"m1", b"m3", b"m7", b"m9", b"m11"]


@pytest.mark.parametrize("error", [NOT_LEADER, TOO_FEW])
def test_letter_that_was_refused_gives_the_partition_back(error: int) -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 8))
    rig.answer()
    rig.send_letters(error)
    assert rig.copy.trouble is not None and rig.copy.trouble.fate is Fate.RETRIABLE
    assert rig.send() == [] and rig.position == 0 and not rig.copy.has_unknown_outcomes
    assert sent(rig.letters) == []


def test_lost_response_to_a_letter_is_a_lost_answer_of_the_partition() -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 4))
    rig.answer()
    assert len(sent(rig.letters)) == 1
    error = PartitionError("gone", code="TARGET_DISCONNECTED", fate=Fate.RETRIABLE)
    rig.letters.on_disconnected(error, NOW)
    rig.copy.use_answers(NOW)
    assert rig.copy.has_unknown_outcomes and rig.copy.trouble is error


def test_log_with_a_new_leader_is_read_again_before_the_next_letter() -> None:
    rig = LettersRig()
    rig.letters.leader.on_metadata(5, requested_epoch=-1)
    rig.fetch(batch(0, 4))
    rig.answer()
    assert sent(rig.letters) == []
    rig.copy.use_answers(NOW)
    assert rig.copy.trouble is not None and rig.copy.trouble.code == "TARGET_LEADER_CHANGED"


def test_drained_copy_hands_over_the_letters_after_its_position() -> None:
    rig = LettersRig(there=(10,))
    rig.fetch(batch(0, 8))
    rig.answer()
    assert offsets(rig.send_letters()) == [0, 5]
    rig.written()
    first = rig.copy.next_batch(NOW)
    assert first is not None and first.upstream_next == 8
    rig.copy.drain()
    rig.acknowledge(first)
    assert rig.copy.is_drained
    over = hand_over(rig.copy)
    assert over is not None and over.start.dead_letters == KnownDeadLetters(HOME.topic_id, 4, (10,))


def test_drained_copy_waits_for_a_letter_in_flight_and_sends_no_other() -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 8))
    rig.answer()
    (only,) = sent(rig.letters)
    rig.copy.drain()
    assert (rig.copy.is_drained, rig.copy.state) == (False, CopyState.DRAINING)
    answer(rig.letters, 3)
    rig.copy.use_answers(NOW)
    assert (rig.copy.is_drained, sent(rig.letters)) == (True, [])
    over = hand_over(rig.copy)
    assert over is not None and over.start.dead_letters == KnownDeadLetters(
        HOME.topic_id, 4, (only.upstream,)
    )


def quarantining(number: int, *failed: int) -> RangeAnswer:
    return RangeAnswer(
        number=number,
        batches=(),
        offsets=b"",
        end=7,
        quarantined=tuple(RangeFailure(offset=at, text="ValueError") for at in failed),
    )


@pytest.mark.parametrize(
    "failed",
    [(6, 5), (7,), (-1,), (5, 5), (3,)],
    ids=["falling", "after the range", "before it", "twice", "no record"],
)
def test_letters_that_do_not_fit_the_range_are_not_sent(failed: tuple[int, ...]) -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 3), batch(5, 2))
    (asked,) = rig.ranges
    rig.deliver(quarantining(asked.number, *failed))
    assert rig.copy.source_trouble is not None
    assert rig.copy.source_trouble.code == "TRANSFORM_UNAVAILABLE"
    assert sent(rig.letters) == []


def test_record_is_not_in_a_batch_and_in_a_letter() -> None:
    rig = LettersRig()
    rig.fetch(batch(0, 7))
    (asked,) = rig.ranges
    whole = transformed(asked, lambda record: record)
    rig.deliver(structs.replace(whole, quarantined=quarantining(0, 3).quarantined))
    assert rig.copy.source_trouble is not None and rig.send() == []


def test_failed_records_without_a_topic_for_them_are_not_left_out() -> None:
    rig = Rig(fails_at_fives)
    rig.application.quarantines = True
    rig.fetch(batch(0, 8))
    rig.answer()
    assert rig.copy.source_trouble is not None
    assert rig.copy.source_trouble.code == "TRANSFORM_UNAVAILABLE"


def test_letters_of_a_part_precede_it_and_the_rest_is_another_range() -> None:
    rig = LettersRig()
    rig.fetch(batch(1, 6), batch(7, 6))
    (asked,) = rig.ranges
    rig.application.waiting.pop(asked.number)
    beginning = transformed(structs.replace(asked, end=9), fails_at_fives, quarantines=True)
    rig.deliver(structs.replace(beginning, is_part=True))
    (rest,) = rig.ranges
    assert (rest.first, rest.end, rest.batches) == (9, 13, batch(7, 6))
    assert rig.copied() == []
    assert offsets(rig.send_letters()) == [5]
    assert values(rig.copied()) == [b"m1", b"m3", b"m7"]
    assert rig.position == 9
    rig.answer(rest.number)
    assert rig.copied() == []
    assert offsets(rig.send_letters()) == [10]
    assert values(rig.copied()) == [b"m9", b"m11"]
    assert rig.position == 13
    assert rig.copy.queued_bytes == 0 and rig.copy.is_drained


def test_lane_forgets_letters_before_its_position() -> None:
    rig = LettersRig(there=(10,))
    for first in range(0, 60, 6):
        rig.fetch(batch(first, 6))
        rig.answer()
        rig.send_letters()
        rig.copied()
        assert len(rig.letters.on_target) <= 3
    rig.copy.drain()
    over = hand_over(rig.copy)
    assert over is not None and over.start.dead_letters == KnownDeadLetters(HOME.topic_id, 4, ())


@pytest.mark.parametrize(("topic_id", "is_checked"), [(HOME.topic_id, True), ("f" * 32, False)])
def test_leader_epoch_of_another_topic_is_not_compared(topic_id: str, is_checked: bool) -> None:
    made = arguments()
    start = replace(made["start"], dead_letters=KnownDeadLetters(TopicId(topic_id), 4, ()))
    rig = Rig()
    copy = TransformedCopy(
        transform="ab", desk=rig.desk, dead_letters=HOME, **made | {"start": start}
    )
    assert copy.dead_letters is not None
    leader = copy.dead_letters.leader
    leader.on_metadata(0, requested_epoch=-1)
    assert (leader.checked_epoch, leader.needs_check) == (4 if is_checked else 0, False)
    leader.on_metadata(5 if is_checked else 1, requested_epoch=-1)
    assert leader.needs_check
