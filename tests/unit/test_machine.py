"""The cores and the memory that a process in a cgroup may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinlog.machine import memory_limit, usable_cores

GIBIBYTE = 1 << 30


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cgroup file of a process in /kube/pod, on a machine with 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    (tmp_path / "root" / "kube" / "pod").mkdir(parents=True)
    file = tmp_path / "cgroup"
    file.write_text("1:name=systemd:/other\n0::/kube/pod\n")
    return file


def test_without_limits_all_of_the_machine_is_usable(own: Path) -> None:
    root = own.parent / "root"
    for name in ("cpu.max", "memory.max"):
        (root / "kube" / name).write_text("max 100000\n" if name == "cpu.max" else "max\n")
    assert usable_cores(root, own) == 64
    assert memory_limit(root, own) is None
    assert usable_cores(root, own.parent / "missing") == 64


@pytest.mark.parametrize(
    ("quota", "cores"), [("200000", 2), ("150000", 2), ("50000", 1), ("6400000", 64)]
)
def test_a_cpu_quota_limits_the_cores(own: Path, quota: str, cores: int) -> None:
    root = own.parent / "root"
    (root / "kube" / "pod" / "cpu.max").write_text(f"{quota} 100000\n")
    assert usable_cores(root, own) == cores


def test_the_lowest_limit_of_all_cgroups_applies(own: Path) -> None:
    root = own.parent / "root"
    (root / "kube" / "memory.max").write_text(f"{GIBIBYTE}\n")
    (root / "kube" / "pod" / "memory.max").write_text(f"{2 * GIBIBYTE}\n")
    assert memory_limit(root, own) == GIBIBYTE


def test_in_a_container_the_limits_are_at_the_root(own: Path) -> None:
    root = own.parent / "root"
    own.write_text("0::/\n")
    (root / "cpu.max").write_text("300000 100000\n")
    (root / "memory.max").write_text(f"{GIBIBYTE}\n")
    assert (usable_cores(root, own), memory_limit(root, own)) == (3, GIBIBYTE)
