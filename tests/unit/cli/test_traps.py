"""Traps of Java's properties format cause warnings, and secrets are never printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from twinlog.cli.main import run

Said = Callable[..., str]

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'A.sasl.jaas.config = {MODULE} required username="me" password="s3cr3t-value";'


@pytest.fixture
def said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Said:
    """Return a function that returns a command's output for a file with these lines, which follow
    four others.
    """
    monkeypatch.setenv("COLUMNS", WIDE)

    def of(command: str, *lines: str) -> str:
        path = tmp_path / "mm2.properties"
        plain = ["clusters = A, B", "A->B.enabled = true"]
        plain += [f"{alias}.bootstrap.servers = 127.0.0.1:1" for alias in "AB"]
        path.write_text("\n".join([*plain, *lines]) + "\n")
        name, *options = command.split()
        run([name, str(path), *options])
        printed = capsys.readouterr()
        assert "s3cr3t-value" not in printed.out + printed.err
        return " ".join((printed.out + printed.err).split())

    return of


WIDE = "400"
"""A terminal width at which no name is broken into two lines."""

COMMANDS = ("check", "check --explain", "check --quiet")


@pytest.mark.parametrize(
    "line",
    [
        "B.value.converter.basic.auth.user.info = me:s3cr3t-value",
        "B.value.converter.schema.registry.url = https://me:s3cr3t-value@registry:8081",
        "A.sasl.oauthbearer.jwks.endpoint.url = https://me:s3cr3t-value@issuer",
    ],
)
def test_a_password_beside_a_user_is_hidden(said: Said, line: str) -> None:
    assert f"{line.partition(' ')[0]} = <hidden>" in said("check --explain", line)
    assert '"value": "<hidden>"' in said("check --explain --format json", line)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_backslash_that_vanishes(said: Said, command: str) -> None:
    text = said(command, r"topics = .*\.replica")
    assert re.search(r"\b5 topics\b.*\.\*\.replica.*\[BACKSLASH_DROPPED\]", text), text
    assert r"write \\." in text


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (LOGIN, "write A.security.protocol = SASL_SSL"),
        ("B.ssl.truststore.location = /t", "write B.security.protocol = SSL"),
    ],
    ids=["jaas", "truststore"],
)
def test_security_without_a_protocol(said: Said, command: str, line: str, wanted: str) -> None:
    text = said(command, line)
    assert "[NO_PROTOCOL]" in text
    assert wanted in text


@pytest.mark.parametrize("command", COMMANDS)
def test_secrets_in_the_file(said: Said, command: str) -> None:
    text = said(command, "A.security.protocol = SASL_SSL", "A.sasl.mechanism = PLAIN", LOGIN)
    assert "[SECRET_IN_FILE]" in text
    assert "write ${env:NAME}" in text


def test_advice_on_a_resource_is_in_its_own_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", WIDE)
    path = tmp_path / "mirror.yaml"
    path.write_text(
        """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mirror}
spec:
  connectCluster: B
  clusters:
    - {alias: A, bootstrapServers: "a:9092"}
    - {alias: B, bootstrapServers: "b:9092"}
  mirrors:
    - sourceCluster: A
      targetCluster: B
      topicsBlacklistPattern: x.*
      groupsPattern: "a["
      sourceConnector: {config: {replication.factor: many}}
"""
    )
    assert run(["check", str(path), "--explain"]) == 2
    text = "".join(capsys.readouterr())
    assert "spec.mirrors[0].topicsExcludePattern" in text
    assert "spec.mirrors[0].groupsPattern" in text
    assert re.search(
        r"spec\.mirrors\[0\]\.sourceConnector\. .*\n +config\.replication\.factor\n", text
    )
    assert "A->B" not in text
