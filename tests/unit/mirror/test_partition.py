"""The copy of one partition: what it may send at which time, and what every response of the target
means.
"""

from __future__ import annotations

import pytest
from crc32c import crc32c

from tests.support.one_copy import (
    DAY,
    FOREVER,
    NOW,
    K,
    a_copy,
    answer,
    batch,
    control,
    fetched,
    of_producer,
    sent,
    with_epoch,
)
from twinlog.errors import CorruptData, Fate, PartitionError
from twinlog.lane.reporting import hand_over
from twinlog.mirror.copy.intake import Intake
from twinlog.mirror.copy.partition import PIPELINE, QUIET_MS, TROUBLE_MS, CopyState, PartitionCopy
from twinlog.mirror.copy.target_log import TargetLeader
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.start_point import CopyRules
from twinlog.model import Isolation
from twinlog.wire.record_batch import (
    HEADER,
    Codec,
    read_headers,
)
from twinlog.wire.records import Record, decode_batch, encode_batch


def marker(base: int, *, epoch: int) -> bytes:
    """Return a commit marker that a leader with this epoch wrote."""
    return with_epoch(control(base, 1), epoch)


def test_header_has_the_producer_id_and_the_ordinal_as_sequence() -> None:
    copy = a_copy(ordinal=(1 << 31) + 5, upstream=40)
    copy.on_fetched(fetched(batch(40, 3)), (), NOW)
    (out,) = sent(copy)
    ((header, _),) = read_headers(out.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 5)
    assert [r.key for r in decode_batch(out.data)] == [b"k40", b"k41", b"k42"]


def test_first_request_goes_alone_then_the_window_opens() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(*(batch(n, 1) for n in range(PIPELINE + 5))), (), NOW)
    assert len(sent(copy)) == 1
    answer(copy, K)
    assert len(sent(copy)) == PIPELINE


def test_long_link_holds_more_batches_and_their_bytes_are_counted() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(*(batch(n, 1) for n in range(2 * PIPELINE))), (), NOW)
    copy.pipeline = PIPELINE + 5
    first = sent(copy)
    assert copy.in_flight_bytes == len(first[0].data)
    answer(copy, K)
    more = sent(copy)
    assert len(more) == PIPELINE + 5
    assert copy.in_flight_bytes == sum(len(one.data) for one in more) < copy.queued_bytes
    copy.on_disconnected(PartitionError("lost", code="TARGET_DISCONNECTED"), NOW)
    assert copy.in_flight_bytes == 0


@pytest.mark.parametrize(
    ("change", "window"),
    [
        ({"expiry": None}, 1),
        ({"listed": False, "last_timestamp": NOW - 2 * DAY}, 1),
        ({}, PIPELINE),
    ],
)
def test_unprotected_partition_has_one_request_in_flight_after_trouble(
    change: dict[str, object], window: int
) -> None:
    copy = a_copy(**change)
    age = 2 * DAY if "last_timestamp" in change else 0
    copy.on_fetched(fetched(*(batch(n, 1, timestamp=NOW - age) for n in range(40))), (), NOW)
    sent(copy)
    answer(copy, K)
    assert len(sent(copy)) == window
    for at in range(window):
        answer(copy, K + 1 + at, now=NOW + TROUBLE_MS)
    assert len(sent(copy, NOW + TROUBLE_MS)) == PIPELINE, "a minute of clean answers"


def test_unprotected_batch_after_a_pause_goes_alone() -> None:
    """After a pause, the target may have expired the producer ID, and would accept a batch after
    one that it rejects. So the first batch is sent alone.
    """
    copy, long_after = a_copy(last_timestamp=NOW - 2 * DAY), NOW + TROUBLE_MS
    old = [batch(n, 1, timestamp=NOW - 2 * DAY) for n in range(3)]
    fresh = [batch(n, 1, timestamp=NOW) for n in range(3, 40)]
    copy.on_fetched(fetched(*old), (), NOW)
    for count, first in ((1, 0), (2, 1)):
        assert len(sent(copy, long_after)) == count
        for at in range(first, first + count):
            answer(copy, K + at, now=long_after)
    copy.on_fetched(fetched(*fresh), (), NOW)
    quiet_after = long_after + QUIET_MS + 1
    assert len(sent(copy, quiet_after)) == 1
    answer(copy, K + 3, now=quiet_after)
    assert len(sent(copy, quiet_after)) == PIPELINE


