"""`twinlog offsets rebuild` on real clusters rebuilds the offset map of a copy whose map topic was
deleted.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, await_markers, eventually, produce, producer, read_all
from tests.support.eventually import PATIENCE_S
from tests.support.groups import commit, resume
from tests.support.killed_rebuild import SMALL_ROWS
from tests.support.raw import Writer
from tests.support.rig import COMPACTED, MAP_PARTITIONS, Rig
from tests.support.topics import (
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    offset_map_topic,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.topics.internal_log import append, read_to_end
from twinlog.control.rebuild.partition import RebuildLog, source_records
from twinlog.errors import PartitionError
from twinlog.mirror.map import rebuilt_map
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, Run, Term, map_partition
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.records import Record

pytestmark = [pytest.mark.broker]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rig(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as made:
        yield made


def put_transactions(rig: Rig, numbers: range, *, every_third_aborted: bool = True) -> None:
    """Write each record in its own transaction, so that a marker follows it. By default, abort
    every third transaction.
    """
    client = producer(rig.source, config={"transactional.id": f"test-{rig.topic}"})
    client.init_transactions(30)
    for number in numbers:
        one = rig.outgoing(number)
        client.begin_transaction()
        headers: list[tuple[str, str | bytes | None]] = list(one.headers)
        client.produce(
            rig.topic, one.value, one.key, partition=0, timestamp=one.timestamp, headers=headers
        )
        if every_third_aborted and number % 3 == 0:
            client.flush(30)
            client.abort_transaction(30)
        else:
            client.commit_transaction(30)
    await_markers(rig.source, f"test-{rig.topic}")


def lose_map(rig: Rig) -> tuple[Run, ...]:
    """Delete the map topic. Return the runs that it had."""
    runs = tuple(rig.map().runs)
    delete_topic(rig.target, offset_map_topic(rig.alias))
    return runs


def rebuild(
    rig: Rig, capsys: pytest.CaptureFixture[str], *more: str, ends: int = 0
) -> dict[str, Any]:
    """Run the command, and check its exit code. Return its JSON line about the only partition."""
    capsys.readouterr()
    file = rig.config()
    given = () if "--dry-run" in more else ("--yes",)
    code = run(["offsets", "rebuild", str(file), *given, *more, "--format", "json"])
    captured = capsys.readouterr()
    assert code == ends, captured
    (line,) = json.loads(captured.out)["partitions"]
    assert isinstance(line, dict)
    return line


def map_rows(rig: Rig) -> int:
    topic = offset_map_topic(rig.alias)
    if topic not in topic_names(rig.target):
        return 0
    parts = range(MAP_PARTITIONS)
    return sum(1 for part in parts for _ in read_to_end(rig.target_client, topic, part))


def state_rows(rig: Rig) -> int:
    """Return the number of this flow's rows in the state topic, which other flows share."""
    rows = read_to_end(rig.target_client, STATE_TOPIC, 0)
    return sum(1 for row in rows if rig.alias.encode() in (row.key or b""))


def is_refused(rig: Rig, capsys: pytest.CaptureFixture[str], code: str) -> str:
    """Return the message with which the rebuild is refused. Check that no row was written."""
    line = rebuild(rig, capsys, ends=1)
    assert (line["outcome"], line["code"]) == ("refused", code), line
    assert map_rows(rig) == 0
    return str(line["message"])


