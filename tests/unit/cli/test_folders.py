"""A folder that cannot be written: one line that names it and what to set, at once."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import ENTRY
from tests.support.read_only import WHERE_FILES_ARE_MADE, as_it_is, empty, with_mounts
from twinlog.errors import EnvironmentMissing
from twinlog.folders import temporary_folder

CONFIG = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A folder that nobody can make, root neither: the one above it is a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "below"


CASES = [
    ("mirror mm2.properties", "XDG_RUNTIME_DIR", "set XDG_RUNTIME_DIR to a folder"),
    ("status", "XDG_RUNTIME_DIR", "set XDG_RUNTIME_DIR to a folder"),
    ("sandbox up --cluster Z", "TWINLOG_SANDBOX", "set TWINLOG_SANDBOX to a folder"),
    ("sandbox up --cluster Z", "HOME", "set TWINLOG_SANDBOX to a folder"),
    ("sandbox up --cluster Z", "TWINLOG_CACHE", "set TWINLOG_CACHE to a folder"),
    ("demo", "HOME", "set TWINLOG_CACHE to a folder"),
    ("demo", "TWINLOG_CACHE", "set TWINLOG_CACHE to a folder"),
]


def said_by(folder: Path, command: Sequence[str], variable: str, value: Path) -> str:
    """The one line with which the command ends where this variable names this folder."""
    (folder / "mm2.properties").write_text(CONFIG)
    environment = {name: text for name, text in os.environ.items() if name != "TWINLOG_CACHE"}
    environment |= {"TWINLOG_SANDBOX": str(folder / "sandbox"), variable: str(value)}
    if variable == "HOME":
        del environment["TWINLOG_SANDBOX"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("twinlog: ")]
    assert done.returncode == 1
    assert len(said) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return said[0]


@pytest.mark.parametrize(("command", "variable", "todo"), CASES)
def test_a_folder_that_cannot_be_written_is_one_line(
    nowhere: Path, command: str, variable: str, todo: str
) -> None:
    said = said_by(nowhere.parents[1], [*ENTRY, *command.split()], variable, nowhere)
    assert str(nowhere) in said
    assert todo in said


@pytest.mark.parametrize(("command", "variable", "todo"), CASES)
def test_a_folder_on_a_read_only_mount_is_one_line(
    tmp_path: Path, command: str, variable: str, todo: str
) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    inside = with_mounts([empty(mounted)], [*ENTRY, *command.split()])
    said = said_by(tmp_path, inside, variable, mounted)
    assert str(mounted) in said
    assert "Read-only file system" in said
    assert todo in said


def test_a_machine_without_a_folder_that_can_be_written_is_one_line(tmp_path: Path) -> None:
    mounts = [as_it_is(Path(folder)) for folder in WHERE_FILES_ARE_MADE]
    inside = with_mounts(mounts, [*ENTRY, "mirror", "mm2.properties"])
    said = said_by(tmp_path, inside, "TMPDIR", tmp_path)
    assert "No usable temporary directory found" in said
    assert "set TMPDIR to a folder that can be written" in said


def test_no_place_for_temporary_files_is_one_line(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere))
    with pytest.raises(EnvironmentMissing, match="set TMPDIR to a folder that can be written"):
        temporary_folder("twinlog-")
