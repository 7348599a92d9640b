"""The configuration is read again: the changes that are found, and what happens if a file cannot be
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.properties import BASE
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.load import load
from twinlog.control.process.reload import Reloader
from twinlog.errors import ConfigError, TwinlogError


class Rereading:
    """A file, its reloader, and the configurations that were adopted so far."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mm2.properties"
        self.write("A->B.topics = orders")
        self.has_bug = False
        self.adopted: list[MirrorConfig] = []
        self.reloader = Reloader(
            self.read(), read=self.read, setup=self.setup, adopted=self.adopted.append
        )

    def read(self) -> MirrorConfig:
        if self.has_bug:
            raise ZeroDivisionError
        return load(self.path, environment={})

    def write(self, *lines: str) -> None:
        self.path.write_text("\n".join([*BASE, *lines, ""]))

    def setup(self, flow: FlowConfig) -> Any:
        return str(flow.flow)


def names(setups: Iterable[object]) -> list[str]:
    return [str(one) for one in setups]


@pytest.fixture
def this(tmp_path: Path) -> Rereading:
    return Rereading(tmp_path)


def test_differences_are_reported_by_flow(this: Rereading) -> None:
    this.write("A->B.topics = payments", "B->A.enabled = true")
    found = this.reloader.read()
    assert (names(found.changed), names(found.added)) == (["A->B"], ["B->A"])
    assert 'A->B: A->B.topics: "orders" -> "payments"' in found.lines
    assert [len(config.flows) for config in this.adopted] == [2]
    this.write("A->B.topics = payments")
    assert this.reloader.read().removed == {"B->A"}
    assert this.reloader.read().lines == ()


@pytest.mark.parametrize("is_bug", [False, True])
def test_an_unreadable_file_changes_nothing(
    this: Rereading, caplog: pytest.LogCaptureFixture, is_bug: bool
) -> None:
    this.write("A->B.topics = orders-(")
    this.has_bug = is_bug
    with pytest.raises(TwinlogError if is_bug else ConfigError):
        this.reloader.read()
    assert "the configuration was not reloaded, everything stays as it is" in caplog.text
    assert this.adopted == []
    this.has_bug = False
    this.write("A->B.topics = payments")
    assert names(this.reloader.read().changed) == ["A->B"]


def test_files_are_new_once_and_not_while_they_are_replaced(this: Rereading) -> None:
    assert not this.reloader.has_new_files()
    this.path.unlink()
    assert not this.reloader.has_new_files()
    this.write("A->B.topics = payments")
    assert this.reloader.has_new_files()
    assert not this.reloader.has_new_files()
    this.write("A->B.topics = refunds")
    this.reloader.read()
    assert not this.reloader.has_new_files(), "these were read already"