def test_nothing_is_sent_after_a_batch_that_lets_the_producer_id_expire() -> None:
    copy = a_copy()
    copy.on_fetched(
        fetched(batch(0, 1), batch(1, 1, timestamp=NOW - 2 * DAY), batch(2, 1)), (), NOW
    )
    sent(copy)
    answer(copy, K)
    assert [b.upstream for b in sent(copy)] == [1]
    answer(copy, K + 1)
    assert [b.upstream for b in sent(copy)] == [2]


def test_batch_waits_for_the_row_that_announces_it() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 2), batch(5, 2)), (), NOW)
    assert [b.upstream for b in sent(copy)] == [0]
    answer(copy, K)
    assert sent(copy) == []
    assert copy.tail.dirty
    copy.tail.on_durable(copy.tail.runs[-1])
    assert [b.upstream for b in sent(copy)] == [5]


@pytest.mark.parametrize("alone", [True, False])
def test_rows_have_a_mark_from_which_on_a_start_gets_all_runs(*, alone: bool) -> None:
    """In topics to which other clients write, K is not constant, so the lane sets the mark."""
    copy = a_copy(alone=alone)
    copy.on_fetched(fetched(batch(0, 2), batch(5, 2), batch(9, 1)), (), NOW)
    sent(copy)
    answer(copy, K)
    row = copy.tail.next_row()
    assert row is not None
    assert row[0].mark == (Mark(2, K + 2) if alone else None)


def test_cold_start_sends_nothing_before_its_cut_is_durable() -> None:
    copy = a_copy(durable=False)
    copy.on_fetched(fetched(batch(0, 2)), (), NOW)
    assert sent(copy) == []
    assert copy.tail.dirty
    copy.tail.on_durable(Run(0, 0, K))
    assert len(sent(copy)) == 1


def test_lower_offset_than_k_promises_is_a_gap_with_its_exact_range() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 10), batch(10, 10), batch(20, 10)), (), NOW)
    sent(copy)
    answer(copy, K)
    sent(copy)
    answer(copy, -1, error=2)
    assert copy.trouble is not None
    answer(copy, K + 10)
    assert copy.trouble.code == "GAP_WRITTEN"
    assert "[10, 20)" in copy.trouble.message
    assert copy.next_batch(NOW) is None


def test_higher_offset_than_k_promises_is_extra_records() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 10)), (), NOW)
    sent(copy)
    answer(copy, K + 3)
    assert copy.trouble is not None
    assert copy.trouble.code == "EXTRA_RECORDS"
    assert f"[{K}, {K + 3})" in copy.trouble.message


@pytest.mark.parametrize("alone", [True, False], ids=["own", "shared"])
@pytest.mark.parametrize("distance", [-3, 7])
def test_a_repeat_is_recognized_at_any_offset(*, alone: bool, distance: int) -> None:
    """The broker responds that a batch is a repeat, at an offset other than the expected one. An
    earlier lane has written the same sequences at that offset. The copy reports OTHER_WRITER, and
    does not count the records as acknowledged.
    """
    copy = a_copy(alone=alone)
    copy.on_fetched(fetched(batch(0, 5)), (), NOW)
    sent(copy)
    answer(copy, K + distance, append_time=NOW - 5000)
    assert copy.trouble is not None
    assert copy.trouble.code == "OTHER_WRITER"
    assert copy.acked_ordinal == 0


