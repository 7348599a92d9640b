"""Clusters of the sandbox are stopped by name, all or none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinlog.errors import UsageError
from twinlog.sandbox.brokers import LocalCluster
from twinlog.sandbox.registry import down, status


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two clusters whose brokers have ended."""
    for name in ("source", "target"):
        cluster = LocalCluster(name, tmp_path / name)
        (tmp_path / name).mkdir()
        cluster.ports = {1: {"PLAINTEXT": 1}}
        cluster._write_state()
    return tmp_path


def test_a_cluster_that_is_named_twice_is_stopped_once(folder: Path) -> None:
    assert [cluster.name for cluster in down(["source", "source"], folder)] == ["source"]
    assert [cluster.name for cluster in status(folder)] == ["target"]
    assert [cluster.name for cluster in down((), folder)] == ["target"]


def test_an_unknown_name_stops_no_cluster(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no cluster 'targte' in .*; known: source, target"):
        down(["source", "targte"], folder)
    assert [cluster.name for cluster in status(folder)] == ["source", "target"]
