"""Codes whose cause is rare, such as a failing broker or another writer. Each test causes one code
once, and the copy recovers.
"""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.support import raw
from tests.support.client import eventually, produce_transaction
from tests.support.clusters import private_cluster
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.rig import Rig, freeze, kill, thaw
from tests.support.terminal import Terminal
from tests.support.topics import apply_topic_configs, delete_records, offset_map_topic

pytestmark = [pytest.mark.faults, pytest.mark.broker]

NO_VERSION = b"\x7f\xff"
"""Version of an entry in the index of aborted transactions. No broker knows this version."""
ANY_ROW = "10"
"""A limit in bytes that every row of the offset map exceeds."""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def comes_up(mirror: Mirror, code: str) -> None:
    """Wait until the flow has counted this code. The counter is used because a transient code may
    already have disappeared from the state.
    """
    eventually(lambda: mirror.snapshots[0].errors.get(code, 0) > 0, what=code)


def at_end(rig: Rig, mirror: Mirror, count: int) -> None:
    """Wait until all records are copied exactly once and the partition shows no problem."""
    rig.copied(count)
    mirror.eventually(lambda parts: [(p.state, p.code) for p in parts] == [("AT_END", "")])
    rig.same()
    rig.offsets_are_exact()


FREEZES_BEFORE_IT_FETCHES = """
import os, signal
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.lane.sides.source_side import FETCH
submit = HotConnection.submit
def freeze_then_submit(self, api_key, *arguments):
    if api_key == FETCH and os.path.exists({flag!r}):
        os.unlink({flag!r})
        os.kill(os.getpid(), signal.SIGSTOP)
    return submit(self, api_key, *arguments)
HotConnection.submit = freeze_then_submit
"""
"""Freezes the lane before a fetch. A fetch that was sent before the deletion would still return the
deleted records.
"""


@pytest.mark.usefixtures("patient_driver")
def test_position_that_the_source_has_no_more(rig: Rig, tmp_path: Path) -> None:
    rig.create()
    rig.put(range(10))
    flag = tmp_path / "freeze"
    with rig.mirror(prelude=FREEZES_BEFORE_IT_FETCHES.format(flag=str(flag))) as mirror:
        rig.copied(10)
        (lane,) = (psutil.Process(pid) for pid in mirror.leases.pids())
        flag.touch()
        eventually(lambda: lane.status() == psutil.STATUS_STOPPED, what="the frozen lane")
        rig.put(range(10, 20))
        rig.put(range(20, 30))
        delete_records(rig.source, rig.topic, before=20)
        thaw([lane.pid])
        comes_up(mirror, "SOURCE_OUT_OF_RANGE")
        (part,) = mirror.eventually(lambda parts: parts[0].code == "SOURCE_TRUNCATED")
        assert "[10, 20)" in part.message
        mirror.stop()
    assert rig.numbers() == list(range(10))


def test_source_that_answers_an_error_without_a_code_of_its_own(rig: Rig) -> None:
    """The broker's index of aborted transactions is damaged, so it responds with -1
    (UNKNOWN_SERVER_ERROR). The partition fails with SOURCE_REFUSED, and recovers when the index is
    repaired.
    """
    rig.create()
    rig.put(range(10))
    produce_transaction(rig.source, rig.topic, [rig.outgoing(900)], commit=False)
    index = rig.source.data_folder(1) / str(rig.here) / f"{0:020}.txnindex"
    # a client is informed of the end of a transaction before the marker is in the log
    eventually(lambda: index.exists() and index.stat().st_size > 0, what="the abort")
    sound = index.read_bytes()
    with rig.mirror() as mirror:
        rig.copied(10)
        _write(index, NO_VERSION + sound[len(NO_VERSION) :])
        rig.put(range(10, 20))
        comes_up(mirror, "SOURCE_REFUSED")
        assert rig.numbers() == list(range(10))
        _write(index, sound)
        at_end(rig, mirror, 20)
        mirror.stop()


def _write(index: Path, data: bytes) -> None:
    with index.open("r+b") as file:
        file.write(data)


@pytest.mark.usefixtures("patient_driver")
def test_batch_of_another_lane_of_this_flow_with_other_bounds(rig: Rig) -> None:
    """An earlier lane, which was given up, has sent the same records in batches with other bounds.
    The target rejects a batch of the next lane, and this lane reports SEQUENCE_REFUSED. Then the
    copy continues, and no record is duplicated.
    """
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        freeze(mirror.leases.pids())
        zombie = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        zombie.send([rig.record(n) for n in range(10, 13)], 10).expect_ok()
        rig.put(range(10, 20))
        thaw(mirror.leases.pids())
        comes_up(mirror, "SEQUENCE_REFUSED")
        at_end(rig, mirror, 20)
        mirror.stop()
    assert rig.numbers() == list(range(20))


@pytest.mark.witness("a map topic that rejects rows is reported")
def test_map_topic_that_takes_no_row(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        limit = "max.message.bytes"
        apply_topic_configs(rig.target, offset_map_topic(rig.alias), {limit: ANY_ROW})
        kill(mirror.leases.pids())
        rig.put(range(10, 20))
        comes_up(mirror, "MAP_REFUSED")
        assert rig.numbers() == list(range(10)), "nothing is copied that the map does not announce"
        apply_topic_configs(rig.target, offset_map_topic(rig.alias), {limit: "1048588"})
        at_end(rig, mirror, 20)
        mirror.stop()


def test_state_of_another_source_cluster(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    with private_cluster("rebuilt", 1) as rebuilt:
        earlier, rig.source = rig.source, rebuilt
        try:
            file = rig.config()
            with Mirror(file, once=True, lanes=1) as mirror:
                (flow,) = mirror.wait()
        finally:
            rig.source = earlier
        with Terminal(100, "mirror", str(file), "--listen", "off") as terminal:
            terminal.until(lambda text: "FAILED" in text and "CLUSTER_CHANGED" in text)
            terminal.interrupt()
            assert terminal.wait() == 1
            said = " ".join(terminal.text.split())
    assert (flow.state, flow.code) == ("FAILED", "CLUSTER_CHANGED")
    assert rig.numbers() == list(range(10))
    assert said.endswith("[CLUSTER_CHANGED]"), "the summary is the reason"
    assert "DEGRADED" not in said
    assert "no topic of the source" not in said


def test_lane_whose_driver_is_silent(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    """The driver is frozen. The lane ends by itself with CHANNEL_SILENT, because other lanes may
    own its partitions soon. When the driver runs again, the copy continues.
    """
    rig.create()
    rig.put(range(10))
    said: list[str] = []

    def is_written(what: str) -> bool:
        said.append(capfd.readouterr().err)
        return what in "".join(said)

    with Driver(rig.config(), lanes=1) as driver:
        rig.copied(10)
        driver.signal(signal.SIGSTOP)
        eventually(lambda: is_written("[CHANNEL_SILENT]"), what="the end of the lane")
        driver.signal(signal.SIGCONT)
        rig.put(range(10, 20))
        rig.copied(20)
    rig.same()
