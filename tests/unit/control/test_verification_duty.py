"""The duty that verifies the copy: what it compares, and how much it may use."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support import snapshots
from tests.support.fetched_logs import Cluster, fetch_from_memory
from tests.support.memory_log import MemoryLog
from twinlog.codes import FlowState
from twinlog.config.load import load
from twinlog.control.duties import verification
from twinlog.control.duties.rounds import LedFlow, NotPermitted, PartitionView
from twinlog.control.duties.verification import Verification
from twinlog.control.flow.managed_flow import duties_of
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError, Unauthorized, Unreachable
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionMap, Run, Term
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.replica import Maps
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

NOW = 1_750_000_000_000
COUNT = 1_000
SECTIONS = COUNT // 100


def log_of(spoilt: int = -1, start: int = 0) -> MemoryLog:
    log = MemoryLog()
    for at in range(0, COUNT, 10):
        some = [
            Record(0, NOW + n, b"k", b"other" if n == spoilt else b"v%d" % n, ())
            for n in range(at, at + 10)
        ]
        log._store(encode_batch(some, codec=Codec.NONE))
    if start:
        log.delete_before(start)
    return log


class Copy:
    """One partition of a led flow. The test sets the CPU time that is used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, mode: str) -> None:
        file = folder / "mm2.properties"
        file.write_text(
            "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\n"
            "B.bootstrap.servers = 127.0.0.1:1\nA->B.enabled = true\n"
            f"topics = orders\ntwinlog.verify = {mode}\n"
        )
        (config,) = load(file, environment={}).flows
        setup = flow_setup(config)
        self.cpu_s, self.mirror_s, self.lane_ms = 0.0, 1_000.0, 0
        self.now_s, self.state = 5_000.0, FlowState.RUNNING
        self.here, self.there = log_of(), log_of()
        self.view = PartitionView(
            source=TopicPartition("orders", 0),
            target=TopicPartition("A.orders", 0),
            source_topic_id=TopicId("s"),
            target_topic_id=TopicId("t"),
            reach=Reach(COUNT, COUNT),
            is_begun=True,
        )
        self.maps, self.map_s, self.asked = 0, 0.0, 0
        """Number and cost of the reads of the map, and number of the queries about partitions."""
        self.flow = LedFlow(
            config=config,
            policy=setup.policy,
            generation=1,
            source=setup.source,
            target=setup.target,
            partitions=self._partitions,
            read_map=self._read_map,
            snapshot=lambda: structs.replace(
                snapshots.flow(), lane_cpu_ms=self.lane_ms, state=self.state
            ),
            log_once=lambda _: None,
        )
        fetch_from_memory(monkeypatch)
        monkeypatch.setattr(verification, "log_starts", self._starts)
        monkeypatch.setattr(verification, "may_lack_offsets", lambda *_: set())
        monkeypatch.setattr(verification, "FIRST_OFFSETS", 100)
        monkeypatch.setattr(verification, "MOST_OFFSETS", 100)
        monkeypatch.setattr(Verification, "_of_process", set())
        monkeypatch.setattr("time.thread_time", lambda: self.cpu_s)
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        monkeypatch.setattr("time.process_time", lambda: self.mirror_s)

    def duty(self) -> Verification:
        duty = Verification(self.flow)
        duty._source = cast("Any", Cluster(self.here, alias="A"))
        duty._target = cast("Any", Cluster(self.there, alias="B"))
        none = SimpleNamespace(error=UNKNOWN_TOPIC_OR_PARTITION)
        no_state = SimpleNamespace(topics={STATE_TOPIC: none})
        target: Any = duty._target
        target.metadata = lambda _: no_state
        return duty

    def _starts(self, client: Any, tps: Any) -> dict[TopicPartition, int]:
        self.cpu_s += 0.01
        return dict.fromkeys(tps, int(client.log.log_start))

    def _partitions(self) -> tuple[PartitionView, ...]:
        self.asked += 1
        return (self.view,)

    def _read_map(self) -> Maps:
        self.maps += 1
        self.cpu_s += self.map_s
        known = PartitionMap(key=self.view.map_key, topic="orders")
        row = ChunkRow(
            key=self.view.map_key,
            term=Term(1, 0),
            chunk=0,
            topic="orders",
            runs=(Run(0, 0, 0),),
            mark=Mark(COUNT, COUNT),
        )
        known.apply(row)
        return Maps({self.view.map_key: known}, {}, 8)

    @property
    def found(self) -> Any:
        return self.flow.verified.last


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Copy:
    return Copy(monkeypatch, tmp_path, "full")