def test_a_repeat_response_to_an_unrepeated_request_means_another_writer() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 1, timestamp=NOW - 5)), (), NOW)
    sent(copy)
    answer(copy, K, append_time=NOW - 5)
    assert copy.trouble is not None
    assert (copy.trouble.code, copy.trouble.fate) == ("OTHER_WRITER", Fate.RETRIABLE)


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("stamps", "ours", "answered", "is_repeat"),
    [
        (False, NOW, -1, False),
        (False, NOW, NOW, True),
        (False, NOW, NOW - HOUR, True),  # the newest batch in the log is older
        (False, NOW, NOW + HOUR, True),  # the newest batch in the log is newer
        (False, -1, NOW, True),
        (False, -1, -1, False),  # a repeat cannot be recognized
        (True, NOW, NOW + 1, False),
        (True, NOW, NOW - HOUR, False),  # a repeat cannot be recognized
        (None, NOW - HOUR, NOW + 1, False),  # the timestamp is of this moment
        (None, NOW - 2 * HOUR, NOW - HOUR, True),
        (None, NOW - HOUR, NOW + HOUR, True),
        (None, NOW, NOW, True),
    ],
)
def test_repeat_is_shown_by_its_answer(
    stamps: bool | None, ours: int, answered: int, is_repeat: bool
) -> None:
    copy = a_copy(stamps=stamps)
    copy.on_fetched(fetched(batch(0, 1, timestamp=ours)), (), NOW)
    sent(copy)
    answer(copy, K, append_time=answered)
    assert (copy.trouble is not None) == is_repeat


def test_target_that_answered_without_a_time_once_does_not_stamp_its_own() -> None:
    copy = a_copy(stamps=None)
    copy.on_fetched(fetched(batch(0, 1, timestamp=NOW - HOUR), batch(1, 1, timestamp=NOW)), (), NOW)
    sent(copy)
    answer(copy, K)
    sent(copy)
    answer(copy, K + 1, append_time=NOW + 1)
    assert copy.trouble is not None


@pytest.mark.parametrize(
    ("checked_epoch", "now", "requested_epoch", "is_new"),
    [(3, 3, -1, False), (3, 4, -1, True), (3, 4, 4, False), (-1, 4, -1, False), (4, 3, -1, False)],
)
def test_log_of_a_new_leader_is_checked_before_anything_is_sent(
    checked_epoch: int, now: int, requested_epoch: int, is_new: bool
) -> None:
    copy = a_copy()
    copy.leader = TargetLeader(checked_epoch)
    copy.leader.on_metadata(now, requested_epoch=requested_epoch)
    assert copy.trouble is None, "not before there is something to send"
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    assert (copy.next_batch(NOW) is None) == is_new
    assert (copy.trouble is not None) == is_new


def test_log_of_a_leader_that_may_have_restarted_is_checked_before_sending() -> None:
    copy = a_copy()
    copy.leader.may_have_restarted()
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    assert copy.next_batch(NOW) is None
    assert copy.trouble is not None
    assert "may have restarted" in copy.trouble.message


@pytest.mark.parametrize("minutes", [-30, 30])
def test_a_clock_that_is_wrong_by_minutes_hides_no_expired_producer_id(minutes: int) -> None:
    """The broker expires the producer ID after a day by its own clock, and the local clock is wrong
    by minutes. If the copy's last record is a day old, the copy must not rely on the producer ID
    (`is_protected`).
    """
    copy = a_copy(last_timestamp=NOW - DAY)
    assert not copy.is_protected(NOW, NOW + minutes * 60_000)


def test_lowered_expiry_is_taken_at_once() -> None:
    copy = a_copy(last_timestamp=NOW - 2 * HOUR)
    assert copy.is_protected(NOW, NOW)
    copy.set_expiry(
        CopyRules(
            producer_id=9,
            isolation=Isolation.READ_COMMITTED,
            is_ours_alone=True,
            producer_expiry_ms=HOUR,
        )
    )
    assert not copy.is_protected(NOW, NOW)


def test_epoch_that_is_handed_over_is_that_of_the_offset_before_the_position() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 1, epoch=4)), (), NOW)
    sent(copy)
    answer(copy, K)
    assert (copy.acked_upstream, copy.acked_epoch) == (1, 4)
    copy.on_fetched(fetched(marker(1, epoch=5)), (), NOW)
    assert (copy.acked_upstream, copy.acked_epoch) == (2, 5), "they move together"
    copy.on_fetched(fetched(batch(2, 1, epoch=5), marker(3, epoch=6)), (), NOW)
    assert (copy.acked_upstream, copy.acked_epoch) == (2, 5)
    copy.tail.on_durable(copy.tail.runs[-1])
    sent(copy)
    copy.drain()
    answer(copy, K + 1)
    assert (copy.acked_upstream, copy.acked_epoch) == (3, 5), "the marker is read again"


