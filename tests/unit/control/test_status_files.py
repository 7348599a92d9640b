"""A mirror's small files for `status` and `support-bundle`. Nothing else depends on them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.snapshots import flow, partition
from twinlog.control.cutover import target_alone
from twinlog.control.cutover.copies import Copy
from twinlog.control.watch import events
from twinlog.control.watch.events import EventLog, last_events
from twinlog.control.watch.status_file import StatusFile, running_mirrors, status_folder
from twinlog.model import TopicPartition

log = logging.getLogger("twinlog.control.anything")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    level = logging.getLogger("twinlog").level
    logging.getLogger("twinlog").setLevel(logging.INFO)
    yield status_folder()
    logging.getLogger("twinlog").setLevel(level)


def test_a_folder_that_was_cleaned_away_is_recreated(folder: Path) -> None:
    config = Path("mm2.properties")
    status, kept = StatusFile(config), EventLog(config)
    kept.start()
    try:
        for _ in range(2):
            shutil.rmtree(folder)
            log.info("something happened")
            status.write([flow(partition())])
            kept.save()
            (mirror,) = running_mirrors(config)
            assert mirror.flows[0].flow == "A->B"
            assert len(last_events(config)) == 1
    finally:
        kept.stop()


def test_a_copy_whose_newest_timestamp_is_no_time_is_shown_without_it() -> None:
    source, target = (TopicPartition(name, 0) for name in ("orders", "A.orders"))
    for newest_ms, shown in ((1_750_000_000_000, 1_750_000_000_000), (1_750_000_000_000_000, None)):
        copy = Copy(source=source, target=target, upstream=5, newest_ms=newest_ms)
        (part,) = flow(target_alone._partition(copy, is_shared=False)).status.partitions
        assert part.newest_ms == shown


def test_a_mirror_of_several_files_is_found_by_each(folder: Path) -> None:
    one, two = Path("mm2.properties"), Path("more.properties")
    StatusFile(one, two).write([flow(partition())])
    assert [found.config for path in (one, two) for found in running_mirrors(path)] == (
        [str(one.resolve())] * 2
    )
    assert list(running_mirrors(Path("other.properties"))) == []


def test_a_killed_mirror_that_is_a_zombie_does_not_run(folder: Path) -> None:
    """A killed mirror stays a zombie forever if the first process of its container does not wait
    for children. It must not be shown as running.
    """
    code = (
        "import sys; from pathlib import Path; "
        "from twinlog.control.watch.status_file import StatusFile; "
        f"StatusFile(Path({str(folder / 'f.properties')!r})).write([]); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [one.pid for one in running_mirrors()] == [process.pid]
        process.kill()
        # the process is dead, but is still in the process table
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert [*running_mirrors()] == []


def test_mirror_of_an_older_release_is_shown(folder: Path) -> None:
    config = Path("mm2.properties")
    StatusFile(config).write([flow(partition())])
    (file,) = folder.glob("*.json")
    value = json.loads(file.read_text())
    del value["flows"][0]["groups_without_checkpoint"]
    file.write_text(json.dumps(value))
    (mirror,) = running_mirrors(config)
    assert mirror.flows[0].groups_without_checkpoint == {}


def test_a_disk_that_takes_nothing_ends_no_copy_and_is_reported_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Path("mm2.properties")
    status, kept = StatusFile(config), EventLog(config)
    kept.start()
    try:
        shutil.rmtree(folder)
        folder.write_text("in the way")
        for _ in range(3):
            log.info("something happened")
            status.write([flow()])
            kept.save()
        logged = [
            r.getMessage() for r in caplog.records if "cannot write the status" in r.getMessage()
        ]
        assert len(logged) == 1
        folder.unlink()
        status.write([flow()])
        kept.save()
        assert len(last_events(config)[0].events) == 4, "nothing was lost meanwhile"
    finally:
        kept.stop()


def test_events_stay_after_the_end_until_newer_ones_push_them_out(folder: Path) -> None:
    config = Path("mm2.properties")
    kept = EventLog(config)
    kept.start()
    log.info("A->B: began")
    logging.getLogger("kafka.anything").info("of a library, and not heard")
    kept.stop()
    log.info("after the end")
    (process,) = last_events(config)
    assert [(e.level, e.message) for e in process.events] == [("INFO", "A->B: began")]
    assert last_events(Path("other.properties")) == []

    ended = [ended_pid() for _ in range(events.OLD_FILES + 2)]
    (own,) = folder.glob("*.events")
    for pid in ended:
        value = json.loads(own.read_text()) | {"pid": pid}
        (folder / f"{pid}.events").write_text(json.dumps(value))
    EventLog(config)._remove_old()
    left = {path.name for path in folder.glob("*.events")}
    assert len(left - {own.name}) <= events.OLD_FILES


def test_the_newest_events_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    config = Path("mm2.properties")
    kept = EventLog(config)
    kept.start()
    for number in range(10):
        log.info("event %d", number)
    kept.stop()
    (process,) = last_events(config)
    assert [e.message for e in process.events] == ["event 7", "event 8", "event 9"]


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid
