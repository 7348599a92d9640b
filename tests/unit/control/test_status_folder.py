"""The folder of status files belongs to this user only. Files that other users have put there are
neither written nor read.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.snapshots import flow, partition
from twinlog.cli.main import run
from twinlog.control.watch.events import EventLog, last_events
from twinlog.control.watch.status_file import StatusFile, running_mirrors, status_folder
from twinlog.folders import FolderNotPrivate, remove_unfinished

NOBODY = 65_534
CONFIG = Path("mm2.properties")
log = logging.getLogger("twinlog.control.anything")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The status folder of a user without XDG_RUNTIME_DIR. It does not exist yet."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"twinlog-{os.getuid()}"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that another user tries to make this user overwrite."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def test_it_is_made_for_this_user_alone(folder: Path) -> None:
    StatusFile(CONFIG).write([flow(partition())])
    kept = EventLog(CONFIG)
    kept.start()
    log.warning("something")
    kept.stop()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 2, "nothing unfinished is left"


def test_a_folder_that_is_open_to_others_is_refused_with_a_way_out(
    folder: Path, victim: Path
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    for name in (f"{os.getpid()}.new", f"{os.getpid()}.json"):
        (folder / name).symlink_to(victim)
    with pytest.raises(FolderNotPrivate, match=f"chmod 700 {folder}.* set XDG_RUNTIME_DIR"):
        StatusFile(CONFIG).write([flow()])
    with pytest.raises(FolderNotPrivate):
        EventLog(CONFIG)
    assert victim.read_text() == "precious"


@needs_root
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(0o700)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(FolderNotPrivate, match=f"belongs to user {NOBODY}.*set XDG_RUNTIME_DIR"):
        status_folder()


def test_a_link_in_its_place_is_refused(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(FolderNotPrivate, match=r"is a link.*set XDG_RUNTIME_DIR"):
        status_folder()


def test_links_within_are_not_written_through(folder: Path, victim: Path) -> None:
    status = StatusFile(CONFIG)
    for name in (f"{os.getpid()}.new", f"{os.getpid()}.json"):
        (folder / name).symlink_to(victim)
    status.write([flow(partition())])
    assert victim.read_text() == "precious"
    assert [mirror.pid for mirror in running_mirrors()] == [os.getpid()]


def test_a_user_who_takes_the_name_of_a_removed_folder_gets_nothing(
    folder: Path, victim: Path, caplog: pytest.LogCaptureFixture
) -> None:
    status, kept = StatusFile(CONFIG), EventLog(CONFIG)
    kept.start()
    try:
        shutil.rmtree(folder)
        folder.mkdir()
        folder.chmod(0o777)
        (folder / f"{os.getpid()}.new").symlink_to(victim)
        for _ in range(2):
            log.warning("something happened")
            status.write([flow()])
            kept.save()
        assert len(list(folder.iterdir())) == 1, "the link alone"
        assert victim.read_text() == "precious"
        logged = [
            r.getMessage() for r in caplog.records if "cannot write the status" in r.getMessage()
        ]
        assert len(logged) == 1
        shutil.rmtree(folder)
        status.write([flow()])
        assert [mirror.pid for mirror in running_mirrors()] == [os.getpid()]
    finally:
        shutil.rmtree(folder)
        kept.stop()


def whole() -> dict[str, Any]:
    """Write a status file as if this process were a mirror. Return its content."""
    StatusFile(CONFIG).write([flow(partition())])
    value: dict[str, Any] = json.loads((status_folder() / f"{os.getpid()}.json").read_text())
    return value


JUNK: list[Any] = [
    {"pid": 1},
    {"pid": "1"},
    [],
    "text",
    None,
    7,
    {"pid": "self/../self", "start_ticks": -1},
]
WRONG: list[dict[str, Any]] = [
    {"pid": "self"},
    {"pid": True},
    {"start_ticks": -1, "pid": 2**40},
    {"config": 5},
    {"more_configs": [5]},
    {"written_ms": "now"},
    {"written_ms": 10**30},
    {"flows": {}},
    {"flows": [5]},
    {"flows": [{}]},
    {"version": 2},
]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_planted_files_end_nothing(folder: Path, junk: Any) -> None:
    written = whole()
    for suffix in ("json", "events"):
        (folder / f"a.{suffix}").write_text(json.dumps(junk))
        (folder / f"b.{suffix}").write_text("[" * 100_000)
        (folder / f"c.{suffix}").write_bytes(b"\xff\xfe")
        os.mkfifo(folder / f"d.{suffix}")
        (folder / f"e.{suffix}").mkdir()
    assert [mirror.pid for mirror in running_mirrors()] == [written["pid"]]
    assert last_events(CONFIG) == []
    assert run(["status"]) == 0


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_field_of_another_type_is_no_mirror(folder: Path, wrong: dict[str, Any]) -> None:
    written = whole()
    (folder / f"{os.getpid()}.json").write_text(json.dumps(written | wrong))
    assert list(running_mirrors()) == []
    assert run(["status"]) == 3


@pytest.mark.parametrize("name", ["topic", "partition", "state"])
def test_a_partition_without_a_field_is_no_mirror(folder: Path, name: str) -> None:
    written = whole()
    written["flows"][0]["partitions"][0].pop(name)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(written))
    assert run(["status"]) == 3


def test_fields_that_another_release_lacks_are_unknown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = whole()
    part = written["flows"][0]["partitions"][0]
    written["flows"][0]["partitions"] = [
        {name: part[name] for name in ("topic", "partition", "state")}
    ]
    (folder / f"{os.getpid()}.json").write_text(json.dumps(written))
    assert run(["status"]) == 0
    assert "lag unknown" in capsys.readouterr().out


@needs_root
def test_files_of_another_user_are_not_read(folder: Path) -> None:
    written = whole()
    path = folder / f"{os.getpid()}.json"
    os.chown(path, NOBODY, NOBODY)
    assert written["pid"] == os.getpid()
    assert list(running_mirrors()) == []


def test_files_of_a_killed_process_are_removed_by_the_next(folder: Path) -> None:
    status_folder()
    (folder / f".{2**22 + 1}-0123.unfinished").write_text("{")
    (folder / f".{os.getpid()}-0123.unfinished").write_text("{")
    StatusFile(CONFIG)
    assert [path.name for path in folder.iterdir()] == [f".{os.getpid()}-0123.unfinished"]
    remove_unfinished(folder)
    assert len(list(folder.iterdir())) == 1, "another thread's is left alone"


def test_status_reports_the_problem_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    assert run(["status"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("[FOLDER_NOT_PRIVATE]")
    assert str(folder) in line
