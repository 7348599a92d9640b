"""MirrorMaker 2's keys determine which groups a flow translates, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinlog.config.flow.schema import GroupsConfig
from twinlog.config.load import load


def read(tmp_path: Path, *lines: str) -> GroupsConfig:
    file = tmp_path / "mm2.properties"
    text = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
    file.write_text(text + "A->B.enabled = true\n" + "".join(f"{line}\n" for line in lines))
    (flow,) = load(file, environment={}).flows
    return flow.groups


@pytest.mark.parametrize(
    ("lines", "chosen", "left"),
    [
        (
            [],
            {"app", "a,b", "größe"},
            {"console-consumer-1", "connect-mirror", "__internal"},
        ),
        (["groups = app.*, billing"], {"app", "app-2", "billing"}, {"billing-2", "other"}),
        (["groups.exclude = test-.*"], {"app", "connect-x"}, {"test-1"}),
        (["groups = app.*", "A->B.groups.exclude = app-2"], {"app"}, {"app-2"}),
        (["groups ="], set(), {"app", ""}),
        (["groups.exclude ="], {"app", "__internal"}, {"__twinlog-1f.query"}),
        (["groups = __twinlog-.*"], set(), {"__twinlog-1f.query", "__twinlog-failback-A->B"}),
    ],
)
def test_the_filter(tmp_path: Path, lines: list[str], chosen: set[str], left: set[str]) -> None:
    groups = read(tmp_path, *lines)
    assert {name for name in chosen | left if groups.selects(name)} == chosen


def test_the_switches_and_their_defaults(tmp_path: Path) -> None:
    plain = read(tmp_path)
    assert (plain.refresh_s, plain.checkpoints_s, plain.sync_s) == (600, 60, None)
    on = read(
        tmp_path, "sync.group.offsets.enabled = true", "emit.checkpoints.interval.seconds = 5"
    )
    assert (on.checkpoints_s, on.sync_s) == (5, 60)
    never = read(
        tmp_path, "refresh.groups.enabled = false", "emit.checkpoints.interval.seconds = -1"
    )
    assert (never.refresh_s, never.checkpoints_s) == (None, None)
