"""Findings of a comparison of two in-memory logs. The target's log is copied as by a lane, and then
damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support.memory_log import MemoryLog
from twinlog.mirror.copy.intake import Intake, RolledBack
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.skips import Skip
from twinlog.mirror.verify.difference import Compared, DifferenceKind, GapCause
from twinlog.mirror.verify.matching import OffsetPairs, with_own_batches
from twinlog.mirror.verify.side import Piece, ReadSide
from twinlog.mirror.verify.walk import LogWalk, Rules
from twinlog.model import Isolation
from twinlog.wire.compression import Recompression
from twinlog.wire.record_batch import Codec, read_header, read_headers
from twinlog.wire.records import Record, encode_batch

OURS = 77
NOW = 1_700_000_000_000


def record(number: int, value: bytes | None = None) -> Record:
    return Record(
        offset=0,
        timestamp=NOW + number,
        key=b"k%d" % number,
        value=b"v%d" % number if value is None else value,
        headers=(("n", b"%d" % number),),
    )


@dataclass
class Copied:
    """A source, and its copy as a lane writes it."""

    source: MemoryLog = field(default_factory=MemoryLog)
    target: MemoryLog = field(default_factory=MemoryLog)
    runs: list[Run] = field(default_factory=list)
    isolation: Isolation = Isolation.READ_COMMITTED
    source_may_lack: bool = False
    target_may_lack: bool = False

    def put(self, numbers: Sequence[int], each: int = 5, codec: Codec = Codec.NONE) -> None:
        for at in range(0, len(numbers), each):
            some = [record(number) for number in numbers[at : at + each]]
            self.source._store(encode_batch(some, codec=codec))

    def copy(self, *, skips: Sequence[Skip] = (), recompression: Recompression | None = None,
             join_bytes: int = 0) -> None:  # fmt: skip
        intake = Intake(
            position=self.source.log_start,
            ordinal=0,
            k=self.target.end,
            last_run=None,
            producer_id=OURS,
            isolation=self.isolation,
            limit_bytes=1 << 20,
            skips=skips,
            recompression=recompression,
            join_bytes=join_bytes,
        )
        while intake.position < self.source.end:
            before = intake.position
            answer = self.source.read(before)
            for out in intake.take(answer, self.source.aborted, self.source.end):
                self.runs += out.runs
                assert self.target.append(out.data).error == 0
            if intake.position == before:
                break

    def rewrite(self, change: Callable[[list[Record]], list[Record]], each: int = 4) -> None:
        """Replace the target's log by a log with the records that `change` returns."""
        records = change(self.target.records())
        self.target = MemoryLog(log_start=self.target.log_start)
        self.target.end = self.target.log_start
        for at in range(0, len(records), each):
            self.target._store(encode_batch(records[at : at + each], codec=Codec.NONE))

    def compare(
        self, rules: Rules | None = None, runs: Sequence[Run] | None = None, until: int = -1
    ) -> Compared:
        pairs = OffsetPairs(runs or self.runs)
        compared = Compared()
        begin = max(self.source.log_start, pairs.first.upstream)
        there = max(self.target.log_start, pairs.first_counterpart(begin))
        if there == self.target.log_start:
            begin = max(begin, pairs.first_origin(there))
        origin = OffsetPairs(runs or self.runs).origin(self.target.end - 1)
        assert origin is not None
        reach = min(self.source.end, origin.offset + 1 if until < 0 else until)
        source = ReadSide(
            pieces(self.source, self.isolation), begin, reach,
            start=lambda: self.source.log_start, may_lack=self.source_may_lack,
            result=compared,
        )  # fmt: skip
        target = ReadSide(
            pieces(self.target, Isolation.READ_UNCOMMITTED), there, self.target.end,
            start=lambda: self.target.log_start, may_lack=self.target_may_lack,
            result=compared,
        )  # fmt: skip
        walk = LogWalk(
            pairs=pairs, source=source, target=target, rules=rules or Rules(), result=compared
        )
        walk.walk()
        walk.find_pending(self.source.end)
        return compared


def pieces(log: MemoryLog, isolation: Isolation) -> Iterator[Piece]:
    raw = log.read(log.log_start)
    rolled_back = RolledBack(log.aborted if isolation is Isolation.READ_COMMITTED else ())
    for header, at in read_headers(raw):
        batch = raw[at : at + header.length]
        is_gone = rolled_back.skip(header, batch)
        hides = GapCause.MARKERS if header.is_control else GapCause.ABORTED if is_gone else None
        yield Piece(header, batch, hides)


