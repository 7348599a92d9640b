"""Where a copy resumes after the target's last record if the offset map lacks its newest rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.support.folded_rows import fold
from tests.support.memory_log import MemoryLog, MemoryView, find_starts
from twinlog.errors import Fate, TwinlogError
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, Run, Term, run_at
from twinlog.mirror.start.request import StartRequest, StartRules, runs_for_start
from twinlog.mirror.start_point import StartPoint
from twinlog.model import Isolation, TopicId, TopicPartition, sequence_of
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

HERE: Final = TopicPartition("orders", 0)
THERE: Final = TopicPartition("A.orders", 0)
SOURCE_ID, TARGET_ID = TopicId("a" * 32), TopicId("b" * 32)
PRODUCER: Final = 9


@dataclass(slots=True)
class Logs:
    """A source with one transaction per record, and the records that a lane has copied."""

    source: MemoryLog = field(default_factory=MemoryLog)
    target: MemoryLog = field(default_factory=MemoryLog)
    isolation: Isolation = Isolation.READ_COMMITTED

    def write(self, value: bytes, *, commit: bool = True, copied: bool = True) -> int:
        """Append a record, followed by a marker. Return the record's source offset."""
        at = self.source.write([Record(0, 1_000, b"k", value)], producer_id=100)
        self.source.finish(100, 1_000, commit=commit)
        if commit and copied:
            self.copy(value)
        return at

    def copy(self, value: bytes, ordinal: int | None = None) -> None:
        end = self.target.end if ordinal is None else ordinal
        batch = encode_batch(
            [Record(0, 1_000, b"k", value)],
            codec=Codec.NONE,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=sequence_of(end),
        )
        self.target.append(bytes(batch))

    def start(self, *runs: tuple[int, int], **more: Any) -> StartPoint | TwinlogError:
        """Run a start with a map that has runs with these ordinals and upstream offsets. Return its
        result. `more`: other fields of the request.
        """
        request = StartRequest(
            source=HERE,
            target=THERE,
            source_topic_id=SOURCE_ID,
            target_topic_id=TARGET_ID,
            runs=tuple(Run(ordinal, upstream, ordinal) for ordinal, upstream in runs),
            our_producers=frozenset({PRODUCER}),
            **more,
        )
        rules = StartRules(producer_id=PRODUCER, is_ours_alone=True, isolation=self.isolation)
        here = MemoryView({HERE: self.source}, SOURCE_ID)
        there = MemoryView({THERE: self.target}, TARGET_ID)
        (found,) = find_starts([request], here, there, rules).values()
        return found

    def resumes(self, *runs: tuple[int, int]) -> int:
        found = self.start(*runs)
        assert isinstance(found, StartPoint), found
        return found.upstream


def test_aborted_records_are_no_neighbours_of_the_last_record() -> None:
    logs = Logs()
    logs.write(b"0")
    logs.write(b"rolled back", commit=False)
    second, third = logs.write(b"1"), logs.write(b"2")
    last = logs.write(b"3")
    assert logs.resumes((0, 0), (1, second), (2, third)) == last + 1


def test_copy_of_uncommitted_records_finds_aborted_ones() -> None:
    logs = Logs(isolation=Isolation.READ_UNCOMMITTED)
    logs.write(b"0")
    second = logs.write(b"rolled back", commit=False)
    logs.copy(b"rolled back")
    last = logs.write(b"1")
    assert logs.resumes((0, 0), (1, second)) == last + 1


def test_row_that_names_aborted_records_is_no_divergence() -> None:
    """The newest map row names aborted records, because it states how far the source was read. A
    next lane wrote this row while the earlier lane still wrote records. The start must not report a
    divergence.
    """
    logs = Logs()
    logs.write(b"0")
    second = logs.write(b"1")
    reached = logs.write(b"rolled back", commit=False)
    last = logs.write(b"2")
    assert logs.resumes((0, 0), (1, second), (2, reached)) == last + 1


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "compacted"])
def test_last_record_is_found_although_the_source_lacks_the_others(deleted: bool) -> None:
    logs = Logs()
    first, second = logs.write(b"0"), logs.write(b"1")
    last = logs.write(b"2")
    if deleted:
        logs.source.delete_before(second + 1)
    else:
        logs.source.compact(lambda record: record.offset not in (first, second))
    assert logs.resumes((0, first), (1, second)) == last + 1


