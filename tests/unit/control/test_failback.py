"""The decisions of a failback, derived from its observations without brokers."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.folded_rows import fold
from tests.support.memory_log import LaggingLog, MemoryLog, MemoryView
from twinlog.client.export import ExportedRecord, Transaction, record_line, record_of
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.group_offsets import Committed
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.failback import copy_end, failback, replay, saved
from twinlog.control.failback.copy_end import CopyEnd, CopyEnds
from twinlog.control.failback.divergence import LogDivergence
from twinlog.control.failback.failback import Failback, FailbackPlan
from twinlog.control.failback.replay import (
    PromotionWatch,
    Replay,
    TailWork,
    require_raw,
    work_of,
)
from twinlog.control.failback.saved import (
    Owner,
    SavedFile,
    SavedTail,
    uncovered_spans,
)
from twinlog.errors import BrokerRefused, FlowError, PartitionError
from twinlog.folders import FolderNotPrivate
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, PartitionMap, Term
from twinlog.mirror.map.runs import Run
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.state.intents import IntentKind, WantedSkip
from twinlog.model import Flow, TopicId, TopicPartition
from twinlog.survey.ends import NO_ENDS, LogState
from twinlog.survey.picture import Picture
from twinlog.survey.replica import Maps, Ownership, replica
from twinlog.wire.record_batch import BatchHeader, Codec
from twinlog.wire.records import Record, encode_batch

TP, REMOTE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
OWNER = Owner(flow="A->B", source_cluster_id="one")
HERE = Path()
NO_CLIENT = cast("ClusterClient", None)


def file(first: int, next_: int) -> SavedFile:
    return SavedFile(
        name=f"{first}", tp=TP, span=Span(first, next_), records=1, aborted=0, size=1, sha256=""
    )


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ([], [(20, 40)]),
        ([(20, 40)], []),
        ([(10, 50)], []),
        ([(20, 30)], [(30, 40)]),
        ([(25, 30)], [(20, 25), (30, 40)]),
        ([(20, 25), (22, 30), (35, 60)], [(30, 35)]),
        ([(50, 60)], [(20, 40)]),
    ],
    ids=["none", "all", "more", "begin", "middle", "overlap", "elsewhere"],
)
def test_ranges_that_no_file_holds_are_saved(
    files: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    assert uncovered_spans(Span(20, 40), [file(*one) for one in files]) == [
        Span(*one) for one in left
    ]


ERROR = partial(FlowError, flow="A->B")


def records(*offsets: int) -> list[ExportedRecord]:
    return [
        ExportedRecord(
            record=Record(offset=n, timestamp=n, key=None, value=b"\xff", headers=(("h", None),)),
            is_log_append_time=False,
            leader_epoch=3,
            transaction=Transaction.NONE,
        )
        for n in offsets
    ]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[ExportedRecord]:
    """The log of A: the records of its tail, which a test may change."""
    held = records(20, 21, 23)
    monkeypatch.setattr(saved, "read_tail", lambda *_: iter(held))
    return held


def save(folder: Path, first: int = 20, next_: int = 24) -> list[SavedFile]:
    one = SavedTail(folder, OWNER)
    with one.locked():
        one.save(NO_CLIENT, TP, Span(first, next_), lambda _: None)
        one.write_manifest(one.files(), [])
    return one.files()


def test_a_folder_of_another_flow_or_one_that_was_changed_is_left(
    tmp_path: Path, log: list[ExportedRecord]
) -> None:
    assert log
    (one,) = save(tmp_path)
    assert (one.records, one.span) == (3, Span(20, 24))
    other = SavedTail(tmp_path, Owner(flow="A->C", source_cluster_id="one"))
    with pytest.raises(FlowError, match="holds the tail of A->B") as caught, other.locked():
        pass
    assert caught.value.code == "SAVED_OTHERWISE"
    path = tmp_path / one.name
    text = path.read_text()
    for wrong in (text.replace('"offset":21', '"offset":19'), "no json\n", text + text):
        path.write_text(wrong)
        with pytest.raises(FlowError, match="is no record of"):
            SavedTail(tmp_path, OWNER).files()
    path.unlink()
    with pytest.raises(FlowError, match="but not in the folder any more"):
        SavedTail(tmp_path, OWNER).files()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(FlowError, match="cannot be read"):
        SavedTail(tmp_path, OWNER).files()


def test_files_without_a_manifest_are_nobodys(tmp_path: Path, log: list[ExportedRecord]) -> None:
    """Files without a manifest belong to no run. A run of another flow may have died before it
    wrote its manifest, or a user has put them there. A run that finds them must fail with
    SAVED_OTHERWISE and not overwrite them.
    """
    assert log
    with SavedTail(tmp_path, OWNER).locked():
        assert json.loads((tmp_path / "manifest.json").read_text())["flow"] == OWNER.flow
    save(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with (
        pytest.raises(FlowError, match="the origin of these records is unknown") as caught,
        SavedTail(tmp_path, OWNER).locked(),
    ):
        pass
    assert caught.value.code == "SAVED_OTHERWISE"
    assert not (tmp_path / "manifest.json").exists()


def test_a_folder_is_this_users_alone_and_so_is_each_file(
    tmp_path: Path, log: list[ExportedRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log
    ours, link = tmp_path / "ours", tmp_path / "link"
    link.symlink_to(ours)
    save(ours)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    for folder, mode in ((ours, 0o720), (ours, 0o702), (ours, 0o755), (link, 0o700)):
        ours.chmod(mode)
        with pytest.raises(FolderNotPrivate, match="save to another folder"):
            save(folder, 24, 25)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(FolderNotPrivate, match="belongs to user"):
        save(ours, 24, 25)
    with pytest.raises(PermissionError, match="is not a regular file of this user"):
        SavedTail(ours, OWNER).files()


def test_entries_of_other_topics_stay_in_the_manifest(tmp_path: Path) -> None:
    one = SavedTail(tmp_path, OWNER)
    first, again, other = (
        {"topic": topic, "partition": 0, "deleted": deleted}
        for topic, deleted in (("orders", None), ("orders", [20, 24]), ("audit", None))
    )
    for row in (first, again, other):
        with one.locked():
            one.write_manifest([], [row])
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert found["partitions"] == [other, again]


def test_two_runs_never_save_to_one_folder(tmp_path: Path) -> None:
    one, caught = SavedTail(tmp_path, OWNER), list[str]()

    def second() -> None:
        try:
            with SavedTail(tmp_path, OWNER).locked():
                pass
        except FlowError as error:
            caught.append(error.code)

    with one.locked():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert caught == ["SAVE_BUSY"]


def test_a_saved_name_is_never_taken_twice(tmp_path: Path, log: list[ExportedRecord]) -> None:
    assert log
    save(tmp_path)
    with pytest.raises(FileExistsError):
        save(tmp_path)


def test_a_line_is_read_back_as_it_was() -> None:
    odd = Record(
        offset=7, timestamp=-1, key=b"\xfe", value=None, headers=(("\udcff", b"x"), ("é", None))
    )
    one = ExportedRecord(
        record=odd, is_log_append_time=False, leader_epoch=1, transaction=Transaction.NONE
    )
    for with_batch in (False, True):
        assert record_of(json.loads(record_line(0, one, with_batch=with_batch))) == odd


def plan(**more: Any) -> FailbackPlan:
    divergence = LogDivergence(
        source=TP, target=REMOTE, at=20, log=(0, 25), stable=more.pop("stable", 25)
    )
    return FailbackPlan(flow="A->B", promoted=more.pop("promoted", "by me"), tails=(divergence,))


def scope() -> CutoverScope:
    config = SimpleNamespace(flow=Flow("A", "B"))
    target = SimpleNamespace(metadata=lambda _: None)
    found = SimpleNamespace(
        require_source=lambda: None,
        source=None,
        target=target,
        name="A->B",
        config=config,
        error=ERROR,
    )
    return cast("CutoverScope", found)


def test_a_run_begins_only_after_a_promotion_and_with_no_open_transaction() -> None:
    assert plan().is_open
    work = Failback(scope(), print)
    for wrong, code in ((plan(promoted=""), "NOT_PROMOTED"), (plan(stable=22), "TAIL_OPEN")):
        assert not wrong.is_open
        with pytest.raises(FlowError) as caught:
            work._require(wrong)
        assert caught.value.code == code


def test_records_copied_after_the_plan_are_no_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, shown, seen = Failback(scope(), print), plan(), list[Any]()
    later = replace(shown.tails[0], at=23)
    rounds = iter([[later], [replace(later, stable=24)]])
    monkeypatch.setattr(failback, "divergences", lambda _: next(rounds))
    monkeypatch.setattr(work._reverse, "without_reverse_records", lambda found: found)
    monkeypatch.setattr(work._reverse, "prepare", seen.append)
    monkeypatch.setattr(work._reverse, "lines", lambda _: [])
    monkeypatch.setattr(work, "_wait_until_over", lambda *_: None)
    watch = SimpleNamespace(newest=None, require=lambda: None)
    monkeypatch.setattr(failback, "PromotionWatch", lambda *_: watch)

    def save_(found: list[LogDivergence], _: SavedTail) -> list[SavedFile]:
        seen.append(found)
        return []

    monkeypatch.setattr(work, "_save", save_)
    monkeypatch.setattr(work, "_require_unchanged_logs", seen.append)
    folder = cast("SavedTail", SimpleNamespace(locked=nullcontext))
    work.run(shown, folder, replays=False)
    assert seen == [[later]] * 3
    with pytest.raises(FlowError) as caught:
        work.run(shown, folder, replays=False)
    assert caught.value.code == "TAIL_OPEN"


@pytest.mark.parametrize(("is_new", "code"), [(True, "TAIL_GROWS"), (False, "TAIL_MOVED")])
def test_partitions_that_come_or_go_after_the_plan_end_the_run(
    monkeypatch: pytest.MonkeyPatch, is_new: bool, code: str
) -> None:
    """If the run continued, it would save the tail of a new partition whose promotion was not
    checked, and would not save the tail of a partition that a broker with stale metadata does not
    list.
    """
    work, shown = Failback(scope(), print), plan()
    other = replace(shown.tails[0], source=TopicPartition("pay", 0))
    found = [shown.tails[0], other] if is_new else []
    monkeypatch.setattr(failback, "divergences", lambda _: found)
    monkeypatch.setattr(work._reverse, "without_reverse_records", lambda tails: tails)
    monkeypatch.setattr(work, "_wait_until_over", lambda *_: None)
    watch = SimpleNamespace(newest=None, require=lambda: None)
    monkeypatch.setattr(failback, "PromotionWatch", lambda *_: watch)
    with pytest.raises(FlowError, match="pay-0" if is_new else "orders-0") as caught:
        work.run(shown, cast("SavedTail", None), replays=False)
    assert caught.value.code == code


def test_plan_names_topics_that_were_promoted_by_name() -> None:
    lines = [*replace(plan(), left_out=("pay",)).lines()]
    assert any("pay; save their tails in a run with --topics" in line for line in lines), lines


def test_a_source_that_grows_while_it_is_saved_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Failback(scope(), print)
    found = [plan().tails[0]]
    now = {TP: LogState(end=25)}
    monkeypatch.setattr(failback, "read_ends", lambda *_: now)
    ends: dict[TopicPartition, CopyEnd | None] = {TP: None}
    monkeypatch.setattr(failback, "copy_ends", lambda *_: ends)
    work._require_unchanged_logs(found)
    now[TP] = LogState(end=26)
    with pytest.raises(FlowError, match="orders-0 from offset 25 on") as caught:
        work._require_unchanged_logs(found)
    assert caught.value.code == "TAIL_GROWS"
    now[TP] = LogState(end=25)
    copy = CopyEnd(
        key=PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 0),
        partition_map=cast("PartitionMap", None),
        ordinal=20,
        reach=Reach(20, 20),
    )
    for before, after in (
        (None, copy),
        (copy, None),
        (copy, replace(copy, ordinal=21, reach=Reach(21, 21))),
    ):
        ends[TP] = after
        with pytest.raises(FlowError, match="has moved since both logs were compared") as caught:
            work._require_unchanged_logs([replace(found[0], copy=before)])
        assert caught.value.code == "COPY_RUNS"
    ends[TP] = replace(copy, foreign_offsets=7)  # new owners write to the remote topic
    work._require_unchanged_logs([replace(found[0], copy=copy)])


def test_a_tail_that_is_deleted_while_it_is_read_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BrokerRefused("gone", code="OFFSET_OUT_OF_RANGE")

    monkeypatch.setattr(saved, "fetch_partition", refuse)
    client = cast("ClusterClient", SimpleNamespace(alias="A"))
    with pytest.raises(FlowError, match="no longer has offset 20") as caught:
        next(saved.read_tail(client, TP, Span(20, 25)))
    assert caught.value.code == "TAIL_MOVED"


def batch(first: int, next_: int, producer: int) -> BatchHeader:
    count = next_ - first
    return BatchHeader(first, 100, 0, 2, 0, 0, count - 1, 0, 0, producer, 0, first, count)


class Ends(CopyEnds):
    """Finds the end of the copy in a log of batches. Its brokers have expired every producer ID."""

    def __init__(self, *log: BatchHeader) -> None:
        self._log = log
        self._producers: dict[int, Any] = {}
        self._scope = cast("CutoverScope", SimpleNamespace(name="A->B", error=ERROR))

    def _batch_from(self, tp: TopicPartition, offset: int, end: int) -> BatchHeader | None:
        assert tp == REMOTE
        found = next((one for one in self._log if one.next_offset > offset), None)
        return None if found is None or found.base_offset >= end else found

    def remember(self, producer: int, last_sequence: int) -> None:
        self._producers = {producer: SimpleNamespace(last_sequence=last_sequence)}

    def end(self, start: int, end: int) -> tuple[int, int]:
        pair = PartitionPair(
            source=TP,
            target=REMOTE,
            source_topic_id=TopicId("a" * 32),
            target_topic_id=TopicId("b" * 32),
        )
        known = PartitionMap(pair.map_key, TP.topic)
        known.apply(
            ChunkRow(key=known.key, term=Term(1, 0), chunk=0, topic="t", runs=(Run(0, 100, 0),))
        )
        known.producers |= {6, 7}
        found = replica(
            pair,
            Maps({pair.map_key: known}, {}, 1),
            Ownership(False, {REMOTE: self._producers}, lambda _: True),
            target=LogState(start, end),
        )
        return self._in_unshared_topic(found)


def cuts(total: int) -> Iterator[tuple[int, list[BatchHeader]]]:
    """Yield logs of batches of three records: first batches of the flow, then foreign ones. Yield
    each log as the offset of its first foreign record, and its batches.
    """
    for border in range(0, total + 1, 3):
        ours = [batch(n, n + 3, 7) for n in range(0, border, 3)]
        yield border, ours + [batch(n, n + 3, 9) for n in range(border, total, 3)]


def test_the_end_of_the_copy_is_found_by_producer_ids() -> None:
    for border, log in cuts(21):
        assert Ends(*log).end(0, 21) == (border, border)


def test_an_earlier_producer_id_does_not_hide_records_of_the_last_one() -> None:
    log = Ends(batch(0, 6, 6), batch(6, 9, 7), batch(9, 12, 9))
    log.remember(7, 8)
    assert log.end(0, 12) == (9, 9)
    log.remember(6, 5)  # the brokers have expired producer ID 7
    assert log.end(0, 12) == (9, 9)


def test_where_a_hole_or_retention_hides_it_the_end_is_not_known() -> None:
    ours, theirs = batch(0, 3, 7), batch(6, 9, 9)
    for log, bounds in (([ours, theirs], (0, 9)), ([theirs], (6, 9)), ([], (9, 9))):
        with pytest.raises(FlowError) as caught:
            Ends(*log).end(*bounds)
        assert caught.value.code == "TAIL_UNKNOWN"
    assert Ends(batch(6, 9, 7), batch(9, 12, 9)).end(6, 12) == (9, 9)


OURS, OTHER_FLOW, STRANGER = 7, 8, 9


class SharedEnds(CopyEnds):
    """Finds the end of the copy in an in-memory log to which other clients write, too."""

    def __init__(self, mark: Mark) -> None:
        self.log = MemoryLog()
        self.key = PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 0)
        run = Run(0, 100, 0)
        row = ChunkRow(
            key=self.key,
            term=Term(1, -1),
            chunk=0,
            topic="t",
            runs=(run,),
            mark=mark,
            producer_id=OURS,
        )
        maps = Maps(fold([row]), {}, 8)
        self._picture = Picture(NO_ENDS, NO_ENDS, maps, Ownership(is_shared=True))
        self._cleaned = set()
        self._scope = cast("CutoverScope", SimpleNamespace(name="A->B", error=ERROR))
        producers = frozenset({OURS, OTHER_FLOW})
        self._rows = cast("Any", SimpleNamespace(producers=producers))

    def write(self, producer: int, first: int, count: int) -> None:
        some = [Record(number, 1_700_000_000_000, None, b"v") for number in range(count)]
        data = encode_batch(some, codec=Codec.NONE, producer_id=producer, base_sequence=first)
        assert not self.log.append(bytes(data)).error

    def remember(self) -> None:
        last = self.log.producer(OURS)
        assert last is not None
        ownership = Ownership(is_shared=True, producers={REMOTE: cast("Any", {OURS: last})})
        self._picture = self._picture._replace(ownership=ownership)

    def end(self, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
        view = MemoryView({REMOTE: self.log}, self.key.target_topic_id)
        self._client = cast("ClusterClient", None)
        monkeypatch.setattr(copy_end, "SearchView", lambda _: view)
        self._reads, self._view = cast("Any", None), cast("Any", view)
        self._logs = view.ends({REMOTE})
        return self._in_shared(self.key, REMOTE)


@pytest.mark.parametrize("remembered", [True, False])
def test_the_end_of_the_copy_in_a_shared_topic_equals_that_of_a_start(
    monkeypatch: pytest.MonkeyPatch, *, remembered: bool
) -> None:
    log = SharedEnds(Mark(4, 4))
    log.write(OURS, 0, 4)
    log.write(OTHER_FLOW, 0, 3)
    log.write(OURS, 4, 2)
    if remembered:
        log.remember()
    log.write(STRANGER, 0, 5)
    assert log.end(monkeypatch) == (6, 9)


def test_a_final_mark_says_where_the_copy_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    log = SharedEnds(Mark(4, 4, is_final=True))
    log.write(OURS, 0, 4)
    log.write(STRANGER, 0, 5)
    log.log.delete_before(9)
    log._cleaned = {REMOTE.topic}
    assert log.end(monkeypatch) == (4, 4)


def test_findings_that_would_stop_a_start_leave_the_end_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gap, gone = SharedEnds(Mark(4, 4)), SharedEnds(Mark(4, 4))
    for one in (gap, gone):
        one.write(OURS, 0, 4)
    gap.log.forget(1_800_000_000_000)
    gap.write(OURS, 6, 2)
    gone.write(OURS, 4, 2)
    gone.write(STRANGER, 0, 5)
    gone.log.delete_before(6)
    for one, why in (
        (gap, "2 records of this flow are missing"),
        (gone, "does not remember how many"),
    ):
        with pytest.raises(FlowError, match=why) as caught:
            one.end(monkeypatch)
        assert caught.value.code == "TAIL_UNKNOWN"


def test_records_that_may_be_the_flows_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = SharedEnds(Mark(4, 4))
    log.write(OURS, 0, 4)
    log.write(OURS, 4, 2)
    log.log = LaggingLog(log.log, 2)
    with pytest.raises(PartitionError) as caught:
        log.end(monkeypatch)
    assert caught.value.code == "TARGET_UNDER_MIN_ISR"


def work(*spans: tuple[int, int], first: int = 20) -> TailWork:
    divergence = LogDivergence(source=TP, target=REMOTE, at=first)
    return TailWork(divergence, tuple(file(*one) for one in spans))


class Rows:
    """A target whose brokers remember no producer, and the rows that were written to it."""

    def __init__(self, *begun: str) -> None:
        self.begun, self.written = [*begun], list[Any]()

    def topics(self, kind: IntentKind) -> list[str]:
        assert kind is IntentKind.REPLAY
        return self.begun

    def scope(self) -> CutoverScope:
        steering = SimpleNamespace(set=lambda *_: self.written.append(["a row"]))
        found: Any = SimpleNamespace(partition=lambda _: None, has=lambda *_: True)
        target = SimpleNamespace(metadata=lambda _: found)
        names = SimpleNamespace(
            name="A->B", target=target, intents=lambda: self, steering=steering, error=ERROR
        )
        return cast("CutoverScope", names)

    def replay(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path = HERE, at: Committed | None = None
    ) -> Replay:
        found = {} if at is None else {REMOTE: at}
        monkeypatch.setattr(replay, "positions", lambda _: found)
        watch = cast("PromotionWatch", SimpleNamespace(require=lambda *_: None))
        one = Replay(self.scope(), SavedTail(folder, OWNER), watch, print)
        monkeypatch.setattr(
            one._transactions, "write", lambda *call, **_: self.written.append((call[1], call[2]))
        )
        return one


def test_the_first_offset_is_there_before_the_row_that_says_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows()
    assert rows.replay(monkeypatch)._begun([work((20, 24))]) == {REMOTE: Committed(20, "begun")}
    assert rows.written == [((), {REMOTE: 20}), ["a row"]]


def test_a_partition_whose_tail_comes_later_is_begun_with_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One partition's tail is empty in the first run of a replay. The run must also write a
    position for this partition. Otherwise a later run would find that the replay of the topic has
    begun, but not where this partition begins.
    """
    other = TopicPartition("orders", 1)
    empty = LogDivergence(
        source=other, target=REMOTE._replace(partition=1), at=7, target_log=(0, 7)
    )
    full = LogDivergence(source=TP, target=REMOTE, at=20, target_log=(0, 20))
    some = work_of([full, empty, replace(empty, source=TopicPartition("idle", 0))], [file(20, 24)])
    assert [(one.tail.source, one.tail.at, one.files != ()) for one in some] == [
        (TP, 20, True),
        (other, 7, False),
    ]
    rows = Rows()
    rows.replay(monkeypatch)._begun(some)
    assert rows.written == [((), {REMOTE: 20}), ((), {empty.target: 7}), ["a row"]]
    begun = Committed(7, "begun")  # the source has since lost its end, so the tail begins earlier
    later = Rows("orders").replay(monkeypatch, at=begun)._begun([work((3, 9), first=3)])
    assert later == {REMOTE: Committed(3, "begun")}


