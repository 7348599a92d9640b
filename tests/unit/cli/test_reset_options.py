"""The options of `twinlog offsets reset` are checked before any broker is queried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import BASE, loader
from twinlog.cli.commands.offsets import warnings_of
from twinlog.cli.main import run
from twinlog.client.offset_reset import GroupReset, ResetOffset

GOAL = "--to-earliest"
GROUP = ("--group", "g")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join(BASE))
    return str(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*GROUP, "--to-timestamp", "soon"), '--to-timestamp: "soon" is not a time'),
        # seconds: as milliseconds, this would be a time in 1970, before every record
        (
            (*GROUP, "--to-timestamp", "1767225600"),
            "--to-timestamp: 1767225600 is not a plausible time",
        ),
        ((*GROUP, "--by-duration", "1h"), '--by-duration: "1h" is not a duration'),
        ((*GROUP, GOAL, "--to-latest"), "give one of --to-timestamp"),
        (GROUP, "give one of --to-timestamp"),
        ((GOAL,), "give --group NAME"),
        ((*GROUP, "--all", GOAL), "give --group NAME"),
        ((*GROUP, GOAL, "--topic", "a", "--topics", "a"), "give --topic or --topics"),
        ((*GROUP, GOAL, "--topics", "["), "--topics: [ is not a regular expression"),
        ((*GROUP, GOAL), "give --yes, or --dry-run"),
        (
            (*GROUP, GOAL, "--yes", "--cluster", "C"),
            "--cluster: no flow of the file has a cluster C",
        ),
        ((*GROUP, GOAL, "--yes", "--cluster", "B", "--flow", "A->B"), "--cluster or --flow"),
    ],
)
def test_invalid_options_are_one_line(
    file: str, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["offsets", "reset", file, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("before", "alias", "line", "is_written"),
    [
        (30, "B", "sync.group.offsets.enabled = true", True),
        (10, "B", "sync.group.offsets.enabled = true", False),  # moves the group forward
        (30, "A", "sync.group.offsets.enabled = true", False),
        (30, "B", "", False),
        (30, "B", "sync.group.offsets.enabled = true\ngroups.exclude = shop", False),
    ],
    ids=["back", "forward", "source", "no sync", "excluded"],
)
def test_a_sync_that_would_undo_it_is_reported(
    tmp_path: Path, before: int, alias: str, line: str, is_written: bool
) -> None:
    flows = loader(tmp_path)(line).flows
    one = ResetOffset(topic="A.orders", partition=0, before=before, after=20, start=0, end=99)
    plan = GroupReset(group="shop", offsets=(one,), topic_ids={})
    found = list(warnings_of(flows, alias, [plan]))
    assert bool(found) is is_written
    assert all("pause the flow first" in each and "move shop forward" in each for each in found)
