"""docs/brokers.md has the same tested pairs of versions, and the same consequences of missing
features, as the code.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kafka_versions import SOURCES, TARGETS
from twinlog.survey.capabilities import Capabilities

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "brokers.md").read_text()
EVERYTHING = Capabilities(
    any_first_sequence=True,
    gap_refused=True,
    repeat_recognised=True,
    header_kept=True,
    producers_listed=True,
    epoch_end=True,
)
LOOSE = "at least once"
KNOWN = "exact while known"


def test_every_pair_that_is_run_is_in_the_table() -> None:
    heads = re.findall(r"target (\d+\.\d+\.\d+)", PAGE.split("\n## ")[0])
    rows = re.findall(r"^\| (\d+\.\d+\.\d+) (.*)\|$", PAGE, re.MULTILINE)
    assert tuple(heads) == TARGETS
    assert tuple(source for source, _ in rows) == SOURCES
    assert {cells.count("| exact ") for _, cells in rows} == {len(TARGETS)}


@pytest.mark.parametrize(
    ("lacks", "guarantee", "said"),
    [
        ("any_first_sequence", LOOSE, "begin at any sequence"),
        ("gap_refused", LOOSE, "gaps in the sequence are refused"),
        ("repeat_recognised", LOOSE, "repeated batches are recognized"),
        ("header_kept", KNOWN, "batch headers that are stored as written"),
        ("producers_listed", KNOWN, "DescribeProducers"),
        ("epoch_end", KNOWN, "the end offset of a leader epoch"),
    ],
)
def test_missing_capabilities_have_the_consequences_of_the_page(
    lacks: str, guarantee: str, said: str
) -> None:
    found = replace(EVERYTHING, **{lacks: False})
    assert (found.missing, found.guarantee) == ((lacks,), guarantee)
    (row,) = (line for line in PAGE.splitlines() if line.startswith("|") and said in line)
    assert f"`{guarantee}`" in row


def test_nothing_lacks() -> None:
    assert (EVERYTHING.missing, EVERYTHING.guarantee) == ((), "exact")


def test_untested_versions_are_marked_as_such() -> None:
    assert "## Other implementations (untested)" in PAGE
    page = (DOCS / "spark.md").read_text()
    parts = page.split("\n\n")
    (masters,) = (part for part in parts if "`--master k8s://" in part)
    assert "--master yarn" in masters
    assert "not tested" in masters
    (cluster,) = (at for at, part in enumerate(parts) if "k8s://https://HOST:6443" in part)
    after = " ".join(parts[cluster + 1].split())
    assert "The command for Kubernetes has not been tested on a cluster." in after
