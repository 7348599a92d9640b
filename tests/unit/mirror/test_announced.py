"""Where a transformed copy resumes: only at an offset for which the map names the last record."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.support.memory_log import MemoryLog, MemoryView, find_starts
from twinlog.errors import TwinlogError
from twinlog.mirror.map.map_tail import MapTail, first_runs
from twinlog.mirror.map.offset_map import (
    END_OF_MAP,
    ChunkRow,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
)
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import StartPoint
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch, fingerprint

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
HERE_ID, THERE_ID = TopicId("a" * 32), TopicId("b" * 32)
KEY: Final = PartitionKey(HERE_ID, THERE_ID, 0)
NOW: Final = 1_800_000_000_000
PRODUCER: Final = 9
RULES: Final = StartRules(
    producer_id=PRODUCER, is_ours_alone=True, isolation=Isolation.READ_COMMITTED
)


def record(offset: int, value: bytes) -> Record:
    return Record(offset, NOW + offset, b"k", value)


class Logs:
    """A source with 30 records, and a target to which a copy has written batches."""

    def __init__(self) -> None:
        self.source, self.target = MemoryLog(), MemoryLog()
        self.source.write([record(at, b"v%d" % at) for at in range(30)])

    def wrote(self, *values: bytes) -> None:
        ordinal = self.target.end
        records = [record(ordinal + at, value) for at, value in enumerate(values)]
        batch = encode_batch(
            records,
            codec=Codec.NONE,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=ordinal,
        )
        self.target.append(bytes(batch))

    def start(self, *runs: Run, transformed: tuple[tuple[int, int], ...], **more: object) -> object:
        request = StartRequest(
            source=HERE,
            target=THERE,
            source_topic_id=HERE_ID,
            target_topic_id=THERE_ID,
            runs=runs,
            transformed=transformed,
            our_producers=frozenset({PRODUCER}),
        )
        request = replace(request, **more)  # type: ignore[arg-type]
        here, there = (
            MemoryView({HERE: self.source}, HERE_ID),
            MemoryView({THERE: self.target}, THERE_ID),
        )
        return find_starts([request], here, there, RULES)[HERE]


ALL: Final = ((0, END_OF_MAP),)


def upstream(found: object) -> int:
    assert isinstance(found, StartPoint), found
    return found.upstream


def test_last_record_is_named_by_the_run_of_its_batch() -> None:
    logs = Logs()
    logs.wrote(b"masked", b"masked")
    assert upstream(logs.start(Run(0, 3, 0), Run(1, 7, 1), transformed=ALL)) == 8


def test_next_ordinal_is_named_by_a_position_or_by_a_batch_that_was_not_sent() -> None:
    logs = Logs()
    logs.wrote(b"masked", b"masked")
    runs = Run(0, 3, 0), Run(1, 7, 1), Run(2, 20, 2), Run(4, 25, 4)
    assert upstream(logs.start(*runs, transformed=ALL)) == 20


def test_record_that_no_run_names_is_not_guessed() -> None:
    logs = Logs()
    logs.wrote(b"masked", b"masked")
    found = logs.start(Run(0, 3, 0), transformed=ALL)
    assert isinstance(found, TwinlogError) and found.code == "DIVERGED"
    assert "has no row for ordinal 1" in found.message


def test_other_record_than_the_announced_one_is_noticed() -> None:
    logs = Logs()
    logs.wrote(b"masked")
    right, wrong = fingerprint(record(0, b"masked")), fingerprint(record(0, b"other"))
    assert upstream(logs.start(Run(0, 3, 0), transformed=ALL, fingerprints={0: right})) == 4
    found = logs.start(Run(0, 3, 0), transformed=ALL, fingerprints={0: wrong})
    assert isinstance(found, TwinlogError) and found.code == "DIVERGED"


def test_raw_records_after_transformed_ones_are_compared_alone() -> None:
    logs = Logs()
    logs.wrote(b"masked", b"masked")
    logs.wrote(b"v2", b"v3")
    logs.source.batches.clear()
    logs.source.end = 0
    logs.source.write([record(at, b"v%d" % at) for at in range(30)])
    found = logs.start(Run(0, 0, 0), transformed=((0, 2),))
    assert upstream(found) == 4
    assert isinstance(found, StartPoint) and found.compared == 2


def test_raw_records_before_transformed_ones_are_compared_until_one_is_kept() -> None:
    logs = Logs()
    logs.wrote(b"v0", b"v1")
    spans = ((2, END_OF_MAP),)
    assert upstream(logs.start(Run(0, 0, 0), Run(2, 2, 2), transformed=spans)) == 2
    assert upstream(logs.start(Run(0, 0, 0), Run(2, 12, 2), transformed=spans)) == 12
    other = Logs()
    other.wrote(b"v0", b"else")
    found = other.start(Run(0, 0, 0), Run(2, 2, 2), transformed=spans)
    assert isinstance(found, TwinlogError), "a raw record is compared all the same"


def known(*rows: ChunkRow) -> PartitionMap:
    found = PartitionMap(KEY, "orders")
    for one in rows:
        found.apply(one)
    return found


def row(chunk: int, *runs: Run, transform: str = "", generation: int = 1) -> ChunkRow:
    return ChunkRow(
        key=KEY,
        term=Term(generation, 0),
        chunk=chunk,
        topic="orders",
        runs=runs,
        transform=transform,
    )


def test_map_knows_which_ordinals_were_transformed() -> None:
    raw = row(0, Run(0, 0, 0))
    assert (known(raw).transform, known(raw).transformed) == ("", ())
    assert (known(raw).transform_begins, known().transform_begins) == (0, 0)
    mixed = known(
        raw,
        row(1, Run(5, 9, 5), transform="aa"),
        row(2, Run(7, 19, 7), transform="bb"),
        row(3, Run(9, 29, 9)),
        row(4, Run(11, 39, 11), transform="aa"),
    )
    assert mixed.transformed == ((5, 9), (11, END_OF_MAP))
    assert (mixed.transform, mixed.transform_begins) == ("aa", 11)


def test_position_of_another_transform_begins_a_chunk_of_its_own() -> None:
    before, position = [Run(0, 0, 0), Run(4, 9, 4)], Run(6, 11, 6)
    runs = first_runs(before, 0, (), position, begins_chunk=True)
    assert runs == [*before, position]
    assert first_runs(before, 0, (), position) == before
    tail = MapTail(
        key=KEY,
        topic="orders",
        term=Term(2, 0),
        producer_id=PRODUCER,
        dirty=True,
        transform="aa",
    ).begin(runs, earlier="")
    rows = []
    while (made := tail.next_row()) is not None:
        rows.append(made[0])
    assert [(one.chunk, one.transform, one.runs) for one in rows] == [
        (0, "", tuple(before)),
        (1, "aa", (position,)),
    ]
    both = known(row(0, *before), *rows)
    assert (both.transformed, both.transform_begins) == (((6, END_OF_MAP),), 6)
    assert tail.hand_over(6) is None, "the runs at its end are of another transform"
