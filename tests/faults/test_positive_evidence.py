"""A map is corrected, and an error withdrawn, only after records were compared and found equal."""

from __future__ import annotations

import pytest

from tests.support.client import eventually
from tests.support.rewritten_source import put_others
from tests.support.rig import COMPACTED, Rig
from tests.support.surgery import cut_log
from tests.support.topics import create_topic, delete_records
from twinlog.wire.record_batch import read_headers

pytestmark = [pytest.mark.faults, pytest.mark.broker]


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def cut_all(rig: Rig, offset: int) -> None:
    """Cut the log at `offset` as `cut_log` does, but also if it has several segments."""
    folder = rig.source.data_folder(1) / str(rig.here)
    for log in sorted(folder.glob("*.log")):
        found = list(read_headers(memoryview(bytearray(log.read_bytes()))))
        if found and found[0][0].base_offset >= offset:
            for file in folder.glob(log.stem + ".*"):
                file.unlink()
            continue
        at = next((at for header, at in found if header.base_offset >= offset), None)
        if at is not None:
            with log.open("r+b") as file_of:
                file_of.truncate(at)
    for derived in ("index", "timeindex", "snapshot"):
        for file in folder.glob(f"*.{derived}"):
            file.unlink()
    (folder.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)


def fill(rig: Rig) -> None:
    """Write a compacted log: offsets 10 to 59 are missing, and 60 to 71 have records."""
    rig.create(**COMPACTED)
    create_topic(rig.target, rig.remote)
    rig.put(range(10))
    rig.put(range(10, 60), keys=dict.fromkeys(range(10, 60), 60))
    for first, behind in ((60, 65), (65, 70), (70, 72)):
        rig.put(range(first, behind))
    rig.compacted([*range(10), *range(60, 72)])


COPIED = [*range(10), *range(60, 72)]


def test_gap_is_no_place_for_records_that_differ(rig: Rig) -> None:
    fill(rig)
    rig.copy_once()
    rig.source.kill(1)
    cut_all(rig, 65)
    rig.source.restart(1)
    put_others(rig, range(65, 90))
    code, message = rig.fail_once()
    assert code == "SOURCE_DIVERGED"
    assert "[65, 72)" in message
    assert rig.numbers() == COPIED


def test_retry_does_not_take_a_cut_source_back(rig: Rig) -> None:
    fill(rig)
    with rig.mirror() as mirror:
        rig.copied(22)
        rig.source.kill(1)
        cut_all(rig, 65)
        rig.source.restart(1)
        mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        put_others(rig, range(65, 90))
        looks = mirror.snapshots[0].errors["SOURCE_DIVERGED"]
        mirror.eventually(lambda _: mirror.snapshots[0].errors["SOURCE_DIVERGED"] >= looks + 2)
        mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        mirror.stop()
    assert rig.numbers() == COPIED


def test_finding_stays_when_nothing_is_left_to_compare(rig: Rig) -> None:
    """The source lost records, and the records that replaced them are deleted. A new check would
    have nothing to compare, so it must not withdraw SOURCE_DIVERGED.
    """
    rig.create()
    for start in range(0, 50, 10):
        rig.put(range(start, start + 10))
    with rig.mirror() as mirror:
        rig.copied(50)
        rig.source.kill(1)
        cut_log(rig.source, rig.here, 30)
        rig.source.restart(1)
        mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        put_others(rig, range(30, 80))
        delete_records(rig.source, rig.topic, before=50)
        looks = mirror.snapshots[0].errors["SOURCE_DIVERGED"]
        mirror.eventually(lambda _: mirror.snapshots[0].errors["SOURCE_DIVERGED"] >= looks + 2)
        (part,) = mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        assert "[30, 50)" in part.message
        mirror.stop()
    assert rig.numbers() == list(range(50))


def test_source_that_has_the_records_again_is_copied_on(rig: Rig) -> None:
    """The source gets the lost records again. A check finds them equal, withdraws SOURCE_DIVERGED,
    and the copy resumes.
    """
    rig.create()
    for start in range(0, 50, 10):
        rig.put(range(start, start + 10))
    with rig.mirror() as mirror:
        rig.copied(50)
        rig.source.kill(1)
        cut_log(rig.source, rig.here, 30)
        rig.source.restart(1)
        mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        for start in range(30, 60, 10):
            eventually(lambda start=start: put_again(rig, start))  # type: ignore[misc]
        rig.copied(60)
        mirror.eventually(lambda parts: parts[0].state == "AT_END" and not parts[0].code)
        mirror.stop()
    assert rig.numbers() == list(range(60))
    rig.same()


def put_again(rig: Rig, start: int) -> bool:
    if rig.source_end() == start:
        rig.put(range(start, start + 10))
    return True
