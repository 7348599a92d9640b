"""H4: the target does not show where the copy must resume, because its log is empty, its producer
IDs have expired, or its batches were compacted away.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import raw
from tests.support.client import Outgoing, eventually, produce
from tests.support.map_rows import rows, write_row
from tests.support.rig import COMPACTED, OLD, Rig
from tests.support.surgery import cut_log
from tests.support.topics import create_topic, delete_records
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.mirror.map.offset_map import Mark
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

TARGET_COMPACTED = {name.replace("_", "."): value for name, value in COMPACTED.items()}


@pytest.mark.witness(
    "H4: an emptied target topic still determines how far the copy is", case="earliest"
)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_idle_topic_that_was_emptied_on_a_target_that_was_restarted(rig: Rig, start: str) -> None:
    keys = {f"{rig.alias}.consumer.auto.offset.reset": start}
    rig.create()
    rig.copy_once(keys)
    rig.put(range(10))
    rig.copy_once(keys)
    assert rig.numbers() == list(range(10))
    delete_records(rig.target, rig.remote)
    rig.target.restart(1)
    rig.put(range(10, 20))
    assert rig.producers() == {}, "naively: no batch of ours, so begin as configured,"
    assert raw.batches(rig.target_client, rig.there, rig.end()) == []
    assert (rig.source_start(), rig.source_end()) == (0, 20), "with 10 records twice or 10 missing"

    rig.copy_once(keys)
    assert rig.numbers() == list(range(10, 20))
    rig.put(range(20, 30))
    rig.copy_once(keys)
    assert rig.numbers() == list(range(10, 30))
    rig.offsets_are_exact()


def test_old_records_on_a_target_that_was_restarted(rig: Rig) -> None:
    rig.create()
    rig.put(range(10), age_ms=OLD)
    rig.copy_once()
    rig.target.restart(1)
    assert rig.producers() == {}, "naively: never written to"
    rig.put(range(10, 20), age_ms=OLD)
    rig.copy_once()
    assert rig.numbers() == list(range(20))
    rig.same()


@pytest.mark.witness(
    "H4: the last batches of a lane were compacted away in a shared topic", case="gone"
)
@pytest.mark.parametrize("age_ms", [OLD, 0], ids=["gone", "emptied"])
def test_the_flows_last_batches_were_compacted_away_in_a_shared_topic(
    fault_source: LocalCluster,
    fault_target: LocalCluster,
    source_cluster: LocalCluster,
    tmp_path: Path,
    age_ms: int,
) -> None:
    with (
        Rig(fault_source, fault_target, tmp_path) as a,
        Rig(source_cluster, fault_target, tmp_path) as b,
    ):
        a.prefixed = b.prefixed = False
        b.topic = a.topic
        a.create()
        create_topic(a.target, a.remote, configs=TARGET_COMPACTED)
        b.create()
        for rig in (a, b):
            rig.put(range(10), age_ms=age_ms)
            rig.put(range(10, 13), age_ms=age_ms)
        a.copy_once()
        b.copy_once()
        for rig in (a, b):
            rig.put(range(13, 16), age_ms=age_ms)
        b.copy_once()
        us = a.claim().producer_id

        def ours() -> list[raw.LoggedBatch]:
            found = raw.batches(a.target_client, a.there)
            return [batch for batch in found if batch.producer_id == us]

        if age_ms:
            eventually(lambda: not ours(), what="our batches are gone: naively, begin again")
        else:
            eventually(
                lambda: [(batch.records, batch.last_offset) for batch in ours()] == [(0, 12)],
                what="our last batch is kept without a record: naively, continue at ordinal 10",
            )
        a.copy_once()
        written = [(batch.sequence, batch.records) for batch in ours() if batch.records]
        assert written == [(13, 3)], "just what it had not copied"


def test_shared_target_that_lost_its_end_is_no_source_that_diverged(rig: Rig) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    last = rows(rig)[-1]
    # simulates that a former leader acknowledged 7 more records and then lost them
    beyond = Mark(17, rig.end() + 7)
    write_row(rig, replace(last, chunk=last.chunk + 1, mark=beyond))
    rig.put(range(10, 20))
    code, message = rig.fail_once()
    assert code == "TARGET_TRUNCATED", message
    assert "7 offsets of the copy are gone" in message
    assert rig.end() == 10


def test_shared_target_that_lost_its_end_and_was_written_to_by_others(rig: Rig) -> None:
    """The target lost the end of its log, and then other clients have made the log longer than it
    was. The map's mark (`mirror.map.offset_map.Mark`) counts the lost records. The producer ID is
    expired, so the broker does not know the flow's records any more. The flow must report
    TARGET_TRUNCATED and write nothing.
    """
    rig.prefixed = False
    rig.create()
    for numbers in (range(10), range(10, 20)):
        rig.put(numbers, age_ms=OLD)
        rig.copy_once()
    rig.target.kill(1)
    cut_log(rig.target, rig.there, 10)
    rig.target.restart(1)
    produce(rig.target, rig.remote, [Outgoing(value=b"foreign")] * 15)
    assert rig.end() == 25, "naively: behind the mark, so the copy had come to its end"
    assert rig.claim().producer_id not in rig.producers()
    rig.put(range(20, 25), age_ms=OLD)
    code, message = rig.fail_once()
    assert code == "TARGET_TRUNCATED", message
    gone = "this flow's records up to ordinal 19 (offset 19) are gone from the target's log"
    assert gone in message
    assert rig.end() == 25


def test_source_batch_without_a_record_is_passed_over(rig: Rig) -> None:
    rig.create(**COMPACTED)
    create_topic(rig.target, rig.remote)
    once = raw.Writer(rig.source_client, rig.here, init_producer_id(rig.source_client).producer_id)
    rig.put(range(5))
    once.send([rig.record(n) for n in range(5, 10)], 0).expect_ok()
    rig.put(range(10, 15), keys={n: n - 5 for n in range(10, 15)})
    rig.put(range(15, 18))
    rig.compacted([*range(5), *range(10, 18)])
    (empty,) = [batch for batch in raw.batches(rig.source_client, rig.here) if not batch.records]
    assert empty[:2] == (5, 9), "naively, offset 5 + 0 records: at 5 for ever"

    rig.copy_once()
    assert rig.numbers() == [*range(5), *range(10, 18)]
    rig.put(range(18, 20))
    rig.copy_once()
    assert rig.numbers() == [*range(5), *range(10, 20)]
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness("H4: the copy into a compacted remote topic resumes at its end")
def test_compacted_remote_topic_is_continued_where_it_ends(rig: Rig) -> None:
    rig.create(**COMPACTED)
    rig.put(range(10), age_ms=OLD)
    rig.put(range(10, 20), age_ms=OLD, keys={n: n - 10 for n in range(10, 20)})
    rig.put(range(20, 23), age_ms=OLD)
    rig.copy_once()
    rig.forgotten()
    eventually(lambda: rig.numbers() == list(range(10, 23)), what="compaction at the target")
    rig.put(range(23, 26), age_ms=OLD)
    rig.copy_once()
    assert rig.numbers() == list(range(10, 26))
    rig.same()
    rig.offsets_are_exact()
