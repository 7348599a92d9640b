"""The state topic's rows that note which topics have transforms, without brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.driver import plan_of
from tests.support.properties import flow_of, loader
from twinlog.cluster.client import ClusterClient
from twinlog.config.flow.transforms import TransformsConfig
from twinlog.config.values.renames import RemoteName
from twinlog.control.flow import noted_transforms
from twinlog.control.flow.noted_transforms import note_transforms, with_noted_transforms
from twinlog.errors import CorruptData
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.transformed import TransformedTopics

FLOW = "A->B"
TARGET = cast("ClusterClient", None)


class Log:
    """The rows of an in-memory state topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        rows = SimpleNamespace(of=lambda *_: self.rows)
        monkeypatch.setattr(noted_transforms, "state_rows", lambda _: rows)
        monkeypatch.setattr(noted_transforms, "append_rows", self._append)

    def _append(self, *call: Any) -> None:
        self.rows += call[2]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def transforms(folder: Path, *lines: str) -> TransformsConfig:
    return flow_of(loader(folder)(*lines)).transforms


def hiding(folder: Path) -> TransformsConfig:
    key = "A->B.twinlog.transforms"
    lines = ("= hide", ".hide.topics = pay.*", ".hide.function = privacy:hide")
    return transforms(folder, *(f"{key}{line}" for line in lines))


def plans(*topics: str) -> list[PartitionPlan]:
    return [plan_of(0, topic) for topic in topics]


def test_each_transform_is_noted_once(log: Log, tmp_path: Path) -> None:
    for _ in range(2):
        note_transforms(TARGET, FLOW, hiding(tmp_path))
    assert len(log.rows) == 1


def test_only_topics_that_another_file_transforms_are_refused(log: Log, tmp_path: Path) -> None:
    note_transforms(TARGET, FLOW, hiding(tmp_path))
    orders, payments = with_noted_transforms(
        TARGET, FLOW, transforms(tmp_path), plans("orders", "payments")
    )
    assert orders.refusal is None
    assert payments.refusal is not None
    assert payments.refusal.code == "TRANSFORMS_DIFFER"


def test_topic_with_another_transform_is_copied_with_that_one(log: Log, tmp_path: Path) -> None:
    """A file without this transform may also be the newer one."""
    note_transforms(TARGET, FLOW, hiding(tmp_path))
    (own,) = plans("payments")
    own = replace(own, transform="ab")
    assert with_noted_transforms(TARGET, FLOW, transforms(tmp_path), [own]) == [own]


def test_expression_that_cannot_be_read_is_an_error_of_its_row(log: Log, tmp_path: Path) -> None:
    row = TransformedTopics(
        flow=FLOW, entries=("pay(",), compares=RemoteName(), is_negated=False, at_ms=1
    )
    log.rows.append(row.encode())
    with pytest.raises(CorruptData, match="transformed"):
        with_noted_transforms(TARGET, FLOW, transforms(tmp_path), plans("orders"))
