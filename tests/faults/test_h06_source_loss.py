"""H6: the source loses or replaces records without an error to its clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as GroupAt

from tests.support import raw
from tests.support.groups import commit_all
from tests.support.rewritten_source import expect_diverged, fill, put_others, rewrite
from tests.support.rig import Rig, freeze, thaw
from tests.support.topics import delete_records
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

ACCEPT = {"twinlog.source.loss": "accept"}


@pytest.fixture
def flow(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.create()
        yield rig


@pytest.mark.witness("H6: records that retention deleted before they were copied are reported")
def test_records_deleted_before_they_were_copied(
    flow: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    flow.put(range(10))
    flow.copy_once()
    flow.put(range(10, 50))
    delete_records(flow.source, flow.topic, before=30)
    code, message = flow.fail_once()
    assert code == "SOURCE_TRUNCATED"
    assert f"{flow.topic}-0: the source deleted upstream offsets [10, 30)" in message
    assert "twinlog.source.loss=accept" in message
    assert flow.numbers() == list(range(10))

    with flow.mirror(once=True, keys=ACCEPT) as mirror:
        (found,) = mirror.wait()
    assert found.errors == {"SOURCE_TRUNCATED": 1}, "what is accepted is counted"
    (said,) = {r.getMessage() for r in caplog.records if "resumes after them" in r.getMessage()}
    assert f"{flow.topic}-0: the source deleted upstream offsets [10, 30)" in said
    assert flow.numbers() == [*range(10), *range(30, 50)]
    flow.offsets_are_exact()
    flow.copy_once()  # the loss that was reported is not forgotten or reported again


def test_records_deleted_after_the_groups_offset_are_reported(
    flow: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """MirrorMaker 1's group has its offset at deleted records, because MirrorMaker 1 was stopped
    for longer than the source's retention. The records from this offset on are reported as lost.
    """
    group = f"g-{flow.topic}"
    flow.prefixed = False
    flow.put(range(10))
    commit_all(flow.source, group, [GroupAt(flow.topic, 0, 5)])
    delete_records(flow.source, flow.topic, before=8)
    with flow.mirror(once=True, keys={f"{flow.flow}.twinlog.source.group.id": group}) as mirror:
        (found,) = mirror.wait()
    assert found.errors == {"SOURCE_TRUNCATED": 1}
    assert f"{flow.topic}-0: the source deleted upstream offsets [5, 8)" in caplog.text
    assert flow.numbers() == [8, 9]


def test_records_deleted_after_they_were_copied_are_no_loss(flow: Rig) -> None:
    flow.put(range(10))
    with flow.mirror() as mirror:
        flow.copied(10)
        # all deleted records have been copied, so nothing is lost
        delete_records(flow.source, flow.topic)
        flow.put(range(10, 20))
        flow.copied(20)
        mirror.eventually(lambda parts: parts[0].state == "AT_END" and not parts[0].code)
        mirror.stop()
    assert flow.numbers() == list(range(20))


def test_log_cut_under_a_running_mirror(rig: Rig) -> None:
    fill(rig)
    with rig.mirror() as mirror:
        rig.copied(50)
        rig.source.kill(1)
        rewrite(rig)
        (part,) = mirror.eventually(lambda parts: parts[0].state == "FAILED")
        expect_diverged(part.code, part.message)
        mirror.stop()
    assert rig.numbers() == list(range(50))


@pytest.mark.witness("H6: a source log that was truncated and written again is reported")
@pytest.mark.usefixtures("patient_driver")
def test_log_truncated_and_refilled_while_no_lane_ran(rig: Rig) -> None:
    """The source loses records and gets others while the lane is frozen. A reader without leader
    epochs would resume at 50 as if nothing had happened. The partition must stop with
    SOURCE_DIVERGED, and the next process must report the same.
    """
    fill(rig)
    with rig.mirror() as mirror:
        rig.copied(50)
        freeze(mirror.leases.pids())
        rig.source.kill(1)
        rewrite(rig)
        put_others(rig, range(30, 80))
        plain = raw.values(rig.source_client, rig.here, 50)
        assert plain[0] == b"u1050", "the simpler version copies on from here"
        thaw(mirror.leases.pids())
        (part,) = mirror.eventually(lambda parts: parts[0].state == "FAILED")
        expect_diverged(part.code, part.message)
        mirror.stop()
    # a new process, which knows nothing of the finding, reports the same
    expect_diverged(*rig.fail_once())
    assert rig.numbers() == list(range(50))


def test_log_cut_and_refilled_of_a_topic_that_other_clients_write_to(rig: Rig) -> None:
    rig.prefixed = False
    fill(rig)
    rig.copy_once()
    rig.source.kill(1)
    rewrite(rig)
    expect_diverged(*rig.fail_once())
    put_others(rig, range(30, 80))
    code, message = rig.fail_once()
    assert code == "DIVERGED"
    what = f"this flow's last record (at offset 49) is upstream record 49 of {rig.topic}-0, but"
    assert what in message
    assert rig.numbers() == list(range(50))


def test_log_cut_while_no_mirror_ran(rig: Rig) -> None:
    fill(rig)
    rig.copy_once()
    rig.source.kill(1)
    rewrite(rig)
    expect_diverged(*rig.fail_once())  # the source's log is shorter than what was copied
    for refill in (range(30, 40), range(40, 50), range(50, 90)):
        put_others(rig, refill)
        expect_diverged(*rig.fail_once())
    assert rig.numbers() == list(range(50))
