"""With `--format json`, every command prints exactly one object however it ends, including
errors.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from tests.support.json_schema import violations
from tests.support.properties import BASE
from twinlog.cli.main import run, twinlog
from twinlog.client import steering
from twinlog.cluster.client import ClusterClient
from twinlog.control.check import mirror_check, offline_status

SCHEMA: Final = json.loads(
    Path(__file__).parents[3].joinpath("docs/answer.schema.json").read_text()
)
MORE: Final = {
    ("topic", "skip"): ["orders", "--partition", "0", "--offset", "0"],
    ("topic", "demote"): ["--topics", "orders"],
    ("topic", "pause"): ["--topics", "orders"],
    ("topic", "promote"): ["--topics", "orders"],
    ("topic", "release"): ["--topics", "orders"],
    ("topic", "resume"): ["--topics", "orders"],
    ("flow", "demote"): ["--yes"],
    ("flow", "limit"): ["--bytes-per-second", "1024"],
    ("flow", "promote"): ["--yes"],
    ("offsets", "rebuild"): ["--yes"],
    ("failback", "run"): ["--tail", "keep", "--save", "x", "--yes"],
    ("switchover", "run"): ["--yes"],
    ("failover", "run"): ["--yes"],
    ("drill", "run"): ["--yes"],
    ("drill", "clean"): ["--yes"],
    ("repair", "run"): ["--yes"],
    ("offsets", "translate"): ["--group", "g"],
    ("offsets", "rewrite-checkpoint"): ["old", "new"],
    ("offsets", "reset"): ["--group", "g", "--to-earliest", "--yes"],
    ("export",): ["--topic", "orders", "--side", "target", "--output", "x"],
    ("mirror",): ["--listen", "off"],
    ("transform", "try"): ["--topic", "orders"],
}
"""Further arguments that a command needs, by command."""

CHECKPOINT: Final = {
    "metadata": "{}",
    "offsets/0": 'v1\n{}\n{"orders":{"0":3}}',
    "commits/0": "v1\n{}",
}


def _leaves(
    command: click.Command = twinlog, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _leaves(found, (*words, name))


LEAVES: Final = dict(_leaves())
WITH_FORMAT: Final = [
    words for words, one in LEAVES.items() if any("--format" in given.opts for given in one.params)
]
WITH_FILE: Final = [
    words
    for words in WITH_FORMAT
    if any(given.name in ("file", "files") for given in LEAVES[words].params)
    and words != ("support-bundle",)  # its bundle also contains invalid files
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in CHECKPOINT.items():
        file = tmp_path / "old" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    Path("bad.properties").write_text("\n".join([*BASE, "twinlog.leases = 5"]))


def _answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the object on stdout. It must be the only output, and must match the schema."""
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert violations(answer, SCHEMA) == []
    return answer


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--no-such-option", "--format", "json"]) == 2
    answer = _answer(capsys)
    assert (answer["command"], answer["ok"]) == (" ".join(words), False)
    (error,) = answer["errors"]
    assert error["code"] == "USAGE"
    assert "No such option" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["chekc", "--format", "json"], ""),
        (["--format", "json", "check"], ""),
        (["flow", "puase", "x", "--format=json"], "flow"),
        (["check", "--format", "json", "--format", "json"], "check"),
    ],
)
def test_a_command_line_that_is_not_understood(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    answer = _answer(capsys)
    assert (answer["command"], answer["ok"]) == (command, False)
    assert [error["code"] for error in answer["errors"]] == ["USAGE"]


@pytest.mark.parametrize("words", WITH_FILE, ids=" ".join)
def test_no_such_file(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "no.properties", *MORE.get(words, []), "--format", "json"]) == 2
    answer = _answer(capsys)
    assert (answer["command"], answer["ok"]) == (" ".join(words), False)
    (error,) = answer["errors"]
    assert error["code"] == "CONFIG_INVALID"
    assert (error["file"], error["line"], error["key"]) == ("no.properties", None, None)


