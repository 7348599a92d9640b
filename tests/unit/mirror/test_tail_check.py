"""The check of the last records against the map: which differences it finds, and how many records
it compares.
"""

from __future__ import annotations

import pytest

from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.start.corrections import next_upstream
from twinlog.mirror.start.tail_check import Comparison, TargetTail, compare, is_void
from twinlog.wire.records import Record, fingerprint

K = 100
RUNS = (Run(0, 0, K), Run(5, 8, K + 5))
"""Runs of the map: (ordinal, upstream offset, target offset). Ordinals 0 to 4 are at upstream
offsets 0 to 4, and ordinals 5, 6, ... at 8, 9, ...
"""


def a_record(number: int, offset: int = 0) -> Record:
    return Record(offset=offset, timestamp=number, key=b"k%d" % number, value=b"v%d" % number)


def a_tail(numbers: dict[int, int]) -> TargetTail:
    """Return a target tail. `numbers`: number of the record at each ordinal."""
    return TargetTail(
        records=tuple(a_record(n, K + ordinal) for ordinal, n in sorted(numbers.items())),
        last_header=None,
        is_log_append_time=False,
    )


def compared(numbers: dict[int, int], source: dict[int, int]) -> Comparison:
    """Compare the target's tail with the source. `source`: the leader epoch at each upstream offset
    where the source has a record. This record's number is its offset.
    """
    known = {offset: (a_record(offset, offset), epoch) for offset, epoch in source.items()}
    return compare(a_tail(numbers), RUNS, known, k=K, fingerprints={})


ALL = {3: 3, 4: 4, 5: 8, 6: 9}


@pytest.mark.parametrize(
    ("source", "equal", "proves", "epoch"),
    [
        ({3: 1, 4: 1, 8: 2, 9: 2}, 4, True, 2),
        ({3: 1, 4: 1, 8: 1, 9: 2}, 4, True, 2),
        # the newest records were compacted away, maybe after a leader change
        ({3: 1, 4: 1}, 2, False, -1),
        ({3: 1, 4: 1, 8: 1}, 3, False, -1),
        ({}, 0, False, -1),
    ],
)
def test_epoch_is_only_that_of_the_record_before_the_position(
    source: dict[int, int], equal: int, proves: bool, epoch: int
) -> None:
    found = compared(ALL, source)
    assert found.is_consistent
    assert found.equal == equal
    assert found.proves(7) == proves
    assert found.epoch_before(7, 10) == epoch
    assert found.epoch_before(7, 12) == -1, "announced ahead, behind a marker"
    assert found.epoch_before(8, 11) == -1, "the target's last record was cleaned"


def test_record_that_differs_speaks_against_the_map() -> None:
    found = compared(ALL | {6: 77}, {3: 1, 4: 1, 8: 1, 9: 1})
    assert not found.is_consistent
    assert found.differing == ((K + 6, 9),)
    assert not found.proves(7)


@pytest.mark.parametrize(
    ("ordinal", "log_start", "upstream"),
    [
        (0, 0, 0),
        (3, 0, 3),
        (5, 0, 5),  # after the last record, not at the offset where the next one was announced
        (5, 5, 5),
        (5, 6, 8),  # the source no longer has this offset
        (6, 0, 9),
    ],
)
def test_source_is_read_from_directly_after_the_last_record(
    ordinal: int, log_start: int, upstream: int
) -> None:
    assert next_upstream(RUNS, ordinal, log_start) == upstream


@pytest.mark.parametrize(
    ("there", "announced", "void"),
    [({5: 8}, 8, False), ({5: 5}, 8, True), ({4: 4}, 8, None), ({5: 8}, None, None)],
)
def test_fingerprint_says_whether_an_announced_record_was_written(
    there: dict[int, int], announced: int | None, void: bool | None
) -> None:
    prints = {} if announced is None else {5: fingerprint(a_record(announced))}
    assert is_void(RUNS[1], a_tail(there), K, prints) is void