def test_record_that_is_not_on_the_target_is_not_passed_over() -> None:
    logs = Logs()
    logs.write(b"0")
    second = logs.write(b"1")
    missing = logs.write(b"never copied", copied=False)
    logs.write(b"2")
    assert logs.resumes((0, 0), (1, second)) <= missing


def test_other_records_are_still_a_divergence() -> None:
    logs = Logs()
    logs.write(b"0")
    second = logs.write(b"1")
    reached = logs.write(b"2", copied=False)
    logs.copy(b"of a log that was cut")
    found = logs.start((0, 0), (1, second), (2, reached))
    assert isinstance(found, TwinlogError)
    assert found.code == "DIVERGED"


def test_runs_of_records_that_were_never_written_are_not_left_out_first() -> None:
    """The run of the last records on the target is wrong, and far from the right position. After
    it, the map announces more runs than a start tries to leave out.
    """
    logs = Logs()
    logs.source.write([Record(at, 1_000, b"k", b"%d" % at) for at in range(3_000)])
    for at in range(52):
        logs.copy(b"%d" % at)
    ahead = [(60 + at, 2_950 + 10 * at) for at in range(4)]
    found = logs.start((0, 0), (50, 2_900), *ahead)
    assert isinstance(found, StartPoint), found
    assert (found.upstream, found.jumps) == (52, (Run(50, 50, 50),))


def of_many(count: int = 150) -> tuple[Logs, list[Run]]:
    """Return logs with this many records, and their map."""
    logs = Logs()
    upstream = [logs.write(b"%d" % at) for at in range(count)]
    return logs, [Run(at, offset, at) for at, offset in enumerate(upstream)]


def lacking(logs: Logs, runs: list[Run], kept: int) -> tuple[list[Run], StartPoint]:
    """Run a start whose map has only the first `kept` runs. Return the runs of the corrected map,
    without a run for the position where the copy resumes. Also return the start point.
    """
    found = logs.start(*(run[:2] for run in runs[:kept]))
    assert isinstance(found, StartPoint), found
    assert found.upstream == runs[-1].upstream + 1
    cut = found.jumps[0].ordinal
    return [*(run for run in runs[:kept] if run.ordinal < cut), *found.jumps], found


