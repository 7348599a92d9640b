"""A table of how far a partition is copied, and by which evidence, for every combination of
facts.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from twinlog.cluster.logs.producers import ProducerState
from twinlog.errors import Unreachable
from twinlog.mirror.map.foreign_records import BorderUnknown
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, PartitionMap, Run, Term
from twinlog.mirror.plan import PartitionPair
from twinlog.model import NO_TOPIC_ID, SEQUENCE_MODULUS, TopicId, TopicPartition
from twinlog.survey.ends import LogState
from twinlog.survey.replica import (
    NOTHING,
    UNKNOWN,
    Certainty,
    Copied,
    Maps,
    Ownership,
    Replica,
    Witness,
    by_headers,
    foreign_after,
    pair_of_target,
    replica,
)
from twinlog.wire.record_batch import BatchHeader

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("A.t", 0)
COPIED, AGAIN, REMOTE = TopicId("a" * 32), TopicId("b" * 32), TopicId("c" * 32)
OURS, EARLIER, OTHER = 9, 8, 7

ALL = Copied(Certainty.EXACT, Witness.PRODUCER, 10, 112, 80, 112)
TWO = Copied(Certainty.EXACT, Witness.PRODUCER, 2, 102, 72, 103)
"""The result if the log was truncated after two records, or if the earlier producer ID wrote only
two. Offset 102 has no record.
"""
MARK = Copied(Certainty.AT_LEAST, Witness.MARK, 4, 105, 74, 105)
FINAL = replace(MARK, certainty=Certainty.EXACT)
NONE = Copied(Certainty.AT_LEAST, Witness.MARK, 0, 100, 70, 100)
"""The result if only the beginning of the map is known, so no record counts as copied."""
BRANCHES = Copied(Certainty.AT_LEAST, Witness.MARK, 6, 105, resumes_at=105)
"""The result for a keyed topic. One branch has 4 records up to offset 105, the other has 2 up to
offset 110.
"""


def by_end(copied: Copied) -> Copied:
    return replace(copied, witness=Witness.LOG_END)


class Facts(NamedTuple):
    """A combination of facts. The flow wrote ten records to target offsets [70, 80). The mark in
    the map (`mirror.map.offset_map.Mark`) counts four of them. After a promotion, five records of
    new owners follow.
    """

    kind: str
    producer: str
    mark: str
    owners: str
    log: str
    topic: str
    map: str


VALUES = Facts(
    kind="own shared keyed",
    producer="newest earlier forgotten",
    mark="none plain final",
    owners="nobody promoted",
    log="whole truncated advanced away",
    topic="same recreated without-ids",
    map="read empty unread",
)


TABLE: list[tuple[str, Copied, str]] = [
    # kind producer mark owners log topic map; the first row that matches is used
    ("*      *         *     *        away      *         *      ", UNKNOWN, "UNREACHABLE"),
    ("*      *         *     *        *         *         unread ", UNKNOWN, "MAP_UNREADABLE"),
    ("*      *         *     *        *         *         empty  ", UNKNOWN, ""),
    ("*      *         *     *        *         recreated *      ", UNKNOWN, "SOURCE_RECREATED"),
    ("keyed  *         *     *        *         *         *      ", BRANCHES, ""),
    ("own    newest    *     nobody   whole     *         *      ", ALL, ""),
    ("own    newest    *     promoted whole     *         *      ", replace(ALL, foreign=5), ""),
    ("own    newest    *     *        *         *         *      ", TWO, ""),
    # records of an earlier ID suffice, unless a mark shows that more was written than the broker
    # remembers
    ("own    earlier   none  nobody   whole     *         *      ", replace(TWO, foreign=8), ""),
    ("own    earlier   none  promoted whole     *         *      ", replace(TWO, foreign=13), ""),
    ("own    earlier   *     *        truncated *         *      ", TWO, ""),
    ("own    earlier   *     *        advanced  *         *      ", TWO, ""),
    ("own    *         *     nobody   whole     *         *      ", by_end(ALL), ""),
    ("own    *         *     nobody   *         *         *      ", by_end(TWO), ""),
    ("own    *         none  promoted whole     *         *      ", replace(NONE, foreign=15), ""),
    ("own    *         none  promoted *         *         *      ", replace(NONE, foreign=2), ""),
    ("shared *         none  *        *         *         *      ", NONE, ""),
    ("*      *         *     *        truncated *         *      ", UNKNOWN, "TARGET_TRUNCATED"),
    ("own    *         plain promoted whole     *         *      ", replace(MARK, foreign=11), ""),
    ("own    *         final promoted whole     *         *      ", replace(FINAL, foreign=11), ""),
    ("*      *         plain *        *         *         *      ", MARK, ""),
    ("*      *         final *        *         *         *      ", FINAL, ""),
]


def row_of(facts: Facts) -> int:
    for row, (pattern, *_) in enumerate(TABLE):
        if all(value in ("*", fact) for value, fact in zip(pattern.split(), facts, strict=True)):
            return row
    raise AssertionError(f"the table has no row for {facts}")


EVERY = [Facts(*one) for one in product(*map(str.split, VALUES))]


def test_how_far_a_partition_is_copied() -> None:
    for facts in EVERY:
        found = replica_of(facts)
        problem = "" if found.problem is None else found.problem.code
        assert (facts, found.copied, problem) == (facts, *TABLE[row_of(facts)][1:])
        # a flow that keeps partitions has a shortcut, which must return the same `copied`
        if facts.kind != "keyed":
            assert (facts, replica_of(facts, targets=0).copied) == (facts, found.copied)
        upstream = found.to_target(10_000)
        downstream = found.to_source(10_000)
        if found.copied.downstream is None:
            assert (facts, upstream, downstream) == (facts, None, None)
            continue
        assert upstream is not None
        assert downstream is not None
        first, end = found.log
        assert (first, end) == (70, max(70, (found.target.end or 0) - found.copied.foreign)), facts
        assert upstream.offset == min(end, max(first, found.copied.downstream)), facts
        assert downstream.offset == found.copied.upstream, facts


def test_every_row_of_the_table_is_reached() -> None:
    assert {*map(row_of, EVERY)} == {*range(len(TABLE))}


def replica_of(facts: Facts, targets: int | None = None) -> Replica:
    ends = {"whole": 85 if facts.owners == "promoted" else 80, "truncated": 72, "advanced": 72}
    end = ends.get(facts.log)
    problem = Unreachable("no leader") if facts.log == "away" else None
    now = {"same": COPIED, "recreated": AGAIN, "without-ids": NO_TOPIC_ID}[facts.topic]
    unread = {0: Unreachable("no leader")} if facts.map == "unread" else {}
    known = {} if facts.map == "empty" else maps_of(facts)
    return replica(
        PartitionPair(source=SOURCE, target=TARGET, source_topic_id=now, target_topic_id=REMOTE),
        Maps(known, unread, 1),
        ownership_of(facts, end),
        target=LogState(70, end, problem=problem),
        later=LogState(end=80 if facts.log == "advanced" else end),
        targets=targets,
    )


def producers(last_sequences: dict[int, int]) -> dict[int, ProducerState]:
    return {
        id_: ProducerState(
            producer_epoch=0,
            last_sequence=sequence,
            last_timestamp=1_800_000_000_000,
            current_transaction_start_offset=-1,
        )
        for id_, sequence in last_sequences.items()
    }


def ownership_of(facts: Facts, end: int | None) -> Ownership:
    """Return the ownership of the target's records. A leader truncates its producer states with the
    log.
    """
    newest = 1 if end == 72 and facts.log == "truncated" else 9
    last = {"newest": {OURS: newest, EARLIER: 1}, "earlier": {EARLIER: 1}, "forgotten": {}}
    return Ownership(
        is_shared=facts.kind == "shared",
        producers={TARGET: producers({OTHER: 3, **last[facts.producer]})},
        has_new_owners=lambda topic: {"t": facts.owners == "promoted"}[topic],
    )


def maps_of(facts: Facts) -> dict[PartitionKey, PartitionMap]:
    mark = {"none": None, "plain": Mark(4, 74), "final": Mark(4, 74, is_final=True)}[facts.mark]
    whole = PartitionKey(COPIED, REMOTE, 0)
    runs = Run(0, 100, 70), Run(2, 103, 72), Run(6, 108, 76)
    if facts.kind != "keyed":
        return {whole: a_map(whole, runs, mark)}
    one, two = (whole._replace(branch=number, branches=2) for number in range(2))
    return {
        one: a_map(one, tuple(Run(n, 101 + n, n) for n in range(5)), Mark(4, 4)),
        two: a_map(two, (Run(0, 100, 0), Run(1, 109, 1)), Mark(2, 2)),
    }


def a_map(key: PartitionKey, runs: tuple[Run, ...], mark: Mark | None = None) -> PartitionMap:
    known = PartitionMap(key=key, topic="t")
    row = ChunkRow(key=key, term=Term(1, 0), chunk=0, topic="t", runs=runs, producer_id=EARLIER)
    known.apply(row)
    known.producers.add(OURS)
    known.mark = mark
    return known


# -- the log was read


def header(first: int, last: int, producer: int) -> BatchHeader:
    found = BatchHeader(*[0] * len(BatchHeader._fields))
    return found._replace(
        base_offset=first, last_offset_delta=last - first, producer_id=producer, magic=2
    )


@pytest.mark.parametrize(
    ("batches", "log", "refusal"),
    [
        ([(70, 79, OURS), (80, 84, OTHER)], (70, 85), ""),
        ([(70, 79, OURS), (80, 84, -1)], (75, 85), ""),
        ([(70, 76, EARLIER), (77, 79, OURS)], (70, 80), ""),
        ([(70, 76, OURS), (80, 84, OTHER)], (70, 85), "cleaner"),
        ([(80, 84, OTHER)], (80, 85), "retention"),
        ([], (85, 85), "retention"),
    ],
    ids=["whole", "begins-later", "two-ids", "compacted", "border-deleted", "all-deleted"],
)
def test_batch_headers_show_the_border_or_nothing(
    batches: list[tuple[int, int, int]], log: tuple[int, int], refusal: str
) -> None:
    facts = Facts("own", "forgotten", "plain", "promoted", "whole", "same", "read")
    found = replace(replica_of(facts), target=LogState(*log))

    def batch_from(offset: int, end: int) -> BatchHeader | None:
        there = (header(*one) for one in batches)
        return next((b for b in there if b.last_offset >= offset and b.base_offset < end), None)

    if refusal:
        with pytest.raises(BorderUnknown, match=refusal):
            by_headers(found, batch_from)
        return
    copied = by_headers(found, batch_from).copied
    assert copied == Copied(Certainty.EXACT, Witness.HEADERS, 10, 112, 80, 112, log[1] - 80)


def test_accepted_foreign_records_leave_no_single_border() -> None:
    facts = Facts("own", "forgotten", "plain", "promoted", "whole", "same", "read")
    found = replica_of(facts)
    assert found.key is not None
    moved = a_map(found.key, (Run(0, 100, 70), Run(6, 108, 79)), Mark(4, 74))
    with pytest.raises(BorderUnknown, match="accepted"):
        by_headers(replace(found, map=moved), lambda *_: None)


# -- the pair that a plan belongs to


def test_a_partition_without_rows_is_not_copied() -> None:
    pair = PartitionPair(
        source=SOURCE, target=TARGET, source_topic_id=COPIED, target_topic_id=REMOTE
    )
    found = replica(pair, Maps({}, {}, 1), Ownership(is_shared=False), target=LogState(0, 0))
    assert (found.copied, found.problem) == (NOTHING, None)
    unasked = replica(pair, Maps({}, {}, 1), Ownership(is_shared=False), target=LogState())
    assert unasked.copied == UNKNOWN


def test_a_plan_says_whether_records_are_placed_by_key() -> None:
    """A plan states the number of target partitions if records are partitioned by key. A copy with
    another number does not belong to the flow as it is configured now, so nothing counts as copied.
    """
    facts = Facts("keyed", "newest", "plain", "nobody", "whole", "same", "read")
    pair = PartitionPair(
        source=SOURCE, target=TARGET, source_topic_id=COPIED, target_topic_id=REMOTE
    )
    for targets, ordinal in ((0, None), (2, 6), (3, None), (None, 6)):
        ownership = Ownership(is_shared=False)
        maps = Maps(maps_of(facts), {}, 1)
        found = replica(pair, maps, ownership, target=LogState(0, 80), targets=targets)
        assert found.copied.ordinal == ordinal, targets


def test_the_newest_source_topic_of_a_copy_is_the_existing_one() -> None:
    old, new = PartitionKey(COPIED, REMOTE, 0), PartitionKey(AGAIN, REMOTE, 0)
    maps = Maps({old: a_map(old, (Run(0, 0, 0),)), new: a_map(new, (Run(0, 0, 0),))}, {}, 1)
    maps[new].term = Term(2, 0)
    for ids, expected_id in (({}, NO_TOPIC_ID), ({"t": COPIED}, COPIED), ({"t": AGAIN}, AGAIN)):
        pair = pair_of_target(maps, TARGET, REMOTE, ids)
        assert pair is not None
        assert pair.source_topic_id == expected_id
        found = replica(pair, maps, Ownership(is_shared=False), target=LogState(0, 5))
        assert found.key == (old if expected_id == COPIED else new)
    assert pair_of_target(maps, TARGET, COPIED, {}) is None


def test_target_topics_without_ids_are_not_mistaken_for_each_other() -> None:
    keys = PartitionKey(COPIED, NO_TOPIC_ID, 0), PartitionKey(AGAIN, NO_TOPIC_ID, 0)
    one, other = (PartitionMap(key=key, topic=name) for key, name in zip(keys, "tu", strict=True))
    for known in (one, other):
        runs = (Run(0, 0, 0),)
        known.apply(ChunkRow(key=known.key, term=Term(1, 0), chunk=0, topic=known.topic, runs=runs))
    maps, ownership = Maps({keys[0]: one, keys[1]: other}, {}, 1), Ownership(is_shared=False)
    new = PartitionPair(TopicPartition("v", 0), TopicPartition("A.v", 0), REMOTE, NO_TOPIC_ID)
    for targets in (0, None):
        found = replica(new, maps, ownership, target=LogState(0, 0), targets=targets)
        assert (found.problem, found.copied) == (None, NOTHING), "not the copy of another topic"
    copied = PartitionPair(SOURCE, TARGET, COPIED, NO_TOPIC_ID)
    assert replica(copied, maps, ownership, target=LogState(0, 5)).key == keys[0]
    assert pair_of_target(maps, TARGET, NO_TOPIC_ID, {}) is None
    assert pair_of_target(Maps({keys[0]: one}, {}, 1), TARGET, NO_TOPIC_ID, {}) == PartitionPair(
        SOURCE, TARGET, NO_TOPIC_ID, NO_TOPIC_ID
    )


# -- sequences


@pytest.mark.parametrize(
    ("first", "end", "sequence", "foreign"),
    [
        (Run(0, 0, 0), 20, 19, 0),
        (Run(0, 0, 0), 30, 19, 10),
        (Run(0, 5, 0), 25, 14, 10),
        (Run(0, 0, 0), 20, 24, 0),
        (Run(0, SEQUENCE_MODULUS, 0), 0, SEQUENCE_MODULUS - 1, 0),
        (Run(SEQUENCE_MODULUS, 0, 0), 3, 1, 1),
    ],
)
def test_foreign_records_after_the_copy_are_recognized_by_sequences(
    first: Run, end: int, sequence: int, foreign: int
) -> None:
    known = a_map(PartitionKey(COPIED, REMOTE, 0), (first,))
    assert foreign_after(known, end, producers({OURS: sequence, OTHER: 3})) == foreign
    assert foreign_after(known, end, producers({OTHER: 3})) is None


# -- transformed records


@pytest.mark.parametrize(
    ("transforms", "end", "reached"),
    [
        (("", ""), 72, 102),
        (("", "ab"), 72, 103),
        (("ab", ""), 72, 103),
        (("ab", "ab"), 72, 103),
        (("ab", "ab"), 71, 101),
        (("ab", "ab"), 70, 100),
        (("ab", "ab"), 74, 105),
        (("ab", "ab"), 76, 108),
        (("ab", "ab"), 80, 112),
    ],
    ids=["raw", "begun", "removed", "filtered", "kept", "none", "next", "end", "behind"],
)
def test_filtered_records_after_the_last_one_are_decided(
    transforms: tuple[str, str], end: int, reached: int
) -> None:
    """After the last written record, records were filtered out. In a transformed copy, the map row
    shows how far the source was read, so they count as copied. In a raw copy, the same row may
    announce a record that was never sent, so it does not count.
    """
    key = PartitionKey(COPIED, REMOTE, 0)
    known = PartitionMap(key=key, topic="t")
    chunks = (Run(0, 100, 70),), (Run(2, 103, 72), Run(6, 108, 76))
    for number, (runs, transform) in enumerate(zip(chunks, transforms, strict=True)):
        term = Term(1, number)
        known.apply(
            ChunkRow(key=key, term=term, chunk=0, topic="t", runs=runs, transform=transform)
        )
    found = replica(
        PartitionPair(source=SOURCE, target=TARGET, source_topic_id=COPIED, target_topic_id=REMOTE),
        Maps({key: known}, {}, 1),
        Ownership(is_shared=False),
        target=LogState(70, end),
        later=LogState(end=end),
    )
    assert (found.copied.upstream, found.copied.downstream) == (reached, end)
    assert found.to_target(reached) == (end, True)
