"""`twinlog explain` prints the catalog of codes, for a terminal and for scripts."""

from __future__ import annotations

import json

import pytest

from twinlog.cli.main import run
from twinlog.codes import conditions


def test_every_code_is_explained_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", *conditions()]) == 0
    out = capsys.readouterr().out
    assert set(conditions()) <= set(out.split())
    assert not [mark for mark in ("`", "](", "**") if mark in out]


def test_a_code_as_written_in_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "[no_leader]", "USAGE"]) == 0
    out = capsys.readouterr().out
    assert (
        "NO_LEADER\n  what happened: a partition of the source or the target has no leader" in out
    )
    assert "retried automatically, with increasing pauses" in out
    assert out.count("resumes:") == 1


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "GAP_WRITTEN", "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["codes"]
    assert one["code"] == "GAP_WRITTEN"
    assert one["retry"] == "within 30 s"
    assert "twinlog export" in one["advice"]


def test_an_unknown_code_is_answered_with_similar_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "SOURCE_TRUNCATE"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        "SOURCE_TRUNCATE is not a Twinlog code; similar codes are SOURCE_TRUNCATED" in captured.err
    )
