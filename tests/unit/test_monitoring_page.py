"""docs/monitoring.md names every series that is served, and no other series."""

from __future__ import annotations

import re
from pathlib import Path

from twinlog import metrics
from twinlog.cli.commands.mirror import DEFAULT_LISTEN

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "monitoring.md").read_text()


def rows(first: str) -> dict[str, list[str]]:
    """Return the cells of each table row, by the names in the row's first cell that start with
    `first`.
    """
    out = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.match(rf"`{first}", cells[0]):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                out[name] = cells[1:]
    return out


def test_every_series_of_twinlog_is_explained_with_kind_and_labels() -> None:
    expected = {m.name: (m.kind.value, ", ".join(m.labels)) for m in metrics.TWINLOG_METRICS}
    assert {name: (cells[0], cells[1]) for name, cells in rows("twinlog_").items()} == expected


def test_every_series_of_mirrormaker_is_explained() -> None:
    names = {m.name for m in metrics.MM2}
    expected = {n.removeprefix(metrics.MM2_SOURCE) for n in names if metrics.MM2_SOURCE in n}
    assert set(rows("(record|byte|replication)_")) == expected
    assert f"`{metrics.MM2_SOURCE}<name>`" in PAGE


def test_series_that_need_checkpoints_are_named() -> None:
    named = {n for m in metrics.MM2 if (n := m.name.removeprefix(metrics.MM2_CHECKPOINT)) != m.name}
    assert named == {f"checkpoint_latency_ms{end}" for end in ("", "_min", "_max", "_avg")}
    assert all(f"`{name}`" in PAGE for name in named)


def test_every_series_of_connect_is_named() -> None:
    assert [m.name for m in metrics.CONNECT if f"`{m.name}`" not in PAGE] == []


def test_the_address_is_the_one_that_is_served() -> None:
    assert f"http://{DEFAULT_LISTEN} serves /metrics, /healthz, /readyz" in PAGE
