"""Connections to a real broker with every protocol and mechanism, and every rejection.

One broker has a listener for each case. Clients are configured with Java's keys, as users configure
them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from kafka.protocol.admin import AlterUserScramCredentialsRequest
from kafka.protocol.metadata import MetadataRequest

from tests.support.certificates import Issued, authority, shared_authority
from tests.support.eventually import PATIENCE_S
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_keys import load_security
from twinlog.errors import AuthenticationFailed, ClusterError, Disconnected, Fate, TwinlogError
from twinlog.java import archive_flags, class_archive
from twinlog.sandbox import QUICK_JVM
from twinlog.sandbox.brokers import KafkaNode, format_storage
from twinlog.sandbox.kafka_jars import find_or_fetch
from twinlog.sandbox.layout import (
    CONTROLLER,
    HOST,
    Listeners,
    free_ports,
    new_id,
    server_properties,
)

pytestmark = pytest.mark.broker

PASSWORD = 'p"ass\\ wörd,=;'
ODD_NAME = "a,b=c=2C"
LOCAL = ("localhost", HOST)
MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule"
SCRAM = f"{MODULES}.scram.ScramLoginModule"
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule"

PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SECURE": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker's ports by listener, and a folder with the clients' key stores."""

    ports: Mapping[str, int]
    folder: Path

    def settings(self, keys: Mapping[str, str], listener: str, host: str) -> ClusterSettings:
        return ClusterSettings(
            alias="A",
            bootstrap=((host, self.ports[listener]),),
            security=load_security(keys, where="test"),
            request_timeout_ms=15_000,
        )

    def ask(self, listener: str, keys: Mapping[str, str], request: object, host: str = HOST) -> Any:
        """Return the response to one request over a new connection."""
        settings = self.settings(keys, listener, host)
        with Connection.open(host, self.ports[listener], settings) as connection:
            return connection.request(request)

    def connect(self, listener: str, keys: Mapping[str, str], host: str = HOST) -> int:
        """Connect, and return the number of brokers in a Metadata response."""
        return len(self.ask(listener, keys, MetadataRequest(topics=[]), host).brokers)

    def refusal(self, listener: str, keys: Mapping[str, str], host: str = HOST) -> TwinlogError:
        with pytest.raises(TwinlogError) as caught:
            self.connect(listener, keys, host)
        assert PASSWORD not in caught.value.message
        return caught.value


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def login(mechanism: str, module: str, **options: str) -> dict[str, str]:
    values = " ".join(f"{name}={quoted(value)}" for name, value in options.items())
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {values};"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("secure")
    node = KafkaNode(node_id=1, folder=folder / "1")
    names = (*PROTOCOLS, CONTROLLER)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    listeners = Listeners(
        names=tuple(PROTOCOLS),
        protocols={**PROTOCOLS, CONTROLLER: "PLAINTEXT"},
        properties={**_broker_certificates(folder), **_broker_logins()},
    )
    node.write(server_properties(1, {1: ports}, listeners, node.data))
    jars = find_or_fetch()
    format_storage([node], new_id(), jars)
    node.spawn(jars, ["-Xmx256m", *QUICK_JVM, *archive_flags(class_archive(jars))])
    try:
        broker = Broker(ports=ports, folder=folder)
        _await(broker, node, "PLAINTEXT", {})
        _write_client_stores(folder)
        _add_scram_users(broker)
        last = login("SCRAM-SHA-512", SCRAM, username=ODD_NAME, password=PASSWORD)
        _await(broker, node, "OPEN", {**last, "security.protocol": "SASL_PLAINTEXT"})
        yield broker
    finally:
        node.process.end(patience=10)


def _broker_certificates(folder: Path) -> dict[str, str]:
    ca = shared_authority()
    served = {
        "tls": ca.issue("broker", hosts=LOCAL),
        "mtls": ca.issue("broker", hosts=LOCAL),
        "secure": ca.issue("broker", hosts=LOCAL),
        "expired": ca.issue("broker", hosts=LOCAL, days=(-9, -1)),
        "elsewhere": ca.issue("broker", hosts=["kafka.example.org"]),
    }
    properties = {"listener.name.mtls.ssl.client.auth": "required"}
    for name, issued in served.items():
        prefix = f"listener.name.{name}.ssl."
        store = folder / f"{name}.pem"
        store.write_text(issued.key_pem + issued.pem)
        properties[prefix + "keystore.type"] = "PEM"
        properties[prefix + "keystore.location"] = str(store)
    (folder / "ca.pem").write_text(ca.pem)
    properties["listener.name.mtls.ssl.truststore.type"] = "PEM"
    properties["listener.name.mtls.ssl.truststore.location"] = str(folder / "ca.pem")
    return properties


