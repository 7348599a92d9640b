"""The commands of the README's quick start run unchanged."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
QUICK_START = re.compile(r"<!-- quick start: [^>]*-->\n```sh\n(.*?)```", re.DOTALL)


def quick_start() -> str:
    (block,) = QUICK_START.findall((ROOT / "README.md").read_text())
    return str(block)


def test_it_is_about_twenty_lines() -> None:
    lines = [line for line in quick_start().splitlines() if line.strip()]
    assert 10 <= len(lines) <= 22


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that looks like a clone of the repository, with its own sandbox."""
    monkeypatch.setenv("TWINLOG_SANDBOX", str(tmp_path / "sandbox"))
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    setup = folder / "scripts" / "setup"
    setup.write_text(f'#!/bin/sh\nexec "{ROOT}/scripts/setup" "$@"\n')
    setup.chmod(0o755)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    yield folder
    subprocess.run([folder / ".venv/bin/twinlog", "sandbox", "down"], check=False)


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.xdist_group("commands")
@pytest.mark.skipif(not (ROOT / ".venv").exists(), reason="scripts/setup has not made .venv")
def test_the_quick_start_works_unchanged(clone: Path) -> None:
    done = subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", quick_start()],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    said = f"{done.stdout}\n--- stderr ---\n{done.stderr}"
    assert done.returncode == 0, said
    assert "\nREADY\n" in f"\n{done.stdout}", said
    counts = re.findall(r"^(orders|payments): ([\d,]+) records$", done.stdout, re.MULTILINE)
    total = sum(int(count.replace(",", "")) for _, count in counts)
    assert f"A->B: {total:,} records" in done.stdout, said
    assert done.stdout.count("AT_END") == 2, said
    assert "A: stopped, its data is removed" in done.stdout, said
