"""The offset map has late rows, compacted rows or unreadable rows, or the state topic has lost the
flow's claims.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support import raw
from tests.support.client import eventually, read_all
from tests.support.map_rows import right_offset, rows, transactions, translated, write_row
from tests.support.rig import KEEPS_LEADERLESS, MAP_PARTITIONS, Rig, kill
from tests.support.surgery import cut_log
from tests.support.topics import (
    add_partitions,
    apply_topic_configs,
    create_topic,
    delete_topic,
    offset_map_topic,
)
from twinlog.cluster.topics.internal_log import append, read_to_end
from twinlog.errors import TwinlogError
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, Run, Term, map_partition
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.model import Flow, TopicPartition
from twinlog.survey import map_reader
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.map_reader import MapReader
from twinlog.survey.picture import read_maps
from twinlog.survey.replica import Maps
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

pytestmark = [pytest.mark.faults, pytest.mark.broker]

CLEAN_SOON = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def translations_are_right(rig: Rig) -> None:
    for upstream in (10, 20, 30, 40, 60):
        found = translated(rig, upstream)
        assert (found.offset, found.is_exact) == (right_offset(rig, upstream), True), upstream


def test_late_row_of_an_older_term_takes_no_run_away_once_the_map_is_compacted(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    rig.copy_once()
    transactions(rig, range(5, 25))
    rig.copy_once()
    older = rows(rig)[-1]
    for first in range(25, 325, 50):
        rig.put(range(first, first + 50))
    rig.copy_once()
    assert older.term < rows(rig)[-1].term
    # simulates a delayed request of the lane that wrote `older`: the same row with one more run
    last = older.runs[-1]
    ahead = Run(last.ordinal + 1, last.upstream + 2, last.downstream + 1)
    write_row(rig, replace(older, runs=(*older.runs, ahead)))
    rig.offsets_are_exact()

    apply_topic_configs(rig.target, offset_map_topic(rig.alias), CLEAN_SOON)
    for first in (325, 327):
        transactions(rig, range(first, first + 2))
        rig.copy_once()
    eventually(
        lambda: len([row for row in rows(rig) if row.term == older.term]) == 1,
        what="compaction of the map",
    )
    translations_are_right(rig)
    rig.offsets_are_exact()


@pytest.mark.parametrize(
    ("value", "code"), [(b'{"v":4}', "STATE_TOO_NEW"), (b"\xff\xff", "STATE_CORRUPT")]
)
def test_row_that_cannot_be_read_stops_the_flow_at_it_every_time(
    rig: Rig, caplog: pytest.LogCaptureFixture, value: bytes, code: str
) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    last = rows(rig)[-1]
    # simulates a newer release: it announced gaps in rows that this release cannot read, and copied
    # records after them
    transactions(rig, range(10, 30))
    writer = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
    writer.send([rig.record(n) for n in range(10, 30)], 10).expect_ok()
    key, _ = replace(last, term=Term(last.term.generation + 1, 0)).encode()
    home = TopicPartition(offset_map_topic(rig.alias), map_partition(rig.here, MAP_PARTITIONS))
    offset = append(rig.target_client, home, [Record(0, rig.began_ms, key, value)])
    rig.put(range(30, 40))
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING), rig.mirror(once=True) as mirror:
            (flow,) = mirror.wait()
        assert (flow.state, flow.code) == ("FAILED", code)
        assert f"{home}: the row at offset {offset} cannot be used" in flow.reason
        said = [line for line in caplog.messages if code in line]
        assert len(said) <= 1, said
    assert rig.end() == 30


def test_running_mirror_starts_nothing_by_a_map_with_a_row_that_it_cannot_read(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror(lease_s=300.0) as mirror:
        rig.copied(10)
        home = TopicPartition(offset_map_topic(rig.alias), map_partition(rig.here, MAP_PARTITIONS))
        key, _ = replace(rows(rig)[-1], term=Term(99, 0)).encode()
        append(rig.target_client, home, [Record(0, rig.began_ms, key, b'{"v":9}')])
        kill(mirror.leases.pids())
        (part,) = mirror.eventually(lambda parts: parts[0].code == "STATE_TOO_NEW")
        assert part.state == "FAILED"
        rig.put(range(10, 20))
        (part,) = mirror.eventually(lambda parts: parts[0].code == "STATE_TOO_NEW")
        assert rig.end() == 10
        mirror.stop()


def test_generations_are_never_given_twice_when_the_state_topic_lost_its_newest_claims(
    rig: Rig,
) -> None:
    rig.create()
    rig.put(range(5))
    rig.copy_once()
    state = [(r.key, r.value) for r in read_to_end(rig.target_client, STATE_TOPIC, 0)]
    for first in (5, 15, 25):
        transactions(rig, range(first, first + 10))
        rig.copy_once()
    newest = max(row.term.generation for row in rows(rig))
    assert newest == 3
    delete_topic(rig.target, STATE_TOPIC)
    create_topic(rig.target, STATE_TOPIC, configs={"cleanup.policy": "compact"})
    kept = [Record(at, rig.began_ms, key, value) for at, (key, value) in enumerate(state)]
    append(rig.target_client, TopicPartition(STATE_TOPIC, 0), kept)
    assert rig.claim().generation == 0

    transactions(rig, range(35, 45))
    rig.copy_once()
    assert rig.claim().generation == newest + 1
    assert rig.numbers() == list(range(45))
    rig.offsets_are_exact()


def test_map_topic_that_was_given_more_partitions(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    rig.copy_once()
    for total, first in ((9, 5), (12, 25)):
        add_partitions(rig.target, offset_map_topic(rig.alias), total)
        transactions(rig, range(first, first + 20))
        rig.copy_once()
        rig.offsets_are_exact()
    # rows of a release that distributed them over all partitions of the map topic
    row = rows(rig)[-1]
    every = map_partition(rig.here, 12)
    topic = offset_map_topic(rig.alias)
    other = every if every != map_partition(rig.here, MAP_PARTITIONS) else (every + 1) % 12
    newer = replace(row, term=Term(row.term.generation + 1, 0))
    place = TopicPartition(topic, other)
    append(rig.target_client, place, [Record(0, rig.began_ms, *newer.encode())])
    rig.offsets_are_exact()
    transactions(rig, range(45, 50))
    rig.copy_once()
    assert rig.numbers() == list(range(50))
    rig.offsets_are_exact()


PER_BATCH, BATCHES = 20_000, 30


@pytest.mark.long
def test_six_hundred_thousand_small_records_with_every_second_one_cleaned(rig: Rig) -> None:
    rig.create(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    create_topic(rig.target, rig.remote)
    for batch in range(BATCHES):
        first, at = batch * PER_BATCH, rig.began_ms + batch * 1000
        records = [
            Record(n, at, b"%d" % (10**9 if n % 2 else n), b"u%d" % n)
            for n in range(first, first + PER_BATCH)
        ]
        raw.send(rig.source_client, rig.here, encode_batch(records, codec=Codec.ZSTD)).expect_ok()
    last = Record(0, rig.began_ms + BATCHES * 1000, b"last", b"v")
    raw.send(rig.source_client, rig.here, encode_batch([last], codec=Codec.NONE)).expect_ok()
    most = PER_BATCH * BATCHES // 2 + PER_BATCH

    def left() -> int:
        return sum(batch.records for batch in raw.batches(rig.source_client, rig.here))

    eventually(lambda: left() <= most, what="compaction of the source")
    with rig.mirror(once=True) as mirror:
        (flow,) = mirror.wait()
    assert [(p.state, p.code, p.message) for p in flow.partitions] == [("DONE", "", "")]
    assert max(len(row.encode()[1]) for row in rows(rig)) < 16_000
    rig.offsets_are_exact()
    assert len(read_all(rig.target, rig.remote)) == rig.end() > PER_BATCH * BATCHES // 2


def cut_home(rig: Rig, offset: int) -> TopicPartition:
    """Truncate the map topic's partition that has the rig's rows at this offset. Restart the
    broker, which begins a new leader epoch. Return the partition.
    """
    home = TopicPartition(offset_map_topic(rig.alias), map_partition(rig.here, MAP_PARTITIONS))
    rig.target.kill(1)
    cut_log(rig.target, home, offset)
    rig.target.restart(1)
    return home


@pytest.mark.usefixtures("lasting_lead")
def test_rows_that_the_map_lost_are_written_again(rig: Rig) -> None:
    """The offset map loses acknowledged rows while the copy is idle. Only the new leader epoch of
    the map's partition shows that rows may be lost. The lane must then write them again.
    """
    rig.create()
    rig.put(range(10))
    with rig.mirror(prelude=KEEPS_LEADERLESS) as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        before = rows(rig)[-1]
        cut_home(rig, 0)
        eventually(lambda: [row.runs for row in rows(rig)] == [before.runs])
        mirror.stop()
    rig.copy_once()
    rig.offsets_are_exact()


@pytest.mark.witness("rows written in place of lost map rows are read")
def test_reader_of_the_map_sees_rows_in_the_room_of_lost_ones(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    transactions(rig, range(5, 10))
    rig.copy_once()
    reader = MapReader(rig.target_client, offset_map_topic(rig.alias), MAP_PARTITIONS)
    reader.read()
    kept = rows(rig)[-1]
    home = cut_home(rig, 0)
    now = replace(kept, runs=kept.runs[:1])
    others = replace(kept, key=kept.key._replace(partition=77))
    # Append more rows than were lost, so that the end of the log does not show the loss.
    eventually(lambda: append_all(rig, home, [now, *[others] * 50]))
    assert tuple(reader.read()[kept.key].runs) == now.runs


def test_later_readings_of_a_process_fetch_only_new_rows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []

    def noting(*arguments: Any, **named: Any) -> Iterator[Record]:
        for record in read_to_end(*arguments, **named):
            fetched.append(record.offset)
            yield record

    def runs(maps: Maps) -> dict[PartitionKey, tuple[Run, ...]]:
        return {key: tuple(known.runs) for key, known in maps.items()}

    def now() -> tuple[dict[PartitionKey, tuple[Run, ...]], int]:
        fetched.clear()  # drop the offsets that the mirror in this process has read
        maps = read_maps(rig.target_client, Flow(rig.alias, rig.target_alias), after=NO_ENDS)
        return runs(maps), len(fetched)

    topic = offset_map_topic(rig.alias)
    rig.create()
    rig.put(range(5))
    rig.copy_once()
    monkeypatch.setattr(map_reader, "read_to_end", noting)
    first, rows_first = now()
    assert first
    assert rows_first
    assert now() == (first, 0)

    transactions(rig, range(5, 25))
    rig.copy_once()
    second, rows_second = now()
    assert second != first
    fetched.clear()
    assert runs(MapReader(rig.target_client, topic, MAP_PARTITIONS).read()) == second
    assert len(fetched) == rows_first + rows_second

    delete_topic(rig.target, topic)
    create_topic(rig.target, topic, MAP_PARTITIONS)
    assert now() == ({}, 0)


def append_all(rig: Rig, home: TopicPartition, some: list[ChunkRow]) -> bool:
    """Append the rows. Return False if the leader is not ready yet."""
    records = [Record(at, rig.began_ms, *row.encode()) for at, row in enumerate(some)]
    try:
        append(rig.target_client, home, records)
    except TwinlogError:
        return False
    return True
