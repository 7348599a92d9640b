"""Kafka's own Java client connects to secured sandbox clusters with the keys that the sandbox
provides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.support.client import Outgoing, produce, read_all
from tests.support.sandbox_security import SandboxSecurity
from tests.support.topics import allow, create_topic
from twinlog.errors import UsageError
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.sandbox.layout import STATE_FILE

pytestmark = pytest.mark.broker

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def secure() -> Iterator[LocalCluster]:
    security = SandboxSecurity(
        listeners=LISTENERS,
        users={"alice": "alice-secret", "bob": "bob-secret"},
        client_certificates=True,
        authorizer=True,
    )
    with LocalCluster("secure", security=security, jvm_flags=QUICK_JVM) as cluster:
        yield cluster


def topics_seen(java: Any, properties: Mapping[str, str]) -> set[str]:
    """Return the topics that Kafka's Java client lists with these properties."""
    java_properties = java.java.util.Properties()
    limits = {"request.timeout.ms": "5000", "default.api.timeout.ms": "8000"}
    for key, value in {**properties, **limits}.items():
        java_properties.setProperty(key, value)
    client = java.org.apache.kafka.clients.admin.Admin.create(java_properties)
    try:
        return set(client.listTopics().names().get())
    finally:
        client.close(java.java.time.Duration.ofSeconds(1))


def with_topic(cluster: LocalCluster, topic: str, user: str) -> None:
    create_topic(cluster, topic)
    allow(cluster, user, ["describe"], topic=topic)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl_user_sees_the_topics_that_its_acls_allow(
    secure: LocalCluster, java: Any, fresh_topic: str, listener: str, mechanism: str
) -> None:
    with_topic(secure, fresh_topic, "alice")
    alice, bob = (
        topics_seen(java, secure.client_properties(listener, user, mechanism=mechanism))
        for user in ("alice", "bob")
    )
    assert fresh_topic in alice
    assert fresh_topic not in bob


@pytest.mark.parametrize("stores", ["PEM", "PKCS12", "JKS"])
def test_client_certificate_names_its_user(
    secure: LocalCluster, java: Any, fresh_topic: str, stores: Any
) -> None:
    with_topic(secure, fresh_topic, "alice")
    alice, bob = (
        topics_seen(java, secure.client_properties("SSL", user, stores=stores))
        for user in ("alice", "bob")
    )
    assert fresh_topic in alice
    assert fresh_topic not in bob


def test_plaintext_client_has_no_rights(secure: LocalCluster, java: Any, fresh_topic: str) -> None:
    with_topic(secure, fresh_topic, "alice")
    assert fresh_topic not in topics_seen(java, secure.client_properties("PLAINTEXT"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_password_is_refused(secure: LocalCluster, java: Any, mechanism: str) -> None:
    properties = secure.client_properties("SASL_SSL", "alice", mechanism=mechanism)
    login = properties["sasl.jaas.config"].replace("alice-secret", "wrong")
    with pytest.raises(Py4JJavaError, match="SaslAuthenticationException"):
        topics_seen(java, {**properties, "sasl.jaas.config": login})


def test_missing_client_certificate_is_refused(secure: LocalCluster, java: Any) -> None:
    with pytest.raises(Py4JJavaError, match="SslAuthenticationException"):
        topics_seen(java, secure.client_properties("SSL"))


def test_stores_without_password_are_there(secure: LocalCluster) -> None:
    assert isinstance(secure.security, SandboxSecurity)
    files = secure.security.files
    assert files is not None
    for made in (files.identity_p12("alice", password=False), files.trust_p12(password=False)):
        assert made.stat().st_size > 0
    assert b"ENCRYPTED" in files.identity_pem("alice", encrypted=True).read_bytes()


def test_admin_of_the_tests_may_do_everything(secure: LocalCluster, fresh_topic: str) -> None:
    create_topic(secure, fresh_topic)
    produce(secure, fresh_topic, [Outgoing(value=b"v")])
    assert [b"v"] == [record.value for record in read_all(secure, fresh_topic)]


def test_secured_broker_restarts_and_keeps_its_users(secure: LocalCluster, java: Any) -> None:
    secure.restart(1)
    topics_seen(java, secure.client_properties("SASL_SSL", "alice", mechanism="SCRAM-SHA-512"))


def test_passwords_and_data_are_for_this_user_alone(secure: LocalCluster) -> None:
    assert secure.folder is not None
    for node in secure.folder.glob("node-*"):
        assert node.stat().st_mode & 0o777 == 0o700
        assert (node / "data").stat().st_mode & 0o777 == 0o700
        assert (node / "server.properties").stat().st_mode & 0o777 == 0o600
        assert (node / "broker.log").stat().st_mode & 0o777 == 0o600
    (state,) = secure.folder.glob(STATE_FILE)
    assert state.stat().st_mode & 0o777 == 0o600


def test_unknown_listener_is_named(secure: LocalCluster) -> None:
    with pytest.raises(UsageError, match="no listener SASL; there are PLAINTEXT"):
        secure.client_properties("SASL", "alice")


def test_three_secured_brokers_find_each_other(java: Any) -> None:
    security = SandboxSecurity(users={"alice": "secret"}, authorizer=True)
    with LocalCluster("secure3", brokers=3, security=security, jvm_flags=QUICK_JVM) as cluster:
        for mechanism in MECHANISMS:
            topics_seen(java, cluster.client_properties("SASL_SSL", "alice", mechanism=mechanism))
