"""How long a DataFrame waits for an unreachable cluster, and the message after that."""

from __future__ import annotations

import traceback

import pytest

from tests.support.peers import peer, refusing
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import AuthenticationFailed, Refused
from twinlog.records import connections
from twinlog.records.batch_reader import BatchReader
from twinlog.records.options import parse_options


def test_a_read_of_a_wrong_port_ends_before_a_job_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read from a wrong port fails with one line, without a traceback of this package. It fails
    after a shorter wait than a Spark job would.
    """
    asked: list[float] = []

    class Client(ClusterClient):
        def __init__(self, settings: ClusterSettings, *, refused_at_first_s: float) -> None:
            asked.append(refused_at_first_s)
            super().__init__(settings, refused_at_first_s=0.0)

    monkeypatch.setattr(connections, "ClusterClient", Client)
    monkeypatch.setattr(connections, "_kept", [])
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    reader = BatchReader(parse_options(given, is_stream=False), ["value"])
    with pytest.raises(Refused) as error:
        reader.partitions()
    assert asked == [connections.FIRST_REFUSED_S]
    assert str(error.value) == (
        "Kafka (127.0.0.1:1): connection refused; check kafka.bootstrap.servers and the network: "
        "probably no broker runs there, or its listener has another port [UNREACHABLE]"
    )
    shown = traceback.format_exception(error.value)
    assert "".join(shown).count("\n  File ") == 2, "the test and who plans"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_refused_login_names_the_option(monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    monkeypatch.setattr(connections, "_kept", [])
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    with peer(lambda sock: refusing(sock, error=0)) as port:
        given = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "subscribe": "orders",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
            'username="u" password="hunter2";',
        }
        reader = BatchReader(parse_options(given, is_stream=False), ["value"])
        with pytest.raises(AuthenticationFailed) as error:
            reader.partitions()
    message = error.value.message
    at = f"127.0.0.1:{port}"
    assert message.startswith(f"broker {at} of cluster {at}: the broker refused the login ")
    said = f"the login with {mechanism}: wrong login; check user and password in "
    assert f"{said}kafka.sasl.jaas.config" in message
    assert "hunter2" not in message


def test_a_task_waits_for_brokers_that_restart() -> None:
    options = parse_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}, is_stream=False
    )
    with connections.connected(options.cluster()) as client:
        away = Refused("nobody listens")
        assert client.retriable_now()(away)
        assert client.refused_s > 60
