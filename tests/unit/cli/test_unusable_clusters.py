"""What commands and a mirror print if a cluster rejects the login or does not exist."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mirror import Mirror
from tests.support.peers import peer, refusing
from twinlog.cli.main import run

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture
def refusing_port() -> Iterator[int]:
    with peer(lambda sock: refusing(sock, error=0)) as port:
        yield port


@pytest.fixture
def file(tmp_path: Path, refusing_port: int) -> Path:
    """A configuration in which cluster A rejects the login, and no process listens at B's
    address.
    """
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{refusing_port}\n"
        "B.bootstrap.servers = 127.0.0.1:1\nA.security.protocol = SASL_PLAINTEXT\n"
        "A.sasl.mechanism = SCRAM-SHA-512\n"
        f'A.sasl.jaas.config = {SCRAM} required username="u" password="hunter2";\n'
        "A->B.enabled = true\ntopics = orders\n"
    )
    return path


def refused_login(port: int, file: Path) -> str:
    return (
        f"broker 127.0.0.1:{port} of cluster A: the broker refused the login with SCRAM-SHA-512: "
        f"wrong login; check user and password in A.sasl.jaas.config ({file}:6), and that the user "
        "has credentials of this mechanism on this cluster (kafka-configs.sh --describe "
        "--entity-type users) [AUTHENTICATION_FAILED]"
    )


def not_there(file: Path) -> str:
    return (
        f"B (127.0.0.1:1): connection refused; check B.bootstrap.servers ({file}:3) and the "
        "network: probably no broker runs there, or its listener has another port [UNREACHABLE]"
    )


def test_check_names_both(
    file: Path, refusing_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"not reached: {refused_login(refusing_port, file)}" in lines
    assert f"not reached: {not_there(file)}" in lines


COMMANDS = {"diff": "A", "offsets translate --group g": "A", "status": "B", "verify": "B"}


@pytest.mark.parametrize(("command", "cluster"), COMMANDS.items())
def test_commands_name_the_cluster_that_they_query_first(
    file: Path,
    refusing_port: int,
    capsys: pytest.CaptureFixture[str],
    command: str,
    cluster: str,
) -> None:
    assert run([*command.split(), str(file)]) > 0
    out, err = capsys.readouterr()
    said = refused_login(refusing_port, file) if cluster == "A" else not_there(file)
    assert said in out + err
    assert "hunter2" not in out + err


@pytest.mark.parametrize("first", ["A", "B"])
def test_a_mirror_names_it_in_its_log_and_in_its_status(
    file: Path,
    refusing_port: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    monkeypatch.setattr("twinlog.control.flow.managed_flow.ONCE_GIVES_UP_S", 1.0)
    monkeypatch.setattr("twinlog.control.flow.flow_setup.REACHED_WITHIN_S", 0.2)
    said = not_there(file)
    if first == "A":
        text = file.read_text().replace("127.0.0.1:1\n", f"127.0.0.1:{refusing_port}\n")
        file.write_text(text.replace("A.s", "s"))
        said = refused_login(refusing_port, file).replace("A.sasl", "sasl")
        said = said.replace("of cluster A", "of cluster B")
    with caplog.at_level(logging.WARNING), Mirror(file, once=True) as mirror:
        (flow,) = mirror.wait()
    text = f"{flow.reason} {' '.join(map(str, mirror.supervisor.errors))} {caplog.text}"
    assert said.partition(" [")[0] in text, text


@pytest.mark.parametrize("command", ["mirror", "verify"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--master spark://127.0.0.1:1", "[SPARK_UNAUTHENTICATED]"),
        ("--master 127.0.0.1:1", '"127.0.0.1:1" is not a Spark master'),
        ("--master yarn --archive nosuch.zip", "create it with `twinlog pack`"),
    ],
)
def test_a_spark_that_cannot_be_used_is_refused_before_clusters_are_queried(
    file: Path,
    command: str,
    options: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(file.parent))
    queries: list[socket.socket] = []
    with peer(queries.append) as port:
        file.write_text(
            f"clusters = A, B\nbootstrap.servers = 127.0.0.1:{port}\nA->B.enabled = true\n"
        )
        assert run([command, str(file), *options.split()]) == 2
    assert said in capsys.readouterr().err
    assert not queries


@pytest.mark.parametrize("is_in_jaas", [True, False])
def test_a_token_endpoint_that_is_not_there(
    file: Path,
    refusing_port: int,
    capsys: pytest.CaptureFixture[str],
    *,
    is_in_jaas: bool,
) -> None:
    """The token endpoint does not exist, but the brokers respond. The message names the endpoint
    and not the brokers' addresses.
    """
    endpoint, key = "http://127.0.0.1:1/token", "sasl.oauthbearer.token.endpoint.url"
    handler = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
    login, more = 'clientId="c" clientSecret="hunter2"', f"A.{key} = {endpoint}"
    if is_in_jaas:
        login = 'oauth.client.id="c" oauth.client.secret="hunter2" '
        login += f'oauth.token.endpoint.uri="{endpoint}"'
        key, more = "sasl.jaas.config", f"A.sasl.login.callback.handler.class = {handler}"
    file.write_text(
        f"clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{refusing_port}\n"
        "B.bootstrap.servers = 127.0.0.1:1\nA->B.enabled = true\n"
        "A.security.protocol = SASL_PLAINTEXT\nA.sasl.mechanism = OAUTHBEARER\n"
        f"{more}\nA.sasl.jaas.config = {OAUTH} required {login};\n"
    )
    assert run(["check", str(file), "--timeout", "1"]) == 1
    assert (
        f"not reached: A (127.0.0.1:{refusing_port}): the token endpoint {endpoint} does not "
        "respond: [Errno 111] Connection refused; "
        f"check A.{key} ({file}:{8 if is_in_jaas else 7}) and the network [UNREACHABLE]"
    ) in capsys.readouterr().out.splitlines()