def test_a_replay_continues_only_with_the_files_of_the_last_appended_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: list[ExportedRecord]
) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    at = Committed(22, replay.last_appended(log[1].record))
    some = work()._replace(files=tuple(save(ours)))
    assert Rows("orders").replay(monkeypatch, ours, at)._begun([some]) == {REMOTE: at}
    # nothing of a later tail was appended yet
    later = some._replace(tail=replace(some.tail, at=22))
    assert Rows("orders").replay(monkeypatch, ours, at)._begun([later])[REMOTE].offset == 22

    # retention has deleted 20 to 22 since then, but the other folder has them
    log[:] = records(23)
    rest = work()._replace(files=tuple(save(other, 23)))
    # or the source lost its records, and others were written at their offsets
    log[:] = [replace(one, record=one.record._replace(value=b"new")) for one in records(20, 21, 23)]
    again = work()._replace(files=tuple(save(tmp_path / "again")))
    for folder, wrong in ((other, rest), (tmp_path / "again", again)):
        with pytest.raises(FlowError, match="Pass the folder of that run with --save") as caught:
            Rows("orders").replay(monkeypatch, folder, at)._begun([wrong])
        assert caught.value.code == "REPLAY_UNKNOWN"


@pytest.mark.parametrize("metadata", ["something of theirs", "-1 x", "²"])
def test_an_offset_that_another_client_committed_for_the_replay_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, metadata: str
) -> None:
    at = Committed(22, metadata)
    with pytest.raises(
        FlowError, match="not committed by Twinlog, but by another client"
    ) as caught:
        Rows("orders").replay(monkeypatch, at=at)._begun([work((20, 24))])
    assert caught.value.code == "REPLAY_UNKNOWN"


