"""The file of `twinlog export` gets its name after it is complete, and replaces no other file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from twinlog.cli.commands.export import _write
from twinlog.errors import UsageError


def export(during: Callable[[], object] = list) -> Any:
    """Return an export without records. `during` is called while they are read."""

    def records() -> Iterator[None]:
        during()
        yield from ()

    return SimpleNamespace(records=records)


def test_a_folder_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many network file systems have no hard links."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    _write(export(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_appears_in_the_meantime_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="out already exists"):
        _write(export(lambda: out.write_text("mine")), out)
    assert out.read_text() == "mine"