@pytest.mark.parametrize("words", WITH_FILE, ids=" ".join)
def test_a_file_with_a_wrong_key(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "bad.properties", *MORE.get(words, []), "--format", "json"]) == 2
    (error,) = _answer(capsys)["errors"]
    assert (error["file"], error["line"]) == ("bad.properties", 5)
    assert (error["key"], error["code"]) == ("twinlog.leases", "CONFIG_INVALID")
    assert error["message"].startswith("no such key; did you mean twinlog.lease.seconds?")


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait half a second for a cluster instead of a minute."""
    begin = ClusterClient.__init__

    def begin_impatient(self: ClusterClient, *given: Any, **named: Any) -> None:
        begin(self, *given, **{**named, "api_timeout_s": 0.5})

    monkeypatch.setattr(ClusterClient, "__init__", begin_impatient)
    assert mirror_check.check.__kwdefaults__ is not None
    monkeypatch.setitem(mirror_check.check.__kwdefaults__, "gives_up_s", 0.5)
    for module in (offline_status, steering):
        monkeypatch.setattr(module, "GIVES_UP_S", 0.5)


RUN_ELSEWHERE: Final = (("mirror",), ("transform", "try"))
"""Commands that other tests run. The second one needs a file with transforms
(test_transforms.py).
"""


@pytest.mark.parametrize(
    "words", [one for one in WITH_FILE if one not in RUN_ELSEWHERE], ids=" ".join
)
@pytest.mark.usefixtures("_impatient")
def test_a_cluster_that_cannot_be_reached(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # without listening, so connections are refused
        at = f"127.0.0.1:{nobody.getsockname()[1]}"
        Path("mm2.properties").write_text("\n".join(BASE))
        file = Path("mm2.properties")
        file.write_text(file.read_text().replace("a:9092", at).replace("b:9092", at))
        assert run([*words, "mm2.properties", *MORE.get(words, []), "--format", "json"]) != 0
    answer = _answer(capsys)
    assert (answer["command"], answer["ok"]) == (" ".join(words), False)
    if words == ("doctor",):  # an unreachable cluster is a finding of this command
        (flow,) = answer["flows"]
        assert {one["cause"] for one in flow["findings"]} == {"unreachable"}
    else:
        assert {error["code"] for error in answer["errors"]} == {"UNREACHABLE"}


def test_the_variable_asks_for_it_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_OFFSETS_TRANSLATE_FORMAT", "json")
    assert run(["offsets", "translate", "no.properties"]) == 2
    assert _answer(capsys)["command"] == "offsets translate"
    assert run(["offsets", "translate", "no.properties", "--format", "text"]) == 2
    assert capsys.readouterr().out == ""


def test_yaml_and_words_after_a_double_dash(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "no.properties", "--format", "yaml"]) == 2
    assert yaml.safe_load(capsys.readouterr().out)["errors"][0]["file"] == "no.properties"
    assert run(["check", "--", "--format", "json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_bug_and_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, exit_code in (
        (ZeroDivisionError("x"), "INTERNAL", 1),
        (KeyboardInterrupt(), "INTERRUPTED", 130),
    ):

        def fail(*_: object, _error: BaseException = error, **__: object) -> None:
            raise _error

        monkeypatch.setattr(mirror_check, "check", fail)
        Path("mm2.properties").write_text("\n".join(BASE))
        assert run(["check", "mm2.properties", "--format", "json"]) == exit_code
        (found,) = _answer(capsys)["errors"]
        assert found["code"] == code


def test_an_answer_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "GAP_WRITTEN", "--format", "json"]) == 0
    answer = _answer(capsys)
    assert (answer["ok"], answer["errors"]) == (True, [])
    assert answer["codes"][0]["code"] == "GAP_WRITTEN"


@pytest.mark.parametrize("short", [["-o", "json"], ["-ojson"], ["-qo", "json"], ["-vojson"]])
def test_the_short_option_is_the_long_one(
    short: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "GAP_WRITTEN", *short]) == 0
    assert _answer(capsys)["codes"][0]["code"] == "GAP_WRITTEN"
    assert run(["explain", "--no-such-option", *short]) == 2
    assert _answer(capsys)["errors"][0]["code"] == "USAGE"


def test_help_stays_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "json", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: twinlog check")