def test_full_compares_everything_and_then_new_records(full: Copy) -> None:
    duty = full.duty()
    assert (full.found.records, full.found.at_ms) == (0, 0)
    duty.round()
    duty.round()
    assert (full.found.records, full.found.differences, full.found.is_complete) == (COUNT, 0, True)
    maps = full.maps
    duty.round()
    assert full.maps == maps  # if nothing was copied, nothing is queried


def test_it_uses_no_more_than_its_share_of_the_mirrors_cpu(full: Copy) -> None:
    full.mirror_s, full.lane_ms = 1.0, 0
    duty = full.duty()
    for _ in range(20):
        duty.round()
    few = full.found.records
    # a section that was begun within the budget is completed
    assert full.cpu_s <= 0.03 * 1.0 + 0.02
    assert 0 < few < COUNT
    duty._of_process.add(cast("Any", "another flow's"))
    for _ in range(20):
        duty.round()
    assert full.found.records == few  # both flows now share what the driver's CPU permits
    full.lane_ms = 2_500  # the CPU time of lanes also counts
    for _ in range(20):
        duty.round()
    assert full.cpu_s <= 0.03 * 3.0 + 0.02
    assert few < full.found.records < COUNT


def test_its_share_includes_what_earlier_threads_have_used(full: Copy) -> None:
    full.mirror_s = 1.0
    duty, used_s = full.duty(), 0.0
    for _ in range(20):
        full.cpu_s = 0.0  # each round has its own thread
        duty.round()
        used_s += full.cpu_s
    assert used_s <= 0.03 * 1.0 + 0.02
    assert full.found.cpu_ms == pytest.approx(1000 * used_s, abs=1)


def test_a_round_over_budget_reads_no_map(full: Copy) -> None:
    full.mirror_s = 1.0
    full.map_s = 0.04  # one read of the map costs more than the duty's whole share of CPU time
    duty = full.duty()
    for _ in range(20):
        duty.round()
    assert (full.maps, full.asked, full.found.records) == (1, 1, 0)
    full.mirror_s = 1.4  # the mirror has used enough CPU since then to pay for the read
    duty.round()
    assert (full.maps, full.asked) == (2, 2)
    duty.round()
    assert (full.maps, full.asked) == (2, 2)
    full.mirror_s, full.map_s = 3.0, 0.0  # partitions that were not read then are read now
    duty.round()
    assert full.found.records > 0


def test_nothing_is_read_while_the_copy_is_throttled_nor_soon_after(full: Copy) -> None:
    full.state = FlowState.THROTTLED
    duty = full.duty()
    duty.round()
    full.state = FlowState.RUNNING  # the source does not mute the connection at this moment
    full.now_s += 30
    duty.round()
    assert (full.found.records, full.cpu_s, full.maps) == (0, 0.0, 0)
    full.now_s += 31
    duty.round()
    assert full.found.records == COUNT


def test_a_quota_that_binds_for_it_alone_ends_the_round(full: Copy) -> None:
    duty = full.duty()
    source = cast("Cluster", duty._source)
    source.muted_until = full.now_s + 1
    duty.round()
    assert full.found.records == 100
    source.muted_until = 0.0
    full.now_s += 59
    duty.round()
    assert full.found.records == 100
    full.now_s += 2
    duty.round()
    assert full.found.records == COUNT


