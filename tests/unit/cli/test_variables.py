"""Options from the environment have the same effect as on the command line. Errors name the
variable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.properties import BASE
from twinlog.cli.main import run, twinlog
from twinlog.cli.options.option import Option


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join(BASE))
    return str(path)


def variables(group: click.Group, context: click.Context) -> Iterator[str]:
    """Yield the environment variable of every option of every command."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=context) as inner:
            for one in command.params:
                if isinstance(one, Option):
                    yield str(one.variable(inner))
            if isinstance(command, click.Group):
                yield from variables(command, inner)


def test_every_option_has_a_variable_of_its_own_and_none_that_means_something_else() -> None:
    with click.Context(twinlog, auto_envvar_prefix="TWINLOG") as context:
        found = Counter(variables(twinlog, context))
    assert [name for name, number in found.items() if number > 1] == []
    assert {
        "TWINLOG_MIRROR_LOG_FORMAT",
        "TWINLOG_MIRROR_LEASE_SECONDS",
        "TWINLOG_MIRROR_MAKER_CONSUMER_CONFIG",
        "TWINLOG_OFFSETS_RESET_TO_TIMESTAMP",
        "TWINLOG_FLOW_PAUSE_REASON",
        "TWINLOG_TOPIC_RELEASE_TOPICS",
    } <= set(found)
    others = {
        *("TWINLOG_CACHE", "TWINLOG_SANDBOX", "TWINLOG_PYTHON", "TWINLOG_PASSWORD"),
        *("TWINLOG_OLD_COMMAND", "TWINLOG_SASL_OAUTHBEARER_ALLOWED_URLS"),
    }
    assert others & set(found) == set()