def found(compared: Compared) -> list[tuple[object, ...]]:
    return [(one.kind, one.source, one.target, one.records) for one in compared.differences]


@pytest.fixture
def plain() -> Copied:
    """Thirty records in batches of five, and their copy."""
    out = Copied()
    out.put(range(30))
    out.copy()
    return out


def test_copy_is_identical_by_its_bytes(plain: Copied) -> None:
    compared = plain.compare()
    assert (found(compared), compared.equal, compared.by_bytes) == ([], 30, 30)
    deep = plain.compare(Rules(is_deep=True))
    assert (found(deep), deep.equal, deep.by_bytes) == ([], 30, 0)


def test_one_flipped_byte(plain: Copied) -> None:
    def flip(records: list[Record]) -> list[Record]:
        records[12] = records[12]._replace(value=b"v13")
        return records

    plain.rewrite(flip)
    assert found(plain.compare()) == [(DifferenceKind.DIFFERENT, Span(12, 13), Span(12, 13), 1)]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("key", {"key": b"other"}), ("no key", {"key": None}), ("timestamp", {"timestamp": 5}),
        ("header", {"headers": (("n", None),)}), ("no value", {"value": None}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_whatever_a_consumer_sees_counts(
    plain: Copied, name: str, changed: dict[str, object]
) -> None:
    def change(records: list[Record]) -> list[Record]:
        return [*records[:29], records[29]._replace(**changed)]  # type: ignore[arg-type]

    plain.rewrite(change)
    assert found(plain.compare()) == [(DifferenceKind.DIFFERENT, Span(29, 30), Span(29, 30), 1)], (
        name
    )


def test_wrong_checksum_of_equal_bytes(plain: Copied) -> None:
    stored = plain.target.batches[2]
    spoilt = bytearray(stored.data)
    spoilt[17] ^= 1
    plain.target.batches[2] = stored._replace(data=bytes(spoilt))
    (one,) = plain.compare().differences
    assert (one.kind, one.target, one.records) == (DifferenceKind.DIFFERENT, Span(10, 15), 5)
    assert "CRC" in one.why


def test_lost_last_record_is_pending(plain: Copied) -> None:
    plain.rewrite(lambda records: records[:-1])
    compared = plain.compare()
    assert (found(compared), compared.pending) == ([], Span(29, 30))


def test_lost_record_within_the_copy(plain: Copied) -> None:
    plain.rewrite(lambda records: records[:-1])
    assert found(plain.compare(until=30)) == [(DifferenceKind.MISSING, Span(29, 30), None, 1)]


def test_lost_record_in_the_middle(plain: Copied) -> None:
    plain.rewrite(lambda records: records[:7] + records[8:])
    assert found(plain.compare(until=30)) == [
        (DifferenceKind.MISSING, Span(7, 8), None, 1),
        (DifferenceKind.SHIFTED, Span(8, 30), Span(7, 29), 22),
    ]


@pytest.mark.parametrize("at", [0, 7, 10])
def test_duplicate(plain: Copied, at: int) -> None:
    plain.rewrite(lambda records: records[: at + 1] + records[at:])
    # the second of two equal records is the additional one
    extra = at + 1
    assert found(plain.compare()) == [
        (DifferenceKind.EXTRA, None, Span(extra, extra + 1), 1),
        (DifferenceKind.SHIFTED, Span(at + 1, 30), Span(at + 2, 31), 29 - at),
    ]


def test_duplicate_of_the_last(plain: Copied) -> None:
    plain.rewrite(lambda records: [*records, records[-1]])
    assert found(plain.compare()) == [(DifferenceKind.EXTRA, None, Span(30, 31), 1)]


def test_swap(plain: Copied) -> None:
    def swap(records: list[Record]) -> list[Record]:
        records[11], records[12] = records[12], records[11]
        return records

    plain.rewrite(swap)
    assert found(plain.compare()) == [(DifferenceKind.REORDERED, Span(11, 13), Span(11, 13), 2)]


@pytest.mark.parametrize("by", [-3, -1, 1, 3])
@pytest.mark.parametrize("side", ["upstream", "downstream"])
def test_shifted_row_of_the_map(side: str, by: int) -> None:
    copied = Copied()
    copied.put(range(10))
    copied.source.end += 4  # a gap
    copied.put(range(10, 40))
    copied.copy()
    first, second = copied.runs
    wrong = second._replace(**{side: getattr(second, side) + by})
    compared = copied.compare(runs=[first, wrong], until=44)
    shifted = [one for one in compared.differences if one.kind is DifferenceKind.SHIFTED]
    assert sum(one.records for one in shifted) >= 30 - abs(by)
    assert {one.kind for one in compared.differences} <= {
        DifferenceKind.SHIFTED,
        DifferenceKind.EXTRA,
        DifferenceKind.MISSING,
    }
    assert shifted[-1].source == Span(shifted[-1].source[0], 44)  # type: ignore[index]
    assert copied.compare().is_identical


def test_missing_row_leaves_records_without_an_offset() -> None:
    copied = Copied()
    copied.put(range(10))
    copied.source.end += 4
    copied.put(range(10, 40))
    copied.copy()
    compared = copied.compare(runs=copied.runs[:1], until=44)
    assert [one.kind for one in compared.differences] == [DifferenceKind.SHIFTED]
    assert compared.differences[0].source == Span(14, 44)


def test_long_stretch_of_different_records(plain: Copied) -> None:
    copied = Copied()
    copied.put(range(12_000), each=500)
    copied.copy()
    other = [record(number, b"other") for number in range(12_000)]
    copied.rewrite(lambda records: records[:10] + other[10:11_990] + records[11_990:], each=700)
    assert found(copied.compare()) == [
        (DifferenceKind.DIFFERENT, Span(10, 11_990), Span(10, 11_990), 11_980)
    ]


def test_records_that_are_all_alike() -> None:
    copied = Copied()
    same = record(1)
    for _ in range(20):
        copied.source.write([same] * 5)
    copied.copy()
    assert copied.compare().is_identical
    copied.rewrite(lambda records: [*records, same])
    assert found(copied.compare()) == [(DifferenceKind.EXTRA, None, Span(100, 101), 1)]


def test_transactions() -> None:
    copied = Copied()
    for number in range(12):
        copied.source.write([record(number), record(number + 100)], producer_id=5)
        copied.source.finish(5, NOW, commit=bool(number % 3))
    copied.copy()
    compared = copied.compare()
    assert (found(compared), compared.equal, compared.pending) == ([], 16, None)
    assert (compared.gaps[GapCause.ABORTED], compared.gaps[GapCause.MARKERS]) == (
        6,
        11,
    )  # the copy began after the first record


def test_aborted_record_on_the_target_is_extra() -> None:
    copied = Copied(isolation=Isolation.READ_UNCOMMITTED)
    copied.put(range(10))
    copied.source.write([record(99)], producer_id=5)
    copied.source.finish(5, NOW, commit=False)
    copied.put(range(10, 20))
    copied.copy()
    assert copied.compare().is_identical
    copied.isolation = Isolation.READ_COMMITTED
    assert found(copied.compare()) == [(DifferenceKind.EXTRA, None, Span(10, 11), 1)]


@pytest.mark.parametrize("codec", list(Codec))
def test_holes_codecs_and_joins_are_decoded(codec: Codec) -> None:
    copied = Copied(source_may_lack=True)
    copied.put(range(40), codec=codec)
    copied.source.batches[:] = copied.source.batches
    copied.copy(recompression=Recompression(codec=Codec.GZIP, every=True))
    compared = copied.compare()
    assert (found(compared), compared.equal) == ([], 40)


def test_joined_batches() -> None:
    copied = Copied()
    copied.put(range(40), each=1)
    copied.copy(join_bytes=10_000)
    assert len(copied.target.batches) < 10
    compared = copied.compare()
    assert (found(compared), compared.equal, compared.by_bytes) == ([], 40, 0)


def test_compaction_before_and_after_the_copy() -> None:
    copied = Copied(source_may_lack=True, target_may_lack=True)
    copied.put(range(60))
    copied.source.compact(lambda one: one.offset % 3 != 0)
    copied.copy()
    assert copied.compare().is_identical
    copied.source.compact(lambda one: one.offset % 4 != 0)
    compared = copied.compare()
    assert compared.is_identical
    assert compared.gaps[GapCause.SOURCE_CLEANED] > 0
    copied.target.compact(lambda one: one.offset % 5 != 0)
    compared = copied.compare()
    assert compared.is_identical
    assert compared.gaps[GapCause.TARGET_CLEANED] > 0


def test_difference_among_compacted_records() -> None:
    copied = Copied(source_may_lack=True, target_may_lack=True)
    copied.put(range(60))
    copied.source.compact(lambda one: one.offset % 3 != 0)
    copied.copy()
    copied.source.compact(lambda one: one.offset % 4 != 0)
    there = copied.target.records()[7]
    upstream = next(run for run in reversed(copied.runs) if run.downstream <= 7).upstream_of(7)
    assert any(one.offset == upstream for one in copied.source.records())

    def change(records: list[Record]) -> list[Record]:
        return [one._replace(value=b"x") if one == there else one for one in records]

    copied.rewrite(change)
    assert found(copied.compare()) == [
        (DifferenceKind.DIFFERENT, Span(upstream, upstream + 1), Span(7, 8), 1)
    ]


def test_topic_that_is_not_compacted_lacks_nothing(plain: Copied) -> None:
    plain.source.compact(lambda one: one.offset != 7)
    assert found(plain.compare()) == [(DifferenceKind.EXTRA, None, Span(7, 8), 1)]


@pytest.mark.parametrize(("here", "there"), [(12, 0), (0, 12), (10, 12), (12, 10), (15, 15)])
def test_retention_of_either_side(plain: Copied, here: int, there: int) -> None:
    plain.source.delete_before(here)
    plain.target.delete_before(there)
    compared = plain.compare()
    assert (found(compared), compared.equal) == ([], 30 - max(here, there))


def test_skipped_record() -> None:
    copied = Copied()
    copied.put(range(20))
    skips = (Skip(first=7, next=8),)
    copied.copy(skips=skips)
    compared = copied.compare(Rules(skips=skips))
    assert (found(compared), compared.gaps[GapCause.SKIPPED]) == ([], 1)
    assert found(copied.compare()) == [(DifferenceKind.MISSING, Span(7, 8), None, 1)]


def test_foreign_records_of_a_shared_topic() -> None:
    copied = Copied()
    copied.put(range(20))
    copied.copy()
    foreign = [record(500), record(501)]
    copied.rewrite(lambda records: records[:10] + foreign + records[10:])
    runs = [Run(0, 0, 0), Run(10, 10, 12)]
    assert found(copied.compare(runs=runs)) == [(DifferenceKind.EXTRA, None, Span(10, 12), 2)]
    accepted = copied.compare(Rules(accepted=((10, 12),)), runs=runs)
    assert (found(accepted), accepted.gaps[GapCause.ACCEPTED]) == ([], 2)
    shared = copied.compare(Rules(is_shared=True), runs=runs)
    assert (found(shared), shared.gaps[GapCause.OTHERS]) == ([], 2)


def test_timestamps_set_by_the_target(plain: Copied) -> None:
    records = plain.target.records()
    plain.target = MemoryLog()
    batch = encode_batch(records, codec=Codec.NONE)
    batch[22] |= 0x08
    batch[35:43] = (NOW + 99_999).to_bytes(8, "big")
    from tests.support.memory_log import _with_bits

    plain.target._store(_with_bits(batch, 0))
    compared = plain.compare()
    assert (found(compared), compared.gaps[GapCause.OWN_TIME]) == ([], 30)


def test_sequences_identify_own_records_of_a_shared_topic() -> None:
    def batch(base: int, sequence: int, count: int, producer: int = OURS) -> object:
        some = [record(number) for number in range(count)]
        data = encode_batch(some, codec=Codec.NONE, producer_id=producer, producer_epoch=0,
                            base_sequence=sequence)  # fmt: skip
        data[0:8] = base.to_bytes(8, "big")
        return read_header(memoryview(data))

    headers = [batch(7, 5, 2), batch(9, 0, 3, producer=1), batch(12, 7, 4)]
    runs = [Run(0, 100, 0), Run(8, 200, 8)]
    made, reached = with_own_batches(runs, Mark(5, 6), headers, frozenset({OURS}))  # type: ignore[arg-type]
    assert made == [Run(0, 100, 0), Run(5, 105, 7), Run(7, 107, 12), Run(8, 200, 13)]
    assert reached == Mark(11, 16)