def _broker_logins() -> dict[str, str]:
    # JAAS supports octal escapes, so the encoding of the file does not matter
    password = quoted(PASSWORD).replace("ö", "\\366")
    properties = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"}
    for name in ("secure", "open"):
        prefix = f"listener.name.{name}."
        properties |= {
            prefix + "plain.sasl.jaas.config": f"{PLAIN} required user_alice={password};",
            prefix + "scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            prefix + "scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            prefix + "oauthbearer.sasl.jaas.config": (
                f'{OAUTH} required unsecuredLoginStringClaim_sub="broker";'
            ),
        }
    return properties


def _await(broker: Broker, node: KafkaNode, listener: str, keys: Mapping[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if broker.connect(listener, keys) == 1:
                return
        except ClusterError as error:
            if time.monotonic() > deadline or not node.process.alive:
                pytest.fail(f"the broker did not start: {error}\n{node.log_tail()}")
        time.sleep(0.2)


def _write_client_stores(folder: Path) -> None:
    ca = shared_authority()
    lock = BestAvailableEncryption(b"secret")
    (folder / "ca.p12").write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca.certificate, b"ca")], lock)
    )
    for name, issued in {
        "me": ca.issue("me"),
        "stranger": authority("Stranger").issue("me"),
        "late": ca.issue("me", days=(-9, -1)),
    }.items():
        (folder / f"{name}.p12").write_bytes(_p12(issued, lock))


def _p12(issued: Issued, lock: BestAvailableEncryption) -> bytes:
    return pkcs12.serialize_key_and_certificates(b"me", issued.key, issued.certificate, None, lock)


def _add_scram_users(broker: Broker) -> None:
    # one request for each user, because a request cannot change two users' credentials at once
    for number, name in ((1, "sha256"), (2, "sha512")):
        salted = hashlib.pbkdf2_hmac(name, PASSWORD.encode(), b"salt", 4096)
        row = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
        rows = [
            row(name=user, mechanism=number, iterations=4096, salt=b"salt", salted_password=salted)
            for user in ("alice", ODD_NAME)
        ]
        answer = broker.ask(
            "PLAINTEXT", {}, AlterUserScramCredentialsRequest(deletions=[], upsertions=rows)
        )
        assert [result.error_code for result in answer.results] == [0, 0]


@pytest.fixture
def trust(broker: Broker) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(broker.folder / "ca.p12"),
        "ssl.truststore.password": "secret",
    }


def identity(broker: Broker, name: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(broker.folder / f"{name}.p12"),
        "ssl.keystore.password": "secret",
    }