def test_a_variable_is_the_option_and_the_line_wins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_EXPLAIN_FORMAT", "json")
    assert run(["explain", "GAP_WRITTEN"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "explain"
    assert run(["explain", "GAP_WRITTEN", "--format", "text"]) == 0
    assert capsys.readouterr().out.startswith("GAP_WRITTEN\n")
    monkeypatch.setenv("TWINLOG_EXPLAIN_FORMAT", "")
    assert run(["explain", "GAP_WRITTEN"]) == 0
    assert capsys.readouterr().out.startswith("GAP_WRITTEN\n")


@pytest.mark.parametrize("name", ["TWINLOG_EXPLAIN_OUTPUT", "TWINLOG_VERSION", "TWINLOG_HELP"])
def test_names_that_are_no_options_change_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "1.2.3")
    assert run(["explain", "GAP_WRITTEN"]) == 0
    assert capsys.readouterr().out.startswith("GAP_WRITTEN\n")


def explained(file: str, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Return the value and the origin of each key."""
    assert run(["check", file, "--explain", "--format", "json"]) == 0
    (flow,) = json.loads(capsys.readouterr().out)["explained"]
    return {one["key"]: (one["value"], one["file"]) for one in flow["keys"]}


def test_several_values_are_words_and_say_where_they_come_from(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_CHECK_SET", "replication.factor=1 'A->B.topics=a, b'")
    monkeypatch.setenv("TWINLOG_CHECK_LEASE_SECONDS", "9")
    monkeypatch.setenv("TWINLOG_CHECK_CLUSTERS", "B A")
    found = explained(file, capsys)
    assert found["replication.factor"] == ("1", "TWINLOG_CHECK_SET")
    assert found["A->B.topics"] == ("a, b", "TWINLOG_CHECK_SET")
    assert found["twinlog.lease.seconds"] == ("9", "TWINLOG_CHECK_LEASE_SECONDS")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TWINLOG_MIRROR_FORMAT", "xml", "'xml' is not one of"),
        ("TWINLOG_MIRROR_LANES", "0", "0 is not in the range"),
        ("TWINLOG_MIRROR_LANES", "2k", "'2k' is not a valid whole number"),
        ("TWINLOG_MIRROR_ONCE", "perhaps", "'perhaps' is not a valid boolean"),
        ("TWINLOG_MIRROR_LISTEN", "nowhere", "nowhere"),
        ("TWINLOG_MIRROR_LEASE_SECONDS", "0", "twinlog.lease.seconds: 0 is too"),
        ("TWINLOG_MIRROR_SET", "replication.factor=x", 'replication.factor: "x" is not a whole'),
        ("TWINLOG_MIRROR_SET", "topics", "write KEY=VALUE"),
        ("TWINLOG_MIRROR_SET", "'topics=a", "No closing quotation"),
        ("TWINLOG_MIRROR_CLUSTERS", "C", "C is not a cluster of the file"),
        ("TWINLOG_QUIET", "perhaps", "'perhaps' is not a valid boolean"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_variable(
    name: str,
    value: str,
    said: str,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert run(["mirror", file, "--log-file", f"{file}.log"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"twinlog: {name}")
    assert said in captured.err
    assert captured.err.endswith("]\n")
    assert captured.err.count("\n") == 1


def test_an_error_that_begins_with_a_flag_begins_with_its_variable(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_CHECK_CONNECTOR", "c")
    assert run(["check", file]) == 2
    error = "twinlog: TWINLOG_CHECK_CONNECTOR is only used with --adopt-mm2"
    assert capsys.readouterr().err.startswith(error)
    assert run(["check", file, "--connector", "c"]) == 2
    assert capsys.readouterr().err.startswith("twinlog: --connector is only used with")


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "value",
    [
        f"A.ssl.keystore.password={SECRET} replication.factor=x",
        f"A.ssl.keystore.password={SECRET} {SECRET}",
        f"'A.ssl.keystore.password={SECRET}",
        f"A.ssl.keystore.password={SECRET} no.such.key=1",
    ],
)
def test_secrets_of_variables_are_not_shown(
    value: str, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_CHECK_SET", value)
    for words in (["--explain"], ["--explain", "-v"], ["--explain", "--format", "json"]):
        run(["check", file, *words])
        captured = capsys.readouterr()
        assert captured.out or captured.err
        assert SECRET not in captured.out + captured.err


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TWINLOG_EXPLAIN_FORMATS", "TWINLOG_EXPLAIN_FORMAT"),
        ("TWINLOG_EXPLAIN_QIUET", "TWINLOG_EXPLAIN_QUIET"),
        ("TWINLOG_EXPLAIN_PASSWORD", None),
        ("TWINLOG_MIRROR_FORMATS", None),
    ],
)
def test_a_misspelt_variable_is_a_warning_without_its_value(
    name: str,
    near: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert run(["explain", "GAP_WRITTEN"]) == 0
    said = f"warning: {name} is no option of `twinlog explain`; did you mean {near}?\n"
    assert capsys.readouterr().err == (said if near else "")


def test_variables_of_mirror_maker_are_not_misspelt_ones_of_mirror(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_MIRROR_MAKER_LEASE_SECONDS", "9")
    monkeypatch.setenv("TWINLOG_MIRROR_LEASE_SECOND", "9")
    assert run(["mirror", file, "--listen", "nowhere"]) == 2
    warning, _ = capsys.readouterr().err.splitlines()
    assert "TWINLOG_MIRROR_LEASE_SECOND is" in warning


@pytest.mark.parametrize(
    "end", ["SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_9405_TCP", "PORT_9405_TCP_ADDR"]
)
def test_variables_that_kubernetes_makes_of_a_service_are_nobodys_options(
    end: str, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a service is named `twinlog-mirror`, Kubernetes sets variables in the pods next to it that
    look like Twinlog's options. They must be ignored.
    """
    monkeypatch.setenv(f"TWINLOG_MIRROR_{end}", "tcp://10.0.0.1:9405")
    assert run(["mirror", file, "--listen", "nowhere"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("twinlog: --listen")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the flow C->D, which is set as TWINLOG_CONFIG."""
    path = tmp_path / "named.properties"
    path.write_text("\n".join(BASE).replace("A", "C").replace("B", "D"))
    monkeypatch.setenv("TWINLOG_CONFIG", str(path))
    return path


@pytest.mark.usefixtures("config")
def test_a_variable_names_the_file_and_the_line_wins(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", "--explain"]) == 0
    assert capsys.readouterr().out.startswith("C->D: set in FILE")
    assert run(["check", file, "--explain"]) == 0
    assert capsys.readouterr().out.startswith("A->B: set in FILE")
    assert run(["flow", "pause", "--flow", "A->B"]) == 2
    assert "A->B is not a flow of the file, which has C->D" in capsys.readouterr().err


def test_the_variable_names_several_files(
    file: str, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_CONFIG", f"{file}:{config}")
    assert run(["check", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "A->B: set in FILE" in out
    assert "C->D: set in FILE" in out


@pytest.mark.usefixtures("config")
def test_files_of_mirror_maker_1_win_over_the_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer, producer = tmp_path / "c.properties", tmp_path / "p.properties"
    consumer.write_text("bootstrap.servers = e:1\ngroup.id = shop\n")
    producer.write_text("bootstrap.servers = f:1\n")
    pair = ["--consumer.config", str(consumer), "--producer.config", str(producer)]
    assert run(["convert", *pair, "--include", ".*"]) == 0
    out = capsys.readouterr().out
    assert "e:1" in out
    assert "C->D" not in out


def test_an_empty_variable_names_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLOG_CONFIG", "")
    assert run(["flow", "pause"]) == 2
    assert "Missing argument 'FILE'" in capsys.readouterr().err