def test_skipped_records_are_saved_and_not_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: list[ExportedRecord]
) -> None:
    assert log
    wanted = WantedSkip(
        reason="",
        flow="A->B",
        topic=TP.topic,
        topic_id=TopicId("a" * 32),
        partition=0,
        first=21,
        next=22,
        is_batch=False,
        code="RECORD_TOO_LARGE",
        who="me",
        at_ms=1,
    )
    files = save(tmp_path)
    assert [one.records for one in files] == [3]
    divergence = replace(plan().tails[0], topic_id=wanted.topic_id)
    for topic, left in ((TP.topic, [20, 23]), ("another", [20, 21, 23])):
        (one,) = work_of([divergence], files, [structs.replace(wanted, topic=topic)])
        found = Rows().replay(monkeypatch, tmp_path)._records(one, 20)
        assert [record.offset for record in found] == left


def test_saved_records_that_the_source_rewrote_since_are_detected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: list[ExportedRecord]
) -> None:
    files, there = save(tmp_path), {one.record.offset: one.record for one in log}
    monkeypatch.setattr(
        failback,
        "record_at",
        lambda _client, _tp, offset: (there[offset], False) if offset in there else None,
    )
    work, folder = Failback(scope(), print), SavedTail(tmp_path, OWNER)
    divergence = plan().tails[0]
    work._require_matching_files(folder, files, divergence)
    del there[23]  # record 23 was compacted away
    work._require_matching_files(folder, files, divergence)
    there[21] = there[21]._replace(value=b"new")
    with pytest.raises(FlowError, match="have different records at offset 21") as caught:
        work._require_matching_files(folder, files, divergence)
    assert caught.value.code == "SAVED_OTHERWISE"
    # the source lost these records, and its next records will get their offsets
    with pytest.raises(FlowError, match="ends at offset 24, but orders-0 ends at 21") as caught:
        work._require_matching_files(folder, files, replace(divergence, log=(0, 21)))
    assert caught.value.code == "SAVED_OTHERWISE"