class TestTls:
    @pytest.mark.parametrize("host", LOCAL)
    def test_connects_with_a_pkcs12_truststore(
        self, broker: Broker, trust: dict[str, str], host: str
    ) -> None:
        assert broker.connect("TLS", trust, host) == 1

    @pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
    def test_connects_with_a_pem_truststore_and_either_version(
        self, broker: Broker, version: str
    ) -> None:
        keys = {
            "security.protocol": "ssl",
            "ssl.enabled.protocols": version,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(broker.folder / "ca.pem"),
        }
        assert broker.connect("TLS", keys) == 1

    def test_our_certificate_opens_a_listener_that_wants_one(
        self, broker: Broker, trust: dict[str, str]
    ) -> None:
        assert broker.connect("MTLS", trust | identity(broker, "me")) == 1

    @pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
    @pytest.mark.parametrize("name", [None, "stranger", "late"])
    def test_certificate_missing_or_refused(
        self, broker: Broker, trust: dict[str, str], name: str | None, version: str
    ) -> None:
        ours = {} if name is None else identity(broker, name)
        error = broker.refusal("MTLS", trust | ours | {"ssl.enabled.protocols": version})
        assert isinstance(error, AuthenticationFailed)
        assert "ssl.keystore" in error.message

    def test_wrong_authority(self, broker: Broker, trust: dict[str, str]) -> None:
        keys = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority("Other").pem,
        }
        error = broker.refusal("TLS", keys)
        assert isinstance(error, AuthenticationFailed)
        assert "ssl.truststore.* lacks the issuer" in error.message

    def test_authority_that_only_the_client_knows(self, broker: Broker) -> None:
        error = broker.refusal("TLS", {"security.protocol": "SSL"})
        assert "set A.ssl.truststore.location" in error.message

    def test_expired_certificate(self, broker: Broker, trust: dict[str, str]) -> None:
        error = broker.refusal("EXPIRED", trust)
        assert isinstance(error, AuthenticationFailed)
        assert "has expired" in error.message

    @pytest.mark.witness("a certificate of another host is refused")
    def test_certificate_of_another_host(self, broker: Broker, trust: dict[str, str]) -> None:
        error = broker.refusal("ELSEWHERE", trust)
        assert isinstance(error, AuthenticationFailed)
        assert f"is not for {HOST}" in error.message
        emptied = {"ssl.endpoint.identification.algorithm": ""}
        assert broker.connect("ELSEWHERE", trust | emptied) == 1

    def test_tls_to_a_plain_text_listener(self, broker: Broker, trust: dict[str, str]) -> None:
        error = broker.refusal("PLAINTEXT", trust)
        assert "security.protocol" in error.message

    def test_plain_text_to_a_tls_listener(self, broker: Broker) -> None:
        assert "so it is a TLS listener" in broker.refusal("TLS", {}).message


class TestSasl:
    @pytest.mark.witness("every SASL mechanism works")
    @pytest.mark.parametrize("listener", ["SECURE", "OPEN"])
    @pytest.mark.parametrize(
        "keys",
        [
            login("PLAIN", PLAIN, username="alice", password=PASSWORD),
            login("SCRAM-SHA-256", SCRAM, username="alice", password=PASSWORD),
            login("SCRAM-SHA-512", SCRAM, username="alice", password=PASSWORD),
            login("SCRAM-SHA-512", SCRAM, username=ODD_NAME, password=PASSWORD),
            login("OAUTHBEARER", OAUTH, unsecuredLoginStringClaim_sub="alice"),
        ],
        ids=["plain", "scram-256", "scram-512", "odd-name", "oauth"],
    )
    def test_every_mechanism(
        self, broker: Broker, trust: dict[str, str], listener: str, keys: dict[str, str]
    ) -> None:
        protocol = {"security.protocol": PROTOCOLS[listener]}
        assert broker.connect(listener, trust | keys | protocol) == 1

    @pytest.mark.parametrize(
        "keys",
        [
            login("PLAIN", PLAIN, username="alice", password="guess"),
            login("PLAIN", PLAIN, username="nobody", password=PASSWORD),
            login("SCRAM-SHA-256", SCRAM, username="alice", password="guess"),
            login("SCRAM-SHA-512", SCRAM, username="nobody", password=PASSWORD),
            login(
                "OAUTHBEARER",
                OAUTH,
                unsecuredLoginStringClaim_other="x",
                unsecuredLoginPrincipalClaimName="other",
            ),
        ],
        ids=["plain", "plain-user", "scram-256", "scram-512-user", "oauth"],
    )
    def test_refused(self, broker: Broker, trust: dict[str, str], keys: dict[str, str]) -> None:
        error = broker.refusal("SECURE", trust | keys | {"security.protocol": "SASL_SSL"})
        assert isinstance(error, AuthenticationFailed)
        assert error.fate is Fate.FATAL
        assert f"{HOST}:{broker.ports['SECURE']}" in error.message
        assert keys["sasl.mechanism"] in error.message
        assert "guess" not in error.message

    def test_sasl_where_the_listener_has_none(self, broker: Broker, trust: dict[str, str]) -> None:
        keys = login("PLAIN", PLAIN, username="alice", password=PASSWORD)
        error = broker.refusal("TLS", trust | keys | {"security.protocol": "SASL_SSL"})
        assert isinstance(error, AuthenticationFailed)
        assert "security.protocol" in error.message

    def test_no_sasl_where_the_listener_wants_it(
        self, broker: Broker, trust: dict[str, str]
    ) -> None:
        error = broker.refusal("SECURE", trust)
        assert isinstance(error, Disconnected)