def test_a_section_is_of_few_bytes(full: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SECTION_BYTES", 1_000)
    duty = full.duty()
    duty.round()
    assert 10 < duty._offsets < 100  # 20 bytes each, because sections do not end within a batch


def test_a_sample_is_of_the_newest_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = Copy(monkeypatch, tmp_path, "sample")
    copy.there = log_of(spoilt=50)
    duty = copy.duty()
    duty.round()
    duty.round()
    assert (copy.found.records, copy.found.differences, copy.found.is_complete) == (100, 0, False)


def test_a_difference_is_reported_once(full: Copy) -> None:
    full.there = log_of(spoilt=450)
    duty = full.duty()
    duty.round()
    (line,) = full.found.first_differences
    assert line == "different: orders-0 [450, 451) / A.orders-0 [450, 451)"
    assert (full.found.differences, full.found.records) == (1, COUNT - 1)


def test_a_difference_that_is_gone_in_the_second_comparison_does_not_count(full: Copy) -> None:
    full.there = log_of(spoilt=450)
    duty = full.duty()
    right = log_of()
    again = duty._compare_again

    def mended(section: Any) -> Any:
        duty._target.log = right  # type: ignore[attr-defined]
        return again(section)

    duty._compare_again = mended  # type: ignore[method-assign]
    duty.round()
    assert (full.found.differences, full.found.records) == (0, COUNT)
    # records of another topic of the same name do not count either
    full.there = log_of(spoilt=450)
    duty = full.duty()
    again = duty._compare_again

    def another(section: Any) -> Any:
        full.view = replace(full.view, target_topic_id=TopicId("u"))
        return again(section)

    duty._compare_again = another  # type: ignore[method-assign]
    duty.round()
    assert full.found.differences == 0


@pytest.mark.parametrize("why", ["between two lanes", "an outage"])
def test_a_difference_that_cannot_be_compared_again_is_found_later(full: Copy, why: str) -> None:
    full.there = log_of(spoilt=450)
    duty = full.duty()
    again = duty._compare_again
    away = Unreachable("cluster B cannot be reached")

    def once(section: Any) -> Any:
        duty._compare_again = again  # type: ignore[method-assign]
        if why == "an outage":
            raise away
        return None

    duty._compare_again = once  # type: ignore[method-assign]
    with pytest.raises(Unreachable) if why == "an outage" else nullcontext():
        duty.round()
    assert (full.found.differences, full.found.is_complete) == (0, False)
    duty.round()
    duty.round()
    assert (full.found.differences, full.found.records) == (1, COUNT - 1)
    assert full.found.is_complete


def test_deleted_source_records_are_passed_immediately(full: Copy) -> None:
    full.here = log_of(start=900)
    duty = full.duty()
    duty.round()
    duty.round()
    assert (full.found.records, full.found.differences, full.found.is_complete) == (100, 0, True)
    assert full.cpu_s < 0.1


@pytest.mark.parametrize(
    "change",
    [
        {"is_broken": True},
        {"is_keyed": True},
        {"is_begun": False},
        {"foreign_code": "EXTRA_RECORDS"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_partitions_that_are_no_copy_of_this_flow_are_ignored(
    full: Copy, change: dict[str, Any]
) -> None:
    full.view = replace(full.view, **change)
    full.duty().round()
    assert (full.found.records, full.maps) == (0, 0)


def test_a_missing_right_ends_the_round_with_a_remedy(
    full: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: TwinlogError = Unauthorized("no", code="TOPIC_UNAUTHORIZED")

    def refuse(*_: Any) -> Any:
        raise refused

    monkeypatch.setattr(verification, "log_starts", refuse)
    with pytest.raises(NotPermitted, match=r"or set twinlog\.verify=off"):
        full.duty().round()


def test_off_is_no_duty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = Copy(monkeypatch, tmp_path, "off")
    assert "verify" not in {duty.name for duty in duties_of(copy.flow)}
    assert copy.found is None


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no priority of a thread")
def test_lanes_come_first_where_all_cores_are_busy(full: Copy) -> None:
    duty, found = full.duty(), list[int]()

    def work() -> None:
        duty.round()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [max(before, verification.NICE)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
