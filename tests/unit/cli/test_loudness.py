"""With -q, a command prints only warnings and errors. With -v, it prints more lines. Both options
work at any position in the command.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.properties import BASE
from tests.support.snapshots import flow, partition
from twinlog.cli.main import run
from twinlog.control.watch.status_file import StatusFile


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration with one line that causes a warning. No mirror of it runs."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join([*BASE, "no.such.key = 1"]))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        ["-q", "explain", "GAP_WRITTEN"],
        ["explain", "--quiet", "GAP_WRITTEN"],
        ["explain", "GAP_WRITTEN", "-q"],
        ["sandbox", "-q", "status"],
        ["sandbox", "status", "-q"],
        ["status", "-q"],
    ],
)
def test_quiet_says_nothing_where_nothing_is_wrong(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable in ("XDG_RUNTIME_DIR", "TWINLOG_SANDBOX"):
        monkeypatch.setenv(variable, str(tmp_path))
    nobody_knows = 3 if words[0] == "status" else 0
    assert run(words) == nobody_knows
    assert capsys.readouterr() == ("", "")
    assert run([one for one in words if one not in {"-q", "--quiet"}]) == nobody_knows
    assert capsys.readouterr().out


def test_quiet_check_prints_warnings_only(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", file, "--explain", "-q"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "warning"
    assert "no.such.key" in line


def test_quiet_status_prints_problems_only(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = partition("payments", state="FAILED", code="FOREIGN_DATA", message="not ours")
    StatusFile(Path(file)).write([flow(partition(), bad, state="PARTLY_FAILED")])
    assert run(["status", file, "-q"]) == 1
    assert capsys.readouterr().out == "A->B: payments-0: not ours [FOREIGN_DATA]\n"


def test_quiet_keeps_errors_and_output_for_programs(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "GAP_WRITEN", "-q"]) == 2
    assert "GAP_WRITTEN" in capsys.readouterr().err
    assert run(["explain", "GAP_WRITTEN", "-q", "--format", "json"]) == 0
    assert capsys.readouterr().out.startswith('{"command": "explain"')
    assert run(["convert", file, "-q"]) == 0
    assert "clusters = A,B" in capsys.readouterr().out.replace(", ", ",")


@pytest.mark.parametrize(
    "words", [["-q", "status", "-v"], ["-v", "status", "-q"], ["status", "-q", "-v"]]
)
def test_quiet_and_verbose_are_not_both(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert "give one of them" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-v", "check", "no.file"], ["check", "no.file", "-v"]])
@pytest.mark.parametrize("variable", ["TWINLOG_QUIET", "TWINLOG_CHECK_QUIET"])
def test_the_line_wins_over_the_environment(
    words: list[str],
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, "1")
    assert run(words) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_variable_makes_every_command_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_QUIET", "true")
    assert run(["explain", "GAP_WRITTEN"]) == 0
    assert capsys.readouterr() == ("", "")


def test_colours_are_left_out_on_request(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for words, has_colours in (
        (["check", file], True),
        (["--no-color", "check", file], False),
        (["check", file, "--no-color"], False),
    ):
        monkeypatch.setenv("NO_COLOR", "")
        run(words)
        assert bool(re.search("\x1b\\[[0-9;]*3[0-7]m", capsys.readouterr().out)) == has_colours, (
            words
        )
