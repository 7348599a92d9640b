"""Another user cannot redirect the archive for executors by links, because existing links are not
followed.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from twinlog.errors import EnvironmentMissing
from twinlog.spark import pack as module
from twinlog.spark.pack import pack


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack only a single file instead of all installed packages."""
    monkeypatch.setattr(module, "_files", lambda _names: iter([("a.py", Path(__file__))]))


def test_a_link_beside_it_is_not_written_through(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "executors.zip"
    victim.write_text("precious")
    (tmp_path / "executors.zip.partial").symlink_to(victim)
    made = pack(path)
    assert victim.read_text() == "precious"
    assert zipfile.ZipFile(made.path).namelist() == ["a.py"]


def test_it_replaces_an_existing_file_and_leaves_no_other(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "executors.zip"
    victim.write_text("precious")
    path.symlink_to(victim)
    mask = os.umask(0o022)
    try:
        pack(path)
    finally:
        os.umask(mask)
    assert victim.read_text() == "precious"
    assert {one.name for one in tmp_path.iterdir()} == {"victim", "executors.zip"}
    assert path.stat().st_mode & 0o777 == 0o644, "executors of other users read it"


def test_equal_contents_are_equal_archives(tmp_path: Path) -> None:
    first, second = (pack(tmp_path / name).path.read_bytes() for name in ("one.zip", "two.zip"))
    assert first == second


def test_a_folder_that_takes_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match=r"cannot be written.*--output"):
        pack(tmp_path / "missing" / "executors.zip")


def test_modules_of_the_http_server_are_not_packed() -> None:
    needed = module._requirements_of("twinlog")
    assert {"cramjam", "kafka-python"} <= needed
    assert needed & {"pydantic", "starlette", "uvicorn", "h11"} == set()