def test_where_the_brokers_forgot_how_far_it_came_nothing_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows("orders")
    with pytest.raises(FlowError, match="have lost its position") as caught:
        rows.replay(monkeypatch)._begun([work((20, 24))])
    assert (caught.value.code, rows.written) == ("REPLAY_UNKNOWN", [])


def test_a_partition_that_the_target_lacks_is_named_before_anything_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows()
    with pytest.raises(FlowError, match=r"has no partition A\.orders-0") as caught:
        rows.replay(monkeypatch).run([work((20, 24))])
    assert (caught.value.code, rows.written) == ("TOPIC_MISSING", [])


def test_a_transaction_is_bounded_and_a_large_record_goes_alone() -> None:
    def some(*sizes: int) -> list[Record]:
        return [
            Record(offset=2 * n, timestamp=0, key=None, value=bytes(size), headers=())
            for n, size in enumerate(sizes)
        ]

    def shape(*sizes: int) -> list[tuple[int, int]]:
        return [(len(one), after) for one, after in replay._portions(iter(some(*sizes)))]

    assert shape() == []
    assert shape(1, 1) == [(2, 3)]
    assert shape(*[0] * 1_001) == [(1_000, 1_999), (1, 2_001)]
    assert shape(1, 600_000, 1) == [(1, 1), (1, 3), (1, 5)]


