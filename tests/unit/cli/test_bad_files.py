"""An invalid file causes one line per error, with the file and the line number, and exit code 2."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.properties import BASE
from twinlog.cli.commands.check import error_parts
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.errors import ConfigError

PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
SECRET = "s3cr3t-value"


@pytest.mark.parametrize("command", ["check", "mirror"])
@pytest.mark.parametrize(
    ("lines", "location", "what"),
    [
        (["A->B.topics = a("], "5: A->B.topics", "column 2: this ( is not closed"),
        (["twinlog.leases = 5"], "5: twinlog.leases", "no such key"),
        (
            ["emit.offset-syncs.enabled = false", "offset-syncs.topic.location = target"],
            "6: offset-syncs.topic.location",
            "there is no offset-syncs topic",
        ),
        (
            [
                "config.providers = file",
                f"config.providers.file.class = {PROVIDER}",
                "A.ssl.key.password = ${file:no-such-file:x}",
            ],
            "7: A.ssl.key.password",
            "cannot be read",
        ),
        (
            ["A.security.protocol = SSL", "ssl.truststore.location = no-such-file"],
            "6: ssl.truststore.location",
            "no-such-file cannot be read",
        ),
        (
            ["B.security.protocol = SSL", "B.producer.ssl.keystore.location = no-such-file"],
            "6: B.producer.ssl.keystore.location",
            "no-such-file cannot be read",
        ),
        (
            ["A.security.protocol = SASL_SSL", "A.sasl.mechanism = GSSAPI"],
            "6: A.sasl.mechanism",
            "'GSSAPI' is not supported",
        ),
        (
            [
                "A.security.protocol = SASL_SSL",
                "A.sasl.mechanism = PLAIN",
                f"A.sasl.jaas.config = {SECRET}",
            ],
            "7: A.sasl.jaas.config",
            "needs a control flag after the login module",
        ),
    ],
)
def test_one_line_with_its_place(
    command: str,
    lines: list[str],
    location: str,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    Path("mm2.properties").write_text("\n".join([*BASE, *lines]))
    arguments = ["--listen", "off"] if command == "mirror" else []
    assert run([command, "mm2.properties", *arguments]) == 2
    out, err = capsys.readouterr()
    if command == "check":
        verdict, line, *warnings = out.splitlines()
        assert verdict.startswith("NOT READY: mm2.properties: 1 error")
        assert line.split()[:3] == ["error", *location.split(": ")]
        assert all(one.startswith("warning") for one in warnings)
    else:
        # a mirror logs its warnings, with the time at the start of the line
        (line,) = [one for one in err.splitlines() if not re.match(r"warning: |.* WARNING ", one)]
        assert line.startswith(f"twinlog: mm2.properties:{location}")
    assert what in line
    assert SECRET not in out + err


def test_a_missing_setting_is_reported_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mm2.properties").write_text(
        "\n".join([*BASE, "A.security.protocol = SASL_PLAINTEXT", "A.sasl.mechanism = PLAIN"])
    )
    assert run(["check", "mm2.properties"]) == 2
    _, line, *_ = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["error", "-", "A.sasl.jaas.config"]


BAD = (
    "clusters = prod, dr",
    "prod.bootstrap.servers = a:9092",
    "prod->dr.enabled = true",
    "prod->DR.topics = a",
    "topics = a(",
    "twinlog.leese.seconds = 5",
    "refresh.topics.interval.seconds = 10m",
    "topics.blacklist = x",
    "twinlog.rpo.enforce = quota",
    "twinlog.rpo.seconds = abc",
    f"ssl.key.password = {SECRET}",
    "frobnicate = 1",
)
ERRORS = (
    (5, "topics", "column 2: this ( is not closed"),
    (6, "twinlog.leese.seconds", "did you mean twinlog.lease.seconds?"),
    (7, "refresh.topics.interval.seconds", "write 600"),
    (10, "twinlog.rpo.seconds", '"abc" is not a whole number'),
    (None, "dr.bootstrap.servers", "missing, and prod->dr needs it"),
)
"""The expected errors, with their line numbers. Line 9 has no error, although it needs a valid
value in line 10: only line 10 is reported.
"""


@pytest.fixture
def _bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    Path("bad.properties").write_text("\n".join(BAD))


@pytest.mark.usefixtures("_bad")
def test_all_errors_of_a_file_in_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "bad.properties"]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    verdict, *lines = out.splitlines()
    assert verdict == "NOT READY: bad.properties: 5 errors, 4 warnings; no cluster was queried"
    rows = [line.split(maxsplit=3) for line in lines]
    assert [row[0] for row in rows] == ["error"] * 5 + ["warning"] * 4
    for (line, key, what), (_, at, name, said) in zip(ERRORS, rows[:5], strict=True):
        assert (name, at) == (key, "-" if line is None else str(line))
        assert what in said
    assert [(row[1], row[2]) for row in rows[5:]] == [
        ("4", "prod->DR.topics"),
        ("8", "topics.blacklist"),
        ("11", "ssl.key.password"),
        ("12", "frobnicate"),
    ]
    assert SECRET not in out


@pytest.mark.usefixtures("_bad")
def test_other_commands_and_programs_get_all_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mirror", "bad.properties", "--listen", "off", "--format", "json"]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)["errors"]
    assert [(one["line"], one["key"]) for one in found] == [(line, key) for line, key, _ in ERRORS]
    lines = err.splitlines()
    for (line, key, what), said in zip(ERRORS, lines, strict=True):
        location = "" if line is None else f":{line}"
        assert said.startswith(f"twinlog: bad.properties{location}: {key}: ")
        assert what in said


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.usefixtures("_bad")
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load("bad.properties", environment={})
    shown = io.StringIO()
    console = Console(file=shown, width=width, force_terminal=True, color_system=None)
    for part in error_parts(caught.value):
        console.print(part)
    assert max(map(len, shown.getvalue().splitlines())) <= width
    joined = "".join(shown.getvalue().split())
    for _, key, _ in ERRORS:
        assert width < 80 or key in joined


def test_a_long_key_is_broken_after_dots() -> None:
    key = "spec.mirrors[0].sourceConnector.config.replication.factor"
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True, color_system=None)
    for part in error_parts(ConfigError("wrong", file="m.yaml", line=7, key=key)):
        console.print(part)
    rows = [line.split() for line in shown.getvalue().splitlines()[1:]]
    assert rows == [
        ["error", "7", "spec.mirrors[0].sourceConnector.", "wrong"],
        ["config.replication.factor"],
    ]


def test_a_wrong_provider_is_the_only_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A config provider is invalid. Its values are unknown, so no error that depends on them is
    reported.
    """
    monkeypatch.chdir(tmp_path)
    lines = [
        "clusters = A, B",
        "config.providers = x",
        "config.providers.x.class = NoSuchProvider",
        "bootstrap.servers = ${x:servers}",
        "A->B.enabled = true",
    ]
    Path("mm2.properties").write_text("\n".join(lines))
    assert run(["check", "mm2.properties"]) == 2
    verdict, line = capsys.readouterr().out.splitlines()
    assert verdict == "NOT READY: mm2.properties: 1 error; no cluster was queried"
    assert line.split()[:3] == ["error", "3", "config.providers.x.class"]


def test_a_flow_that_is_off_by_mistake_is_read_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [*BASE[:3], "A->B.enabled = true # yes", "refresh.topics.interval.seconds = x"]
    Path("mm2.properties").write_text("\n".join(lines))
    assert run(["status", "mm2.properties"]) == 2
    off, value = capsys.readouterr().err.splitlines()
    assert off.startswith("twinlog: mm2.properties:4: A->B.enabled: ")
    assert value.startswith("twinlog: mm2.properties:5: refresh.topics.interval.seconds: ")
