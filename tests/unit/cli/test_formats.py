"""For every command that has both formats, --format yaml has the same structure as --format
json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.properties import BASE
from tests.support.snapshots import flow, partition
from twinlog.cli.main import run
from twinlog.cli.terminal.output import Answer, Envelope, Format
from twinlog.codes import PartitionState
from twinlog.control.watch.status_file import StatusFile


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration file in the working directory, and the status file of a mirror that runs it,
    with unusual names of other clients.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TWINLOG_SANDBOX", str(tmp_path / "sandbox"))
    Path("mm2.properties").write_text("\n".join([*BASE, "topics = orders"]))
    strange = {"no": "true", "\x1b[31m\u202e\n- a: b": "2026-11-23", "é" * 200: "a " * 100}
    parts = partition("null"), partition("1e3", state="FAILED", code="DIVERGED", message="x: y #")
    StatusFile(Path("mm2.properties")).write([flow(*parts, skipped_groups=strange)])


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "mm2.properties"],
        ["check", "mm2.properties", "--explain"],
        ["explain", "GAP_WRITTEN", "DIVERGED"],
        ["sandbox", "status"],
    ],
)
def test_yaml_has_the_content_of_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = run([*words, "--format", "json"])
    as_json = json.loads(capsys.readouterr().out)
    assert run([*words, "--format", "yaml"]) == code
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == as_json
    assert list(yaml.safe_load(text)) == list(as_json), "in the same order"
    assert text.isascii()
    assert "\x1b" not in text
    assert text.startswith("command: ")


def test_values_are_those_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    body = {"state": PartitionState.FAILED, "range": (1, 2), "none": None, "by": {1: 0.5}}
    for output in (Format.JSON, Format.YAML):
        Envelope(output, "c", Answer(body)).write(0)
    as_json, _, as_yaml = capsys.readouterr().out.partition("\n")
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