def test_late_markers_do_not_move_a_drained_copy_past_dropped_records() -> None:
    copy = a_copy(durable=False)
    copy.on_fetched(fetched(batch(0, 2)), (), NOW)
    assert copy.next_batch(NOW) is None, "its row is still to be written"
    copy.drain()
    copy.on_fetched(fetched(marker(2, epoch=0)), (), NOW)
    assert (copy.acked_ordinal, copy.acked_upstream) == (0, 0), "the next lane reads both again"


@pytest.mark.parametrize("errors", [(), (6,), (10, 6)], ids=["lost", "refused", "too-large"])
def test_marker_after_trouble_does_not_move_a_copy_past_records_that_are_not_on_the_target(
    errors: tuple[int, ...],
) -> None:
    """A copy in trouble stays in its lane until the map's broker has responded to its rows. If
    responses of the source or a Release arrive in the meantime, the failed batches must not count
    as copied. Otherwise the map would get a row with which the next start skips their records.
    """
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    sent(copy)
    answer(copy, K)
    copy.on_fetched(fetched(batch(1, 3), batch(4, 3)), (), NOW)
    sent(copy)
    for error in errors:
        answer(copy, -1, error=error)
    copy.on_disconnected(PartitionError("lost", code="TARGET_DISCONNECTED"), NOW)
    assert copy.trouble is not None
    copy.on_fetched(fetched(marker(7, epoch=0)), (), NOW)
    runs = list(copy.tail.runs)
    copy.note_position()
    assert (copy.acked_ordinal, copy.acked_upstream, copy.is_idle) == (1, 1, False)
    assert copy.tail.runs == runs


def test_batch_that_could_not_be_read_begins_a_run_when_it_is_read_from_another_replica() -> None:
    """The batch has a valid CRC, but its first record is damaged."""
    copy, good = a_copy(), batch(5, 2)
    bad = bytearray(good)
    bad[61] ^= 1
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    with pytest.raises(CorruptData):
        copy.on_fetched(fetched(bytes(bad)), (), NOW)
    copy.on_fetched(fetched(good), (), NOW)
    assert copy.tail.runs == [Run(0, 5, K)]


def test_nothing_is_sent_after_an_error_until_everything_is_answered() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(*(batch(n, 1) for n in range(8))), (), NOW)
    sent(copy)
    answer(copy, K)
    assert len(sent(copy)) == 7
    answer(copy, -1, error=6)
    assert copy.next_batch(NOW) is None
    for _ in range(6):
        answer(copy, -1, error=45)
    assert copy.trouble is not None
    assert (copy.in_flight, copy.trouble.fate) == (0, Fate.RETRIABLE)


def trouble(copy: PartitionCopy) -> tuple[str, Fate | None]:
    return ("", None) if copy.trouble is None else (copy.trouble.code, copy.trouble.fate)


GONE = PartitionError("gone", code="TARGET_DISCONNECTED", fate=Fate.RETRIABLE)


def test_unknown_outcome_of_requests_in_flight_is_remembered() -> None:
    idle, busy = a_copy(), a_copy()
    for copy in (idle, busy):
        copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    sent(busy)
    for copy in (idle, busy):
        copy.on_disconnected(GONE, NOW)
    assert not idle.has_unknown_outcomes
    assert busy.has_unknown_outcomes


def test_batch_after_which_the_producer_id_may_expire_waits_for_late_requests() -> None:
    """After an old batch, the target may expire the producer ID, and then accept a late request as
    new. So an old batch waits for late requests. A fresh batch does not, because after it the
    target still recognizes a late request as a repeat.
    """
    copy = a_copy(late=True)
    copy.on_fetched(fetched(batch(0, 1), batch(1, 1, timestamp=NOW - DAY), batch(2, 1)), (), NOW)
    assert [one.ordinal for one in sent(copy)] == [0]
    answer(copy, K)
    assert sent(copy) == [], "none of those behind it goes before it"
    assert trouble(copy) == ("", None)
    copy.on_earlier_lane_ended(is_over=True)
    assert sent(copy) == [], "a late one may lie where it belongs"
    assert trouble(copy) == ("HELD_BACK", Fate.RETRIABLE)


