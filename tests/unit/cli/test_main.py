"""Every way a command ends has its exit code, and errors are one line on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlog import __version__
from twinlog.cli.main import COMMANDS, run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"twinlog {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: twinlog {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["nope"], ["mirror"], ["mirror", "x", "--lanes", "0"], ["check", "x", "--format", "xml"]],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error" in captured.err


@pytest.mark.parametrize("command", ["mirror", "check", "status"])
def test_a_wrong_configuration_is_one_line_and_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\nA->B.enabled = true\n")
    assert run([command, str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("twinlog: ")
    assert captured.err.endswith("[CONFIG_INVALID]\n")
    assert captured.err.count("\n") == 1


def test_an_alias_that_the_file_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\nA->B.enabled = true\nbootstrap.servers = h:1\n")
    assert run(["mirror", str(file), "--clusters", "C"]) == 2
    assert "--clusters: C is no cluster of the file" in capsys.readouterr().err


def test_status_without_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(["status"]) == 0
    assert capsys.readouterr().out.startswith("no mirror runs here")
    assert run(["status", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "command": "status",
        "version": 1,
        "source": "mirror",
        "mirrors": [],
    }
