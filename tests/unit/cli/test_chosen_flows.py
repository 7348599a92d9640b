"""The option `--flow` of the commands that write intents."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinlog.cli.commands.steer import _chosen
from twinlog.config.load import load
from twinlog.errors import UsageError

FILE = (
    "clusters = A, B, eu.1\n"
    "A.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\neu.1.bootstrap.servers = c:1\n"
    "A->B.enabled = true\nB->A.enabled = true\neu.1->B.enabled = true\n"
)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), ["A->B", "B->A", "eu.1->B"]),
        (("A->B",), ["A->B"]),
        (("A -> B", "A->B"), ["A->B"]),
        ((".*->B",), ["A->B", "eu.1->B"]),
        (("B->A", "e.*"), ["B->A", "eu.1->B"]),
        (("A:B",), ["A->B"]),
        ((".*:B", "A : B"), ["A->B", "eu.1->B"]),
    ],
    ids=str,
)
def test_flows_are_named_or_match(
    tmp_path: Path, names: tuple[str, ...], expected: list[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    found = _chosen(load(file, environment={}).flows, names)
    assert sorted(str(one.flow) for one in found) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [("A", "is not a flow of the file, which has "), ("(", "is no regular expression: ")],
)
def test_a_pattern_without_a_match_is_refused(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    with pytest.raises(UsageError, match=f"--flow: .* {said}"):
        _chosen(load(file, environment={}).flows, (name,))