def test_fresh_batch_waits_for_no_late_request_although_the_producer_id_expired() -> None:
    """The producer ID expired, but a fresh batch does not wait for late requests. A late request of
    an earlier lane begins with the same records, so the target rejects whichever of the two arrives
    second.
    """
    copy = a_copy(late=True, listed=False, last_timestamp=NOW - 2 * DAY)
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    assert [one.ordinal for one in sent(copy)] == [0]


def test_fresh_batch_waits_for_a_lane_that_may_run_if_the_producer_id_expired() -> None:
    """The producer ID expired, and an earlier lane may still run. That lane may send the same batch
    and then an old one, after which the target expires the ID again. So even a fresh batch waits.
    """
    copy = a_copy(late=True, old_lane=True, listed=False, last_timestamp=NOW - 2 * DAY)
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    assert sent(copy) == []
    assert trouble(copy) == ("", None)
    copy.on_earlier_lane_ended(is_over=False)
    assert trouble(copy) == ("HELD_BACK", Fate.RETRIABLE)


def test_a_check_while_the_lane_may_run_does_not_cover_its_later_requests() -> None:
    copy = a_copy(late=True, old_lane=True, listed=False, last_timestamp=NOW - 2 * DAY)
    copy.on_earlier_lane_ended(is_over=False)
    copy.on_earlier_lane_ended(is_over=True)
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    assert sent(copy) == []
    assert trouble(copy) == ("HELD_BACK", Fate.RETRIABLE)


def test_old_batch_waits_for_late_requests_also_of_a_lane_that_has_stopped() -> None:
    copy = a_copy(late=True, old_lane=True)
    copy.on_fetched(fetched(batch(0, 1, timestamp=NOW - DAY)), (), NOW)
    assert sent(copy) == []
    copy.on_earlier_lane_ended(is_over=False)
    assert trouble(copy) == ("", None)
    copy.on_earlier_lane_ended(is_over=True)
    assert trouble(copy) == ("HELD_BACK", Fate.RETRIABLE)


def test_held_back_records_take_no_memory_and_move_nothing() -> None:
    copy = a_copy(late=True, listed=False, last_timestamp=NOW - 2 * DAY)
    copy.on_fetched(fetched(batch(0, 1), batch(1, 1, timestamp=NOW - DAY), batch(2, 1)), (), NOW)
    assert [one.ordinal for one in sent(copy)] == [0]
    assert sent(copy) == []
    assert not copy.wants_fetch
    # this response was in flight
    copy.on_fetched(fetched(batch(3, 1), marker(4, epoch=3)), (), NOW)
    answer(copy, K)
    assert (copy.state, copy.acked_upstream, copy.queued_bytes) == (CopyState.STARTING, 1, 0)
    copy.on_earlier_lane_ended(is_over=True)
    assert trouble(copy) == ("HELD_BACK", Fate.RETRIABLE)


def test_copy_with_held_back_batches_can_be_released() -> None:
    copy = a_copy(late=True)
    copy.on_fetched(fetched(batch(0, 1, timestamp=NOW - DAY)), (), NOW)
    assert sent(copy) == []
    copy.drain()
    copy.on_earlier_lane_ended(is_over=True)
    assert (copy.state, copy.is_drained, trouble(copy)) == (CopyState.DRAINING, True, ("", None))


@pytest.mark.parametrize("last", [NOW, NOW - 3 * DAY])
def test_old_batch_is_not_sent_after_fresh_ones_that_are_not_answered(last: int) -> None:
    """If a fresh batch and an old one after it both arrived late, the target would expire the
    producer ID before the next lane's batch. So an old batch is sent only after the responses to
    the fresh batches before it.
    """
    copy, later = a_copy(last_timestamp=last), NOW + TROUBLE_MS + 1
    old = batch(2, 1, timestamp=NOW - 2 * DAY)
    copy.on_fetched(fetched(batch(0, 1), batch(1, 1), old, batch(3, 1)), (), NOW)
    assert [one.ordinal for one in sent(copy, later)] == [0]
    answer(copy, K)
    assert [one.ordinal for one in sent(copy, later)] == [1]
    answer(copy, K + 1)
    assert [one.ordinal for one in sent(copy, later)] == [2, 3]


