"""Every way in which a command can end has its own exit code. Errors are one line on stderr."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S
from tests.support.properties import BASE
from twinlog import __version__
from twinlog.cli.main import COMMANDS, run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"twinlog {__version__}\n"


def test_help_names_the_page_with_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    page = "docs/glossary.md"
    assert page in capsys.readouterr().out
    said = (Path(__file__).parents[3] / page).read_text(encoding="utf-8").lower()
    words = ("flow", "lane", "lease", "generation", "leader", "standby")
    assert [word for word in words if f"**{word}**" not in said] == []


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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("chekc", "; did you mean check?"),
        ("mirror_maker", "; did you mean mirror-maker?"),
        ("x", ""),
    ],
)
def test_misspelt_command_names_the_nearest(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name]) == 2
    assert f"Error: No such command {name!r}{hint}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["flow", "puase", "x"], "No such command 'puase'; did you mean pause?"),
        (["topic", "relaese"], "No such command 'relaese'; did you mean release?"),
        (["offsets", "tranlsate"], "No such command 'tranlsate'; did you mean translate?"),
        (
            ["sandbox", "xyz"],
            "No such command 'xyz'; `twinlog sandbox` has down, fill, status, up\n",
        ),
        (
            ["groups", "mm2.properties"],
            "No such command 'mm2.properties'; `twinlog groups` has ready\n",
        ),
    ],
)
def test_misspelt_command_of_a_group_names_the_nearest(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert f"Error: {hint}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["mirror", "x", "--lnaes", "3"], "--lanes"),
        (["flow", "pause", "x", "--reson", "y"], "--reason"),
        (["--verbos"], "--verbose"),
    ],
)
def test_misspelt_option_names_the_nearest(
    words: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert re.search(rf"(Did you mean|Possible options).*{near}\b", capsys.readouterr().err)


@pytest.mark.parametrize(
    "words", ["status x --topic", "offsets rebuild x --yes --topics", "diff x --topics"]
)
@pytest.mark.parametrize("expression", ["(", "a{99999999999}", "(" * 5000])
def test_an_expression_that_cannot_be_compiled_is_wrong_usage(
    words: str, expression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words.split(), expression]) == 2
    assert re.search("(not a|no) regular expression: ", capsys.readouterr().err)


@pytest.mark.parametrize("option", ["--offset", "--partition"])
def test_translate_refuses_options_without_effect(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["offsets", "translate", "no.properties", "--group", "g", option, "3"]
    assert run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "so it excludes --offset and --partition" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["-v", "check", "no.properties"],
        ["check", "-v", "no.properties"],
        ["check", "no.properties", "--verbose"],
        ["offsets", "-v", "translate", "no.properties", "--group", "g"],
        ["offsets", "translate", "no.properties", "--group", "g", "-v"],
    ],
)
def test_verbose_before_and_after_the_command_shows_the_traceback(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "Traceback" in capsys.readouterr().err
    assert run([one for one in arguments if one not in ("-v", "--verbose")]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["mirror", "status", "diff"])
def test_a_wrong_configuration_is_a_line_for_each_error_and_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\nA->B.enabled = true\n")
    assert run([command, str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for alias, line in zip("AB", captured.err.splitlines(), strict=True):
        assert line.startswith(f"twinlog: {file}: {alias}.bootstrap.servers: missing")
        assert line.endswith("[CONFIG_INVALID]")


def test_an_alias_that_the_file_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\nA->B.enabled = true\nbootstrap.servers = h:1\n")
    assert run(["mirror", str(file), "--clusters", "C"]) == 2
    assert "--clusters: C is not a cluster of the file" in capsys.readouterr().err


def test_status_without_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(["status"]) == 3
    assert capsys.readouterr().out.startswith("no mirror runs here")
    assert run(["status", "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out) == {
        "command": "status",
        "version": 2,
        "ok": False,
        "errors": [],
        "source": "mirror",
        "mirrors": [],
        "totals": {
            **dict.fromkeys(("flows", "topics", "partitions"), 0),
            **dict.fromkeys(("lag", "lag_ms", "copied", "records_per_s"), None),
        },
    }


def test_a_character_that_the_locale_lacks_is_escaped(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("\n".join([*BASE, "A->B.name = \\u20ac"]))
    done = subprocess.run(
        [sys.executable, "-m", "twinlog", "check", "--explain", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u20ac" in done.stdout


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("words", ["convert FILE", "explain GAP_WRITTEN"])
def test_output_that_cannot_be_written_is_an_error_of_one_line(
    words: str, is_buffered: bool, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("\n".join(BASE))
    command = [sys.executable, "-m", "twinlog", *words.replace("FILE", str(file)).split()]
    buffered = {"PYTHONUNBUFFERED": "" if is_buffered else "1"}

    def ended(stdout: int) -> tuple[int, str]:
        done = subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env={**os.environ, **buffered},
        )
        os.close(stdout)
        return done.returncode, done.stderr

    reader, writer = os.pipe()
    os.close(reader)
    assert ended(writer) == (1, "")
    assert ended(os.open("/dev/full", os.O_WRONLY)) == (
        1,
        "twinlog: output cannot be written: No space left on device; make room on its disk "
        "[ENVIRONMENT]\n",
    )


@pytest.mark.parametrize("words", [[], ["check"], ["offsets"], ["offsets", "reset"]])
def test_help_of_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    expected = capsys.readouterr().out
    assert expected.startswith(" ".join(["Usage: twinlog", *words]))
    assert run(["help", *words]) == 0
    assert capsys.readouterr().out == expected


def test_help_of_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "chekc"]) == 2
    assert "did you mean check?" in capsys.readouterr().err


def test_help_waits_for_nothing_that_it_does_not_need() -> None:
    script = "import sys; from twinlog.cli.main import run; run(['--help']); print(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "click" in loaded
    heavy = {
        "pyspark",
        "py4j",
        "kafka",
        "yaml",
        "cryptography",
        "prometheus_client",
        "rich",
        "msgspec",
    }
    assert loaded & heavy == set()
    assert "click.shell_completion" not in done.stdout
