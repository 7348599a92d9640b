"""The reads of `twinlog verify` when a log does not end at the offset that was reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.fetched_logs import Cluster, fetch_from_memory
from tests.support.memory_log import MemoryLog
from twinlog.control.verify import verification
from twinlog.control.verify.result import VerifiedFlow
from twinlog.control.verify.verification import VerifyScope
from twinlog.errors import TwinlogError
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.verify.difference import Compared, DifferenceKind
from twinlog.mirror.verify.walk import Rules
from twinlog.model import Isolation, TopicPartition
from twinlog.survey.discovery import Discovery
from twinlog.survey.ends import LogState
from twinlog.survey.replica import Witness, copied_below
from twinlog.survey.verify import (
    MappedCopy,
    PartitionBounds,
    VerifiedLog,
    VerifyTask,
    verify_partition,
)
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_from_memory(monkeypatch)


def log_of(count: int, spoilt: int = -1) -> MemoryLog:
    log = MemoryLog()
    for number in range(count):
        value = b"other" if number == spoilt else b"v%d" % number
        log._store(encode_batch([Record(0, NOW + number, b"k", value, ())], codec=Codec.NONE))
    return log


def compared(here: int, there: int, *, may_lack: bool = True, asked: int | None = None) -> Compared:
    """Compare a source with `here` records and a target with `there` records. `asked`: the end that
    the source's leader reports.
    """
    end = here if asked is None else asked
    known = cast("Any", SimpleNamespace(runs=(Run(0, 0, 0),), mark=Mark(there, there)))
    wanted = VerifyTask(
        source=HERE,
        target=THERE,
        here=PartitionBounds(start=0, end=end),
        there=PartitionBounds(start=0, end=there),
        later_source_end=end,
        mapped_copy=MappedCopy.of(known, copied_below(known, there, Witness.LOG_END).reach, there),
        producers=frozenset(),
        rules=Rules(),
        isolation=Isolation.READ_COMMITTED,
        is_led=False,
        source_may_lack=may_lack,
        target_may_lack=may_lack,
    )
    source, target = (Cluster(log_of(count), []) for count in (here, there))
    if asked is not None:
        target.log = log_of(there, spoilt=0)
    found = Compared()
    try:
        verify_partition(wanted, cast("Any", source), cast("Any", target), lambda _: None, found)
    except TwinlogError:
        assert asked is not None
    return found


def test_findings_before_a_read_error_count() -> None:
    (one,) = compared(100, 101, may_lack=False, asked=101).differences
    assert (one.kind, one.source) == (DifferenceKind.DIFFERENT, Span(0, 1))


@pytest.mark.parametrize("may_lack", [False, True], ids=["kept", "compacted"])
def test_offsets_that_the_source_never_reached_were_not_compacted_away(may_lack: bool) -> None:
    (one,) = compared(10, 12, may_lack=may_lack).differences
    assert (one.kind, one.target, one.records) == (DifferenceKind.EXTRA, Span(10, 12), 2)
    assert compared(10, 10, may_lack=may_lack).is_identical


def read(ends: list[int], *, isolation: Isolation) -> int:
    cluster = cast("Any", Cluster(log_of(6), ends))
    log = VerifiedLog(client=cluster, tp=HERE, start=0, end=6, isolation=isolation)
    return sum(1 for _ in log.pieces(0))


@pytest.mark.parametrize("isolation", Isolation)
def test_a_new_leader_that_does_not_know_the_end_yet_is_queried_again(isolation: Isolation) -> None:
    assert read([0, 0, 6], isolation=isolation) == 6


def test_a_log_that_lost_its_end_is_not_taken_for_a_cleaned_one() -> None:
    cluster = Cluster(log_of(6), [])
    log = VerifiedLog(client=cast("Any", cluster), tp=HERE, start=0, end=9)
    with pytest.raises(TwinlogError, match="ended at 9 before, and ends at 6 now"):
        list(log.pieces(0))


def test_records_after_the_queried_end_may_be_missing() -> None:
    log = VerifiedLog(client=cast("Any", Cluster(log_of(6), [])), tp=HERE, start=0, end=6)
    log.end = 9  # the target has more records than the queried end
    assert sum(1 for _ in log.pieces(0)) == 6


def test_a_topic_whose_new_name_is_refused_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = SimpleNamespace(tps=[HERE])
    monkeypatch.setattr(verification, "replace", lambda one, **_: one)
    monkeypatch.setattr(
        verification, "selected_topics", lambda *_: {"orders": topic}, raising=False
    )
    monkeypatch.setattr(verification, "read_ends", lambda *_, **__: {HERE: LogState(0, 5)})
    policy = SimpleNamespace(format_remote_topic=lambda *_: "A.one")
    setup = SimpleNamespace(
        policy=policy, config=SimpleNamespace(source_alias="A", isolation_level=None)
    )
    source = SimpleNamespace(metadata=lambda _: None)
    flow = verification._Flow(
        *cast("Any", (setup, source, None, VerifyScope(), None, lambda *_: None))
    )
    problem = SimpleNamespace(topic="orders", first=0, error="RENAME_CLASH")
    found = Discovery(problems=[cast("Any", problem)])
    (one,) = flow._never_made(found, VerifiedFlow(flow="A->B", is_led=True))
    assert (one.source, one.why_not, one.answer.exit_code) == (HERE, "RENAME_CLASH", 2)