def test_copy_after_which_a_late_request_may_land_is_not_handed_over() -> None:
    assert hand_over(a_copy()) is not None
    assert hand_over(a_copy(late=True)) is None


def test_log_is_checked_before_the_first_old_batch_however_late_it_is() -> None:
    copy = a_copy(late=True)
    copy.on_fetched(fetched(batch(0, 1)), (), NOW)
    sent(copy)
    answer(copy, K)
    copy.on_earlier_lane_ended(is_over=True)
    copy.on_fetched(fetched(batch(1, 1), batch(2, 1, timestamp=NOW - DAY)), (), NOW)
    assert [one.ordinal for one in sent(copy)] == [1]
    assert trouble(copy) == ("HELD_BACK", Fate.RETRIABLE)


def test_flipped_bit_is_never_sent() -> None:
    copy = a_copy()
    bad = bytearray(batch(4, 2))
    bad[-3] ^= 1
    answer = fetched(batch(0, 2), batch(2, 2), bytes(bad), batch(6, 1))
    copy.on_fetched(answer, (), NOW)  # the batches before the corrupt one are valid
    assert (copy.intake.position, copy.intake.ordinal) == (4, 4)
    assert copy.queued_bytes == len(batch(0, 2)) + len(batch(2, 2))
    with pytest.raises(CorruptData, match="offset 4"):
        copy.on_fetched(fetched(bytes(bad), batch(6, 1)), (), NOW)


def test_invalid_header_holds_back_nothing_before_it() -> None:
    copy = a_copy()
    bad = bytearray(batch(4, 2))
    bad[8:12] = b"\x00\x00\x00\x05"  # the batch's length field
    copy.on_fetched(fetched(batch(0, 2), batch(2, 2), bytes(bad)), (), NOW)
    assert (copy.intake.position, copy.intake.ordinal) == (4, 4)
    with pytest.raises(CorruptData):
        copy.on_fetched(fetched(bytes(bad)), (), NOW)


def test_record_too_large_holds_back_nothing_before_it() -> None:
    copy = a_copy()
    copy.intake.limit_bytes = len(batch(0, 1))
    large = batch(2, 1, value=b"v" * 100)
    copy.on_fetched(fetched(batch(0, 1), batch(1, 1), large, batch(3, 1)), (), NOW)
    assert (copy.intake.position, copy.intake.ordinal) == (2, 2)
    with pytest.raises(PartitionError, match="offset 2"):
        copy.on_fetched(fetched(large, batch(3, 1)), (), NOW)


def test_batch_that_never_becomes_whole_is_corrupt() -> None:
    """The length field of a batch is too large, so the batch is never complete. It counts as
    corrupt, because waiting for its rest would never end and would not be reported.
    """
    copy = a_copy()
    bad = bytearray(batch(0, 2))
    bad[9] = 1
    with pytest.raises(CorruptData, match="offset 0"):
        copy.on_fetched(fetched(bytes(bad)), (), NOW)
    # every full response ends with a truncated batch after complete ones
    copy.on_fetched(fetched(batch(0, 2), batch(2, 2)[:-4]), (), NOW)
    assert copy.intake.position == 2


def test_release_drops_unsent_batches_and_keeps_acknowledged_ones() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(*(batch(n, 1) for n in range(5))), (), NOW)
    sent(copy)
    copy.drain()
    answer(copy, K)
    assert copy.state is CopyState.DRAINING
    assert (copy.acked_ordinal, copy.acked_upstream, copy.queued_bytes) == (1, 1, 0)
    assert copy.is_drained


