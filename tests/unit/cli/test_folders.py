"""If a folder is not writable, the command immediately prints one line with the folder and the
setting.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import ENTRY
from tests.support.eventually import PATIENCE_S
from tests.support.read_only import WHERE_FILES_ARE_MADE, as_it_is, empty, with_mounts
from tests.support.sweeps import sweep
from twinlog.cli.main import run
from twinlog.control.watch.status_file import status_folder
from twinlog.errors import EnvironmentMissing
from twinlog.folders import temporary_folder
from twinlog.sandbox.kafka_jars import default_cache
from twinlog.sandbox.registry import default_folder

CONFIG = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A folder that cannot be created, not even by root, because its parent is a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "below"


CASES = [
    ("mirror mm2.properties", "XDG_RUNTIME_DIR", "set XDG_RUNTIME_DIR to a writable folder"),
    ("sandbox up --cluster Z", "TWINLOG_SANDBOX", "set TWINLOG_SANDBOX to a folder"),
    ("demo", "TWINLOG_CACHE", "set TWINLOG_CACHE to a writable folder"),
    ("status", "XDG_RUNTIME_DIR", "set XDG_RUNTIME_DIR to a writable folder"),
    ("sandbox up --cluster Z", "HOME", "set TWINLOG_SANDBOX to a folder"),
    ("sandbox up --cluster Z", "XDG_CACHE_HOME", "set TWINLOG_SANDBOX to a folder"),
    ("demo", "XDG_CACHE_HOME", "set TWINLOG_CACHE to a writable folder"),
    ("sandbox up --cluster Z", "TWINLOG_CACHE", "set TWINLOG_CACHE to a writable folder"),
    ("demo", "HOME", "set TWINLOG_CACHE to a writable folder"),
]


def surroundings(folder: Path, variable: str, value: Path) -> dict[str, str]:
    """Write the configuration file. Return an environment in which `variable` names the folder
    `value`.
    """
    (folder / "mm2.properties").write_text(CONFIG)
    dropped = {"TWINLOG_CACHE", "XDG_CACHE_HOME"}
    environment = {name: text for name, text in os.environ.items() if name not in dropped}
    environment |= {"TWINLOG_SANDBOX": str(folder / "sandbox"), variable: str(value)}
    if variable in {"HOME", "XDG_CACHE_HOME"}:
        del environment["TWINLOG_SANDBOX"]
    return environment


def only_line(error: str) -> str:
    """Return the only error line of a command."""
    said = [line for line in error.splitlines() if line.startswith("twinlog: ")]
    assert len(said) == 1, error
    assert "Traceback" not in error
    return said[0]


def said_by(folder: Path, command: Sequence[str], variable: str, value: Path) -> str:
    """Run the command with the variable set to this folder. Return the only error line."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=surroundings(folder, variable, value),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    return only_line(done.stderr)


@pytest.mark.parametrize(("command", "variable", "todo"), CASES)
def test_a_folder_that_cannot_be_written_is_one_line(
    nowhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    variable: str,
    todo: str,
) -> None:
    folder = nowhere.parents[1]
    monkeypatch.chdir(folder)
    environment = surroundings(folder, variable, nowhere)
    for name in {*os.environ} - {*environment}:
        monkeypatch.delenv(name)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert run(command.split()) == 1
    said = only_line(capsys.readouterr().err)
    assert str(nowhere) in said
    assert todo in said


@pytest.mark.parametrize(("command", "variable", "todo"), sweep(CASES, in_gate=3))
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


def test_xdg_folders_are_followed_where_they_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    assert default_cache(elsewhere) == tmp_path / "caches" / "twinlog"
    assert default_folder(elsewhere) == tmp_path / "caches" / "twinlog" / "sandbox"
    own = {"TWINLOG_CACHE": "jars", "TWINLOG_SANDBOX": "sandbox"}
    assert default_cache(elsewhere | own) == Path("jars")
    assert default_folder(elsewhere | own) == Path("sandbox")
    for value in ("", "caches", "./caches"):
        usual = tmp_path / "home" / ".cache" / "twinlog"
        assert default_cache({"XDG_CACHE_HOME": value}) == usual
        assert default_folder({"XDG_CACHE_HOME": value}) == usual / "sandbox"


def test_status_files_never_go_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    Path("temporary").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")
    assert status_folder() == tmp_path / "temporary" / f"twinlog-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = status_folder()
    assert folder == tmp_path / "twinlog"
    assert folder.stat().st_mode & 0o777 == 0o700