@pytest.mark.witness("a deleted offset map is rebuilt")
def test_rebuilt_map_is_the_same_and_the_copy_continues(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.create()
    rig.put(range(10))
    put_transactions(rig, range(10, 40))
    rig.put(range(40, 50))
    commit(rig.source, f"g-{rig.alias}", rig.topic, 31)  # an offset among markers
    rig.copy_once()
    translate = ["offsets", "translate", str(rig.config()), "--group", f"g-{rig.alias}"]
    capsys.readouterr()
    assert run(translate) == 0
    translated = capsys.readouterr().out
    runs = lose_map(rig)
    put_transactions(rig, range(50, 60))  # written after the map was lost

    line = rebuild(rig, capsys)
    assert (line["outcome"], line["runs"]) == ("rebuilt", len(runs))
    assert tuple(rig.map().runs) == runs
    rig.offsets_are_exact()
    assert run(translate) == 0
    assert capsys.readouterr().out == translated
    assert rebuild(rig, capsys)["outcome"] == "has rows"

    rig.copy_once()
    rig.same()
    rig.offsets_are_exact()
    rig.put(range(60, 70))
    rig.copy_once()  # a further restart
    rig.same()
    rig.offsets_are_exact()
    group = f"h-{rig.alias}"
    there = read_all(rig.source, rig.topic, isolation="read_committed")
    at = there[17].offset
    commit(rig.source, group, rig.topic, at)
    capsys.readouterr()
    assert run([*translate[:-1], group, "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["offsets"]
    commit(rig.target, group, rig.remote, one["to_offset"])
    assert resume(rig.target, group, rig.remote) == [record.value for record in there[17:]]


def test_lost_first_rows_are_rebuilt(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """The map topic was deleted while a lane still ran, and the lane has written only its newest
    row to the re-created topic. The rebuild must write the lost rows before it.
    """
    rig.create()
    rig.put(range(5))
    put_transactions(rig, range(5, 20))
    rig.copy_once()
    runs = lose_map(rig)
    topic, ids = offset_map_topic(rig.alias), rig.target_client.metadata([rig.remote]).topics
    create_topic(rig.target, topic, MAP_PARTITIONS, configs={"cleanup.policy": "compact"})
    row = ChunkRow(
        key=PartitionKey(
            rig.source_client.metadata([rig.topic]).topics[rig.topic].topic_id,
            ids[rig.remote].topic_id,
            0,
        ),
        term=Term(rig.claim().generation, 1),
        chunk=3,
        topic=rig.topic,
        runs=runs[-2:],
        producer_id=rig.claim().producer_id,
    )
    key, value = row.encode()
    home = TopicPartition(topic, map_partition(rig.here, MAP_PARTITIONS))
    append(rig.target_client, home, [Record(offset=0, timestamp=0, key=key, value=value)])
    assert rebuild(rig, capsys)["outcome"] == "rebuilt"
    *of_records, behind_the_last = runs
    assert behind_the_last.ordinal == rig.end(), "how far the source was read, which no record says"
    assert list(rig.map().runs) == of_records
    assert rebuild(rig, capsys)["outcome"] == "has rows"
    rig.put(range(20, 25))
    rig.copy_once()
    rig.same()
    rig.offsets_are_exact()


def test_dry_run_changes_nothing(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    lose_map(rig)
    before = state_rows(rig)
    line = rebuild(rig, capsys, "--dry-run")
    assert (line["outcome"], line["next_source_offset"]) == ("would be rebuilt", 10)
    assert offset_map_topic(rig.alias) not in topic_names(rig.target)
    assert state_rows(rig) == before
    assert run(["offsets", "rebuild", str(rig.config()), "--dry-run"]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    # refused, because there is no terminal on which to confirm it
    assert run(["offsets", "rebuild", str(rig.config())]) == 2
    assert run(["offsets", "rebuild", str(rig.config()), "--yes", "--topics", "("]) == 2
    capsys.readouterr()
    others = ["--topics", "another.*", "--dry-run", "--format", "json"]
    assert run(["offsets", "rebuild", str(rig.config()), *others]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"] == []


def test_records_that_retention_deleted_on_either_side(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.create()
    rig.put(range(20))
    put_transactions(rig, range(20, 40))
    rig.copy_once()
    lose_map(rig)
    delete_records(rig.source, rig.topic, before=8)
    assert rebuild(rig, capsys)["first_target_offset"] == 8
    rig.offsets_are_exact()
    rig.put(range(40, 45))
    rig.copy_once()
    lose_map(rig)
    delete_records(rig.target, rig.remote, before=15)
    rebuild(rig, capsys)
    rig.offsets_are_exact()
    rig.put(range(45, 50))
    rig.copy_once()
    rig.offsets_are_exact()
    assert [r.value for r in rig.on_target()] == [r.value for r in rig.on_source()][7:]


def test_copy_that_began_later_begins_there_again(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy began at source offset 12, after the source's first record, and the target has
    deleted the copy's first records. The rebuilt map still begins at source offset 12.
    """
    rig.create()
    rig.put(range(30))
    start = {f"{rig.flow}.twinlog.start": f"{rig.topic}:0=12"}
    rig.copy_once(start)
    lose_map(rig)
    delete_records(rig.target, rig.remote, before=5)
    rebuild(rig, capsys)
    rig.offsets_are_exact()
    assert rig.map().runs[0].upstream == 12
    rig.put(range(30, 35))
    rig.copy_once()
    assert rig.numbers() == list(range(17, 35))


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_compacted_source(rig: Rig, capsys: pytest.CaptureFixture[str], when: str) -> None:
    rig.create(**COMPACTED)
    again = {n: 900 + n % 3 for n in range(60) if n % 4 in (1, 2)}
    gone = {n for n in again if any(m > n and again[m] == again[n] for m in again)}
    for start in range(0, 60, 5):
        rig.put(range(start, start + 5), keys=again)
    if when != "after":
        rig.put([70])  # begins a new segment, so that all records before it are compacted
        wanted = [n for n in range(60) if n not in gone]
        eventually(lambda: _shown(rig) == [*wanted, 70], what="compaction")
    rig.copy_once()
    whole = rig.numbers()
    if when != "before":
        rig.put([71], keys={71: 3})
        rig.put([72], keys={72: 7})
        rig.put([73])
        eventually(lambda: 3 not in _shown(rig) and 7 not in _shown(rig))
    lose_map(rig)
    rebuild(rig, capsys)
    rig.offsets_are_exact()
    rig.put([80])
    rig.copy_once()
    rig.offsets_are_exact()
    later = [71, 72, 73] if when != "before" else []
    wanted, left = [*whole, *later, 80], rig.numbers()
    assert left == [n for n in wanted if n in left]
    # the copy is compacted, too: a removed record has a later record with its key
    keys = again | {71: 3, 72: 7}
    for at, n in enumerate(wanted):
        same_key = [m for m in wanted[at + 1 :] if keys.get(m, m) == keys.get(n, n)]
        assert n in left or same_key, n


def _shown(rig: Rig) -> list[int]:
    return [int((r.value or b"u-1")[1:]) for r in rig.on_source()]


def is_killed(rig: Rig, rows: int) -> None:
    command = [sys.executable, "-m", "tests.support.killed_rebuild", str(rig.config()), str(rows)]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGKILL


def test_killed_at_any_row_and_begun_again(
    rig: Rig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SMALL_ROWS.items():
        monkeypatch.setattr(rebuilt_map, name, value)
    rig.create()
    put_transactions(rig, range(85), every_third_aborted=False)
    rig.copy_once()
    runs = lose_map(rig)
    assert len(runs) > 80
    is_killed(rig, 0)
    assert map_rows(rig) == 0
    for rows in (1, 2):
        is_killed(rig, rows)
        # the rows that exist are sufficient to continue the copy
        rig.put(range(1000 + rows, 1001 + rows))
        rig.copy_once()
        rig.same()
    line = rebuild(rig, capsys)
    assert line["outcome"] == "rebuilt"
    assert tuple(rig.map().runs)[: len(runs)] == runs
    rig.offsets_are_exact()
    assert rebuild(rig, capsys)["outcome"] == "has rows"
    rig.put(range(2000, 2010))
    rig.copy_once()
    rig.same()
    rig.offsets_are_exact()


def test_foreign_records_are_refused(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    lose_map(rig)
    produce(rig.target, rig.remote, [Outgoing(value=b"mine")])
    assert "the batch at offset 10 was not written by this flow" in is_refused(
        rig, capsys, "REBUILD_FOREIGN"
    )


def rewritten(rig: Rig, records: list[Record]) -> None:
    """Re-create the remote topic without a map. Write these records under the flow's producer
    ID.
    """
    lose_map(rig)
    delete_topic(rig.target, rig.remote)
    create_topic(rig.target, rig.remote)
    Writer(rig.target_client, rig.there, rig.claim().producer_id).send(records, 0).expect_ok()


@pytest.mark.witness("a map is not rebuilt if a record is missing", case="missing-[6, 9)")
@pytest.mark.parametrize(
    ("change", "differs"),
    [("missing", "[6, 9)"), ("changed", "[6, 10)"), ("older", "[6, 10)"), ("behind", "[10, 11)")],
)
def test_any_other_record_is_refused_with_its_offset(
    rig: Rig, capsys: pytest.CaptureFixture[str], change: str, differs: str
) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    records = [rig.record(n) for n in range(10)]
    if change == "missing":
        del records[6]
    elif change == "changed":
        records[6] = records[6]._replace(value=b"another")
    elif change == "older":
        records[6] = records[6]._replace(timestamp=records[6].timestamp - 1)
    else:
        records.append(rig.record(55))
    rewritten(rig, records)
    said = is_refused(rig, capsys, "REBUILD_MISMATCH")
    assert f"target {differs}, source" in said
    assert "delete the" not in said


def test_whole_copy_written_by_hand_is_taken(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """A control for the tests that change one record: the test writes the copy by hand without a
    change, so the rebuild accepts it.
    """
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    rewritten(rig, [rig.record(n) for n in range(10)])
    assert rebuild(rig, capsys)["outcome"] == "rebuilt"
    rig.put(range(10, 12))
    rig.copy_once()
    rig.same()


def test_repeated_records_are_not_decided(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    same = [Outgoing(value=b"tick", key=b"k", timestamp=rig.began_ms)]
    produce(rig.source, rig.topic, same * 3)
    rig.copy_once()
    lose_map(rig)
    produce(rig.source, rig.topic, same * 3)
    assert "at 3 or at 4" in is_refused(rig, capsys, "REBUILD_AMBIGUOUS")


def test_running_mirror_is_left_unchanged(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        before = state_rows(rig)
        capsys.readouterr()
        assert run(["offsets", "rebuild", str(rig.config()), "--yes"]) == 1
        assert "NOT_LEADER" in capsys.readouterr().err
        assert state_rows(rig) == before
        rig.put(range(10, 20))
        rig.copied(20)
        mirror.stop()
    rig.same()


def test_empty_targets_are_listed(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    rig.copy_once()
    lose_map(rig)
    assert rebuild(rig, capsys)["outcome"] == "empty"
    assert map_rows(rig) == 0


def test_emptied_targets_are_refused(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """The target's records were deleted. The broker still remembers this flow's sequence numbers,
    but there is no record to compare, so the rebuild is refused.
    """
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    lose_map(rig)
    delete_records(rig.target, rig.remote)
    assert "[0, 10) were deleted, so there" in is_refused(rig, capsys, "REBUILD_EMPTIED")


def test_identity_topics(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of other clients precede the copy in the same topic. The rebuild finds where the copy
    begins, and the next run continues it.
    """
    rig.prefixed = False
    rig.create()
    create_topic(rig.target, rig.remote)
    produce(rig.target, rig.remote, [Outgoing(value=b"mine")] * 3)
    rig.put(range(10))
    rig.copy_once()
    rig.put(range(10, 20))
    rig.copy_once()
    lose_map(rig)
    rig.put(range(20, 30))
    assert rebuild(rig, capsys)["first_target_offset"] == 3
    assert tuple(rig.map().runs) == (Run(0, 0, 3),)
    rig.copy_once()
    copied = [record.value for record in read_all(rig.target, rig.remote)][3:]
    assert copied == [rig.record(n).value for n in range(30)]


def test_identity_topic_that_other_clients_wrote_to_since_is_refused(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    lose_map(rig)
    produce(rig.target, rig.remote, [Outgoing(value=b"mine")])
    assert "the batch at offset 10 was not written by this flow" in is_refused(
        rig, capsys, "REBUILD_FOREIGN"
    )


@pytest.mark.parametrize("grown", [False, True], ids=["keyed", "since then of equal counts"])
def test_topics_that_are_placed_by_key_are_refused(
    rig: Rig, capsys: pytest.CaptureFixture[str], *, grown: bool
) -> None:
    """A copy that is partitioned by key has records in other partitions than the source, so the
    rebuild is refused. This is so even if both topics now have the same number of partitions.
    """
    rig.create()
    create_topic(rig.target, rig.remote, 2)
    rig.put(range(20))
    keyed = {f"{rig.flow}.twinlog.target.partitions": "keyed"}
    rig.copy_once(keyed)
    before = rig.on_target()
    assert {one.partition for one in before} == {0, 1}
    lose_map(rig)
    if grown:
        add_partitions(rig.source, rig.topic, 2)
    capsys.readouterr()
    assert run(["offsets", "rebuild", str(rig.config(keyed)), "--yes", "--format", "json"]) == 1
    lines = json.loads(capsys.readouterr().out)["partitions"]
    assert {line["outcome"] for line in lines} == {"refused"}, lines
    assert grown or {line["code"] for line in lines} == {"REBUILD_UNSUPPORTED"}, lines
    assert map_rows(rig) == 0
    with rig.mirror(once=True, keys=keyed) as mirror:
        (flow,) = mirror.wait()
    assert {part.code for part in flow.partitions} == {"MAP_MISSING"}, flow.partitions
    assert rig.on_target() == before


def test_flow_that_never_ran_is_refused(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    rig.put(range(3))
    create_topic(rig.target, rig.remote)
    produce(rig.target, rig.remote, [Outgoing(value=b"x")])
    assert run(["offsets", "rebuild", str(rig.config()), "--yes"]) == 1
    assert "REBUILD_FOREIGN" in capsys.readouterr().err
    assert offset_map_topic(rig.alias) not in topic_names(rig.target)


def test_records_of_a_mirror_maker_before_the_copy_stay(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """MirrorMaker 2's records precede this flow's first record (ordinal 0), because the flow has
    taken the topic over. The rebuilt map begins after MirrorMaker 2's records.
    """
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    lose_map(rig)
    delete_topic(rig.target, rig.remote)
    create_topic(rig.target, rig.remote)
    # MirrorMaker 2 has copied some records twice
    before = [rig.record(n) for n in (0, 1, 2, 1, 2, 3)]
    Writer(rig.target_client, rig.there, 987_654).send(before, 0).expect_ok()
    ours = Writer(rig.target_client, rig.there, rig.claim().producer_id)
    ours.send([rig.record(n) for n in range(4, 10)], 0).expect_ok()
    assert rebuild(rig, capsys)["first_target_offset"] == 6
    assert tuple(rig.map().runs) == (Run(0, 4, 6),)
    rig.put(range(10, 15))
    rig.copy_once()
    assert rig.numbers() == [0, 1, 2, 1, 2, 3, *range(4, 15)]


def test_log_that_changes_or_ends_while_it_is_read_is_refused(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    log = RebuildLog(client=rig.source_client, tp=rig.here, start=0, end=10, may_lack_offsets=False)
    delete_records(rig.source, rig.topic, before=5)
    with pytest.raises(PartitionError, match="offset 0 was deleted") as moved:
        list(source_records(log, 0, with_timestamp=True))
    assert moved.value.code == "REBUILD_MOVED"
    longer = replace(log, start=5, end=12)  # an end that is two records after the log's end
    with pytest.raises(PartitionError, match="cannot be read after offset 10") as stuck:
        list(source_records(longer, 5, with_timestamp=True))
    assert stuck.value.code == "REBUILD_UNREADABLE"