def test_end_is_reached_after_trailing_markers() -> None:
    copy = a_copy(end=12)
    copy.on_fetched(fetched(batch(0, 10)), (), NOW)
    sent(copy)
    answer(copy, K)
    assert not copy.is_done
    copy.on_fetched(fetched(control(10, 1), control(11, 2)), (), NOW)
    assert copy.is_done


class Aborted:
    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset


def an_intake(
    *, isolation: Isolation = Isolation.READ_COMMITTED, limit: int = 1 << 20, ordinal: int = 0
) -> Intake:
    return Intake(
        position=0,
        ordinal=ordinal,
        k=K,
        last_run=Run(ordinal, 0, K + ordinal),
        producer_id=9,
        isolation=isolation,
        limit_bytes=limit,
    )


def test_aborted_data_is_skipped_but_not_records_after_its_marker() -> None:
    intake = an_intake()
    data = fetched(
        of_producer(0, 2, 50),
        of_producer(2, 1, 51),
        control(3, 50, commit=False),
        of_producer(4, 1, 50),
        control(5, 51),
    )
    out = intake.take(data, [Aborted(50, 0)], FOREVER)
    assert [(b.upstream, b.count, b.ordinal) for b in out] == [(2, 1, 0), (4, 1, 1)]
    assert [b.runs for b in out] == [(Run(0, 2, K),), (Run(1, 4, K + 1),)]
    assert intake.position == 6
    attributes = [HEADER.unpack_from(b.data)[5] for b in out]
    assert attributes == [0, 0], "the transactional bit is ours alone to set"


def test_offsets_left_out_between_batches_are_noted_and_skipped_ones_are_not() -> None:
    intake = an_intake()
    data = fetched(batch(0, 2), control(2, 50), batch(5, 1), of_producer(6, 2, 50), batch(10, 1))
    intake.take(data, [Aborted(50, 6)], FOREVER)
    assert intake.jumps == [(3, 5), (8, 10)]
    assert intake.position == 11


def test_read_uncommitted_keeps_aborted_data_and_skips_markers() -> None:
    intake = an_intake(isolation=Isolation.READ_UNCOMMITTED)
    data = fetched(of_producer(0, 2, 50), control(2, 50, commit=False), of_producer(3, 1, 50))
    assert [b.count for b in intake.take(data, [Aborted(50, 0)], FOREVER)] == [2, 1]


def test_batch_that_begins_before_the_position_is_trimmed() -> None:
    intake = an_intake()
    intake.position = 2
    (out,) = intake.take(fetched(batch(0, 5)), (), FOREVER)
    assert [r.key for r in decode_batch(out.data)] == [b"k2", b"k3", b"k4"]
    assert (out.upstream, out.upstream_next, intake.deep_batches) == (2, 5, 1)
    assert intake.batches == 1


def test_batch_over_the_targets_limit_is_split() -> None:
    intake = an_intake(limit=400)
    out = intake.take(fetched(batch(0, 60)), (), FOREVER)
    assert len(out) > 1
    assert sum(b.count for b in out) == 60
    assert all(len(b.data) <= 400 for b in out)
    assert [b.ordinal for b in out] == [sum(b.count for b in out[:n]) for n in range(len(out))]
    assert out[-1].upstream_next == 60


def test_no_batch_spans_the_sequence_wrap() -> None:
    intake = an_intake(ordinal=(1 << 31) - 2)
    out = intake.take(fetched(batch(0, 5)), (), FOREVER)
    assert [b.count for b in out] == [2, 3]
    sequences = [next(read_headers(b.data))[0].base_sequence for b in out]
    assert sequences == [(1 << 31) - 2, 0]


def test_nothing_at_or_after_the_end_is_copied() -> None:
    intake = an_intake()
    out = intake.take(fetched(batch(0, 2), batch(2, 2), batch(4, 2)), (), 4)
    assert [b.upstream for b in out] == [0, 2]


def too_large(copy: PartitionCopy) -> None:
    answer(copy, -1, error=10)