@pytest.mark.parametrize("portion", [7, 10_000])
def test_runs_that_were_lost_before_the_last_records_are_found_again(
    monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr("twinlog.mirror.start.corrections.PORTION", portion)
    logs, runs = of_many()
    said, found = lacking(logs, runs, 5)
    assert said == runs
    assert found.undecided is None


def test_lost_runs_beyond_the_bound_skip_nothing_and_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twinlog.mirror.start.corrections.PORTION", 10)
    monkeypatch.setattr("twinlog.mirror.start.corrections.MOST_PORTIONS", 2)
    logs, runs = of_many()
    said, found = lacking(logs, runs, 5)
    assert found.undecided == (5, 30)
    assert_skips_nothing(said, runs)
    assert {*runs[:5], *runs[31:]} <= {*said}


def assert_skips_nothing(said: list[Run], runs: list[Run]) -> None:
    for run in runs:
        known = run_at(said, run.ordinal)
        assert known is not None
        assert known.upstream_of(run.ordinal) >= run.upstream, run
    for one, other in pairwise(said):
        assert all(here < there for here, there in zip(one, other, strict=True)), (one, other)


@pytest.mark.parametrize("side", ["source", "target"])
def test_lost_runs_of_logs_that_were_compacted_skip_nothing(side: str) -> None:
    logs, runs = of_many()
    log = logs.source if side == "source" else logs.target
    gone = {(runs[at].upstream if side == "source" else at) for at in range(3, 48, 3)}
    log.compact(lambda record: record.offset not in gone)
    said, found = lacking(logs, runs, 5)
    assert_skips_nothing(said, runs)
    left = [run for at, run in enumerate(runs) if at % 3 or at >= 48]
    if side == "source":
        assert found.undecided is None
        for run in left:
            known = run_at(said, run.ordinal)
            assert known is not None
            assert known.upstream_of(run.ordinal) == run.upstream
    else:
        assert found.undecided == (5, 46)


def test_lost_runs_whose_first_records_the_source_has_deleted() -> None:
    logs, runs = of_many()
    logs.source.delete_before(runs[20].upstream)
    said, found = lacking(logs, runs, 5)
    assert found.undecided is None
    assert_skips_nothing(said, runs)
    assert {*runs[:5], *runs[21:]} <= {*said}


def test_whole_map_needs_no_read_before_the_last_records(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "twinlog.mirror.start.both_logs.BothLogs.target_record",
        lambda _, offset: asked.append(offset),
    )
    logs, runs = of_many()
    lacking_last = logs.start(*(run[:2] for run in runs[:140]))
    assert isinstance(lacking_last, StartPoint)
    assert not asked or min(asked) >= 49
    asked.clear()
    assert isinstance(logs.start(*(run[:2] for run in runs)), StartPoint)
    assert not asked


COPIED, ANNOUNCED = 2_200, 2_500


def far_ahead() -> tuple[Logs, list[Run]]:
    """Return logs and the map of a lane that died after it had announced many more records than it
    had written.
    """
    logs = Logs()
    upstream = [logs.write(b"%d" % at, copied=at < COPIED) for at in range(ANNOUNCED)]
    return logs, [Run(at, offset, at) for at, offset in enumerate(upstream)]


def test_map_that_is_far_ahead_of_the_log_needs_no_correction() -> None:
    """A start gets only some runs of the map. They include those of the last records on the target,
    however many runs the lane announced after these records.
    """
    logs, runs = far_ahead()
    key, mark = PartitionKey(SOURCE_ID, TARGET_ID, 0), Mark(COPIED - 20, COPIED - 20)
    known = fold(
        ChunkRow(
            key=key,
            term=Term(1, 0),
            chunk=number,
            topic="orders",
            runs=tuple(runs[first : first + RUNS_PER_CHUNK]),
            mark=mark,
        )
        for number, first in enumerate(range(0, ANNOUNCED, RUNS_PER_CHUNK))
    )[key]
    sent, runs_from = runs_for_start(known, 128)
    assert runs_from == COPIED - 20 - 128
    found = logs.start(*(run[:2] for run in sent), runs_from=runs_from, mark=mark)
    assert isinstance(found, StartPoint), found
    assert (found.ordinal, found.upstream) == (COPIED, runs[COPIED - 1].upstream + 1)
    assert (found.compared, found.jumps) == (100, ())


def test_map_without_the_run_of_the_last_record_is_no_evidence() -> None:
    """The target lost more of its end than the start's part of the map covers. Without the lost
    part's runs, the source offset of the last record is unknown. If the start computed this offset
    from an earlier run, records would be copied twice.
    """
    logs, runs = far_ahead()
    logs.source.delete_before(runs[COPIED - 50].upstream)
    sent = (runs[0], *runs[COPIED + 1 :])
    found = logs.start(*(run[:2] for run in sent), runs_from=COPIED + 1, accept_source_loss=True)
    assert isinstance(found, TwinlogError), found
    assert (found.code, found.fate) == ("PARTITION", Fate.RETRIABLE)
    found = logs.start(*(run[:2] for run in runs), accept_source_loss=True)
    assert isinstance(found, StartPoint), found
    assert found.upstream == runs[COPIED - 1].upstream + 1


def test_message_has_no_upstream_offsets_from_a_part_of_the_map_that_the_start_lacks() -> None:
    logs, runs = of_many(300)
    logs.target = MemoryLog()
    for at in (*range(100), *range(105, 300)):
        logs.target.forget(2_000)
        logs.copy(b"%d" % at, ordinal=at)
    sent = (runs[0], *runs[200:])
    for given, runs_from, missing in ((runs, -1, "[200, 209)"), (sent, 200, "of ordinals [100,")):
        found = logs.start(*(run[:2] for run in given), runs_from=runs_from)
        assert isinstance(found, TwinlogError), found
        assert found.code == "GAP_WRITTEN"
        assert f"upstream records {missing}" in found.message
