"""The remote topics of a repair plan, without brokers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.support.properties import flow_of, loader
from tests.support.settings import settings_for
from twinlog.client import repair, steering
from twinlog.client.repair import TopicRepair
from twinlog.mirror.state.published import Unusual
from twinlog.model import TopicPartition

STOPPED = Unusual(topic="orders", partition=3, state="FAILED", code="DIVERGED", message="")


def test_remote_topic_has_the_configured_alias_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(is_current=lambda _: True, unusual=(STOPPED,))
    monkeypatch.setattr(repair, "leader_status", lambda *_: status)
    for name in ("map_reader", "state_rows", "producers_of"):
        monkeypatch.setattr(repair, name, MagicMock())
    for name in ("FlowSteering", "prompt_client"):
        monkeypatch.setattr(steering, name, MagicMock())
    config = flow_of(loader(tmp_path)("A->B.source.cluster.alias = east"))
    made = TopicRepair(config, settings_for("a:1"), settings_for("b:1", "B"), "")

    (line,) = made.plan(None)

    assert line.source == TopicPartition("orders", 3)
    assert line.target == TopicPartition("east.orders", 3)
