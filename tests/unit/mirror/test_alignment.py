"""Which source record the last record of a target topic is, if MirrorMaker 2 has copied it
there.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import pytest

from twinlog.mirror.start.alignment import AlignedPosition, Alignment, identity
from twinlog.wire.records import Record


def aligned(
    target: Sequence[int],
    source: Sequence[tuple[int, int]],
    noted: int,
    *,
    portion: int = 3,
    holes: Sequence[int] = (),
    is_compacted: bool = True,
) -> AlignedPosition | None:
    """Return the source record to which the last target record belongs. A number stands for a
    record's content. `noted`: position (source offset) that MirrorMaker 2 has stored. `holes`:
    target offsets that were compacted away.
    """
    offsets = [at for at in range(len(target) + len(holes)) if at not in holes]
    alignment = Alignment(
        target_offsets=offsets,
        target=array("q", target),
        noted=noted,
        source_may_lack=is_compacted,
        target_may_lack=is_compacted,
    )
    end = source[-1][0] + 1 if source else 0
    for at in range(0, len(source), portion):
        alignment.add(source[at : at + portion])
        if found := alignment.search(is_end=False, source_end=end):
            return found
    return alignment.search(is_end=True, source_end=end)


def dense(*records: int, first: int = 0) -> list[tuple[int, int]]:
    return [(first + at, record) for at, record in enumerate(records)]


def test_after_a_stop_in_order_it_is_the_noted_record() -> None:
    assert aligned([1, 2, 3], dense(1, 2, 3, 4, 5), noted=2) == AlignedPosition(
        upstream=2, jumped_back=False
    )


def test_records_after_the_noted_one_are_found() -> None:
    assert aligned([1, 2, 3, 4], dense(1, 2, 3, 4, 5), noted=0) == AlignedPosition(
        upstream=3, jumped_back=False
    )


def test_everything_is_copied() -> None:
    assert aligned([1, 2, 3], dense(1, 2, 3), noted=0) == AlignedPosition(
        upstream=2, jumped_back=False
    )


def test_nothing_was_noted() -> None:
    assert aligned([1, 2], dense(1, 2, 3), noted=-1) == AlignedPosition(
        upstream=1, jumped_back=False
    )


def test_jump_back_of_a_restart() -> None:
    found = aligned([1, 2, 3, 4, 2, 3], dense(1, 2, 3, 4, 5), noted=1)
    assert found == AlignedPosition(upstream=2, jumped_back=True)


def test_jump_back_is_not_mistaken_for_equal_records() -> None:
    # The last target record alone also equals the source record at offset 1. The records before it
    # show that it is the one at offset 4.
    assert aligned([1, 7, 8, 9, 7], dense(1, 7, 8, 9, 7, 5), noted=0) == AlignedPosition(
        upstream=4, jumped_back=False
    )


def test_of_equal_records_the_lowest_certainly_copied_one_is_used() -> None:
    assert aligned([7, 7, 7], dense(7, 7, 7, 7, 7, 7), noted=3) == AlignedPosition(
        upstream=3, jumped_back=False
    )


def test_compaction_of_the_source() -> None:
    # the source has since lost records 2 and 4 by compaction
    source = [(0, 1), (2, 3), (4, 5), (5, 6)]
    assert aligned([1, 2, 3, 4, 5], source, noted=0) == AlignedPosition(
        upstream=4, jumped_back=False
    )


def test_last_record_was_compacted_at_the_source() -> None:
    source = [(0, 1), (1, 2), (3, 4), (4, 5)]
    assert aligned([1, 2, 3], source, noted=1) == AlignedPosition(upstream=1, jumped_back=False)


def test_compaction_of_the_target() -> None:
    assert aligned([1, 3, 4], dense(1, 2, 3, 4, 5), noted=2, holes=[1]) == AlignedPosition(
        upstream=3, jumped_back=False
    )


def test_markers_of_transactions_at_the_source() -> None:
    source = [(0, 1), (1, 2), (3, 3), (4, 4), (6, 5)]
    assert aligned([1, 2, 3, 4], source, noted=3) == AlignedPosition(upstream=4, jumped_back=False)


def test_first_records_are_gone_from_the_source() -> None:
    assert aligned([1, 2, 3, 4], dense(3, 4, 5, first=2), noted=3) == AlignedPosition(
        upstream=3, jumped_back=False
    )


@pytest.mark.parametrize("target", [[9], [1, 2, 9], [9, 9, 2, 3], [2, 1, 3]])
def test_foreign_records(target: list[int]) -> None:
    assert aligned(target, dense(1, 2, 3, 4), noted=0) is None


def test_any_history_of_restarts_is_found_again() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        source = [chance.randrange(1000) for _ in range(60)]  # some of the records are equal
        target: list[int] = []
        noted = at = -1
        for _ in range(chance.randrange(1, 5)):
            at = noted  # MirrorMaker 2 restarts
            for _ in range(chance.randrange(1, 15)):
                at += 1
                target.append(source[at])
                if chance.random() < 0.1:
                    noted = at
        found = aligned(target, dense(*source), noted, portion=chance.randrange(1, 70))
        assert found is not None, seed
        assert found.upstream <= at, f"{seed}: a record would be lost"
        if len(set(source)) == len(source):
            assert found.upstream == at, seed


def test_any_history_with_a_marker_after_every_record_is_found_again() -> None:
    """A transaction marker follows every source record. A marker's offset must not be treated as
    that of a compacted record, to which a target record could belong. So every position of
    MirrorMaker 2 is found.
    """
    for seed in range(300):
        chance = random.Random(seed)
        records = chance.sample(range(1000), 60)
        source = [(2 * at, record) for at, record in enumerate(records)]
        target: list[int] = []
        noted = at = -1
        for _ in range(chance.randrange(1, 5)):
            at = noted
            for _ in range(chance.randrange(1, 15)):
                at += 1
                target.append(records[at])
                if chance.random() < 0.1:
                    noted = at
        portion = chance.randrange(1, 70)
        found = aligned(target, source, 2 * noted, portion=portion, is_compacted=False)
        assert found is not None, seed
        assert found.upstream == 2 * at, seed


def test_identity_is_the_content_that_a_consumer_sees() -> None:
    one = Record(0, 5, b"k", b"v", (("h", b"x"),))
    assert identity(one, with_timestamp=True) == identity(
        one._replace(offset=9), with_timestamp=True
    )
    for other in (
        one._replace(key=None),
        one._replace(value=None),
        one._replace(timestamp=6),
        one._replace(headers=()),
    ):
        assert identity(one, with_timestamp=True) != identity(other, with_timestamp=True)
    assert identity(one, with_timestamp=False) == identity(
        one._replace(timestamp=6), with_timestamp=False
    )