def test_batch_that_is_too_large_there_is_cut_and_sent_again() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 4), batch(6, 4)), (), NOW)
    before = copy.queued_bytes
    (whole,) = sent(copy)
    too_large(copy)
    assert copy.trouble is None
    assert copy.queued_bytes > before, "smaller batches have more headers, and all are counted"
    numbers = []
    while not copy.is_idle:
        (part,) = sent(copy)[:1]
        assert len(part.data) < len(whole.data)
        numbers += [(part.ordinal + i, part.upstream_at(i)) for i in range(part.count)]
        ((header, _),) = read_headers(part.data)
        assert (header.producer_id, header.base_sequence) == (9, part.ordinal)
        answer(copy, K + part.ordinal)
        while copy.in_flight:
            ordinal = numbers[-1][0] + 1
            rest = next(p for p in copy._in_flight if p.ordinal == ordinal)
            numbers += [(rest.ordinal + i, rest.upstream_at(i)) for i in range(rest.count)]
            answer(copy, K + rest.ordinal)
        copy.tail.on_durable(copy.tail.runs[-1])
    assert numbers == list(zip(range(8), [*range(4), *range(6, 10)], strict=True))
    assert (copy.acked_ordinal, copy.acked_upstream, copy.queued_bytes) == (8, 10, 0)
    assert copy.tail.runs[-1] == Run(4, 6, K + 4), "the map knows the gap where it is"


def test_batches_in_flight_after_it_are_sent_again_in_order() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(*(batch(n, 2) for n in (0, 2, 4, 6))), (), NOW)
    (first,) = sent(copy)
    answer(copy, K)
    assert [one.ordinal for one in sent(copy)] == [2, 4, 6]
    too_large(copy)
    assert not sent(copy), "nothing overtakes it"
    answer(copy, -1, error=45)
    answer(copy, -1, error=45)
    (again,) = sent(copy)
    assert (again.ordinal, again.count, again.sent) == (2, 1, 1)
    answer(copy, K + 2)
    assert [(one.ordinal, one.count) for one in sent(copy)] == [(n, 1) for n in range(3, 8)]
    assert first.count == 2


def test_single_record_that_is_too_large_stops_the_copy() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(batch(0, 2)), (), NOW)
    sent(copy)
    too_large(copy)
    (first,) = sent(copy)
    assert first.count == 1
    too_large(copy)
    assert copy.trouble is not None
    assert (copy.trouble.code, copy.trouble.poison) == ("RECORD_TOO_LARGE", (0, 1))


def test_a_batch_after_a_rejected_one_that_is_in_the_log_is_another_writers() -> None:
    copy = a_copy()
    copy.on_fetched(fetched(*(batch(n, 2) for n in (0, 2, 4))), (), NOW)
    sent(copy)
    answer(copy, K)
    sent(copy)
    too_large(copy)
    answer(copy, K + 4)
    assert copy.trouble is not None
    assert copy.trouble.code == "OTHER_WRITER"
    assert copy.acked_ordinal == 2


def test_rejected_batch_that_cannot_be_split_fails() -> None:
    copy = a_copy()
    nonsense = bytearray(batch(0, 2))
    nonsense[61:] = bytes(len(nonsense) - 61)
    copy.on_fetched(fetched(_crc(nonsense)), (), NOW)
    sent(copy)
    too_large(copy)
    assert copy.trouble is not None
    assert copy.trouble.code == "RECORD_TOO_LARGE"


def _crc(encoded: bytearray) -> bytes:
    encoded[17:21] = crc32c(bytes(encoded[21:])).to_bytes(4, "big")
    return bytes(encoded)


@pytest.mark.parametrize(("first_age", "goes"), [(0, 1), (2 * DAY, 0)])
def test_whole_batch_that_begins_with_an_old_record_waits_for_late_requests(
    first_age: int, goes: int
) -> None:
    """An earlier lane may have sent this batch in parts, because the target had rejected it as a
    whole. If the first record is old, the target may forget the producer ID after that part, and
    append a late request again. So the batch waits for late requests. A batch whose records are all
    fresh is sent immediately.
    """
    copy = a_copy(late=True)
    kept = [Record(0, NOW - first_age, b"k", b"v"), Record(1, NOW, b"k", b"v")]
    copy.on_fetched(fetched(bytes(encode_batch(kept, codec=Codec.NONE))), (), NOW)
    assert len(sent(copy)) == goes
