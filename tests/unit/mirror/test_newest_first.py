"""Which reads return the newest records of a log, whatever their sizes are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.mirror.start.both_logs import MAX_READS, newest_first
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, encode_batch

ANSWER = 10_000
"""Maximum bytes of a broker's response, unless a single batch is larger."""


class Log:
    """A log of batches with one record each. `sizes`: the size of the batch at each offset."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.batches = {
            offset: bytes(
                encode_batch(
                    [Record(offset, 0, None, b"." * size)], codec=Codec.NONE, base_offset=offset
                )
            )
            for offset, size in sizes.items()
        }
        self.reads: list[int] = []

    def read(self, offset: int) -> memoryview:
        self.reads.append(offset)
        out = b""
        for at in sorted(self.batches):
            if at < offset:
                continue
            if out and len(out) + len(self.batches[at]) > ANSWER:
                break
            out += self.batches[at]
        return memoryview(out)

    def seen(self, wanted: Sequence[int]) -> list[int]:
        found: set[int] = set()
        for raw in newest_first(self.read, wanted).answers:
            found |= {header.base_offset for header, _ in read_headers(raw)}
        return sorted(found & set(wanted))


@pytest.mark.parametrize(
    ("sizes", "seen", "reads"),
    [
        (dict.fromkeys(range(100), 10), list(range(100)), 1),
        ({}, [], 1),
        (dict.fromkeys([0, 50, 99], 10), [0, 50, 99], 1),
        (dict.fromkeys(range(100), 10) | {99: 20_000}, list(range(100)), 8),
        (dict.fromkeys(range(100), 10) | {0: 20_000}, list(range(100)), 9),
        (dict.fromkeys([98, 99], 20_000), [98, 99], 9),
    ],
    ids=["small", "cleaned", "holes", "last-is-large", "first-is-large", "two-large"],
)
def test_all_newest_records_are_read(sizes: dict[int, int], seen: list[int], reads: int) -> None:
    log = Log(sizes)
    assert log.seen(range(100)) == seen
    assert len(log.reads) <= reads


@pytest.mark.parametrize("size", [4_000, 9_000, 60_000])
def test_of_large_records_the_newest_are_seen_within_the_bound(size: int) -> None:
    log = Log(dict.fromkeys(range(100), size))
    seen = log.seen(range(100))
    newest = [
        offset for offset in seen if list(range(offset, 100)) == [s for s in seen if s >= offset]
    ]
    assert newest[-1] == 99
    assert len(newest) >= 10
    assert len(log.reads) <= MAX_READS


@given(
    st.dictionaries(st.integers(0, 99), st.integers(0, 25_000), max_size=30),
    st.sets(st.integers(0, 99)),
)
def test_newest_is_always_seen_and_no_newer_one_left_out(
    sizes: dict[int, int], some: set[int]
) -> None:
    wanted = sorted(some)
    log = Log(sizes)
    seen = log.seen(wanted)
    there = [offset for offset in wanted if offset in sizes]
    assert len(log.reads) <= MAX_READS
    if there:
        assert there[-1] in seen


@given(
    st.dictionaries(st.integers(0, 99), st.integers(0, 25_000), max_size=60),
)
@example(
    # the limit is reached one read before the end, so no read is complete
    {
        **dict.fromkeys([0, 2, 3, 59, 60, 61, 62, 63, 98], 0),
        **dict.fromkeys([4, 40, 66], 64),
        **{1: 1816, 41: 7573, 95: 9455, 97: 9861},
    }
)
def test_nothing_is_missing_after_the_offset_from_which_the_read_is_whole(
    sizes: dict[int, int],
) -> None:
    log = Log(sizes)
    answers, whole_from = newest_first(log.read, range(100), max_reads=5)
    seen = {header.base_offset for raw in answers for header, _ in read_headers(raw)}
    assert {offset for offset in sizes if offset >= whole_from} <= seen