@pytest.mark.parametrize(("has_line", "was_transformed"), [(True, False), (False, True)])
def test_transformed_topics_are_not_replayed(has_line: bool, was_transformed: bool) -> None:
    """A topic that has transforms, or was copied with one, is not replayed (TRANSFORMS_NOT_RUN). A
    replay appends the source's bytes, but the transform would have masked them.
    """
    row = ChunkRow(
        key=PartitionKey(TopicId("a"), TopicId("b"), 0),
        term=Term(1, 0),
        chunk=0,
        topic="orders",
        runs=(Run(0, 0, 0),),
        transform="ab" if was_transformed else "",
    )
    (known,) = fold([row]).values()
    copy = CopyEnd(key=row.key, partition_map=known, ordinal=1, reach=Reach(1, 1))
    of_topic = {"orders": ("mask",) if has_line else ()}
    transforms = SimpleNamespace(of_topic=lambda topic: of_topic.get(topic, ()))
    scope: Any = SimpleNamespace(config=SimpleNamespace(transforms=transforms), error=ERROR)
    other = LogDivergence(source=TopicPartition("payments", 0), target=REMOTE)
    require_raw(scope, [other])
    with pytest.raises(FlowError, match="records of orders without their transforms") as caught:
        require_raw(scope, [other, LogDivergence(source=TP, target=REMOTE, copy=copy)])
    assert caught.value.code == "TRANSFORMS_NOT_RUN"
