"""A folder that cannot be written: one line that names it and what to set, at once."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.command import ENTRY
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


@pytest.mark.parametrize(
    ("command", "variable", "todo"),
    [
        ("mirror mm2.properties", "XDG_RUNTIME_DIR", "set XDG_RUNTIME_DIR to a folder"),
        ("status", "XDG_RUNTIME_DIR", "set XDG_RUNTIME_DIR to a folder"),
        ("sandbox up --cluster Z", "TWINLOG_SANDBOX", "set TWINLOG_SANDBOX to a folder"),
        ("sandbox up --cluster Z", "HOME", "set TWINLOG_SANDBOX to a folder"),
        ("sandbox up --cluster Z", "TWINLOG_CACHE", "set TWINLOG_CACHE to a folder"),
        ("demo", "HOME", "set TWINLOG_CACHE to a folder"),
        ("demo", "TWINLOG_CACHE", "set TWINLOG_CACHE to a folder"),
    ],
)
def test_a_folder_that_cannot_be_written_is_one_line(
    nowhere: Path, command: str, variable: str, todo: str
) -> None:
    folder = nowhere.parents[1]
    (folder / "mm2.properties").write_text(CONFIG)
    environment = {name: value for name, value in os.environ.items() if name != "TWINLOG_CACHE"}
    environment |= {"TWINLOG_SANDBOX": str(folder / "sandbox"), variable: str(nowhere)}
    if variable == "HOME":
        del environment["TWINLOG_SANDBOX"]
    done = subprocess.run(
        [*ENTRY, *command.split()],
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
    assert str(nowhere) in said[0]
    assert todo in said[0]
    assert "Traceback" not in done.stderr


def test_no_place_for_temporary_files_is_one_line(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere))
    with pytest.raises(EnvironmentMissing, match="set TMPDIR to a folder that can be written"):
        temporary_folder("twinlog-")
