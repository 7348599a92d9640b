"""A file that cannot run is one line with file and line number and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import BASE
from twinlog.cli.main import run

PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
SECRET = "s3cr3t-value"


@pytest.mark.parametrize("command", ["check", "mirror"])
@pytest.mark.parametrize(
    ("lines", "place", "what"),
    [
        (["A->X.topics = a"], "5: A->X.topics", "X is no cluster"),
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
            "has a control flag after the login module",
        ),
    ],
)
def test_one_line_with_its_place(
    command: str,
    lines: list[str],
    place: str,
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
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"twinlog: mm2.properties:{place}")
    assert what in line
    assert SECRET not in line


def test_what_is_missing_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mm2.properties").write_text(
        "\n".join([*BASE, "A.security.protocol = SASL_PLAINTEXT", "A.sasl.mechanism = PLAIN"])
    )
    assert run(["check", "mm2.properties"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("twinlog: mm2.properties: A.sasl.jaas.config: ")
