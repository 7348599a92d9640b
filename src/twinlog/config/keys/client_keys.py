"""Names of the Java clients' settings in Kafka 4.3.

With these names, a misspelt key is distinguished from a known key that has no effect in Twinlog.
`CONNECTION_KEYS` are the keys that MirrorMaker 2 passes from a cluster to all of its clients.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The kind of client that a setting is for: `<alias>.<role>.<key>`."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


BOOTSTRAP_SERVERS = "bootstrap.servers"
SECURITY_PROTOCOL = "security.protocol"
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def words(text: str) -> frozenset[str]:
    """Return the names in a whitespace-separated text."""
    return frozenset(text.split())


_SSL = """
    cipher.suites enabled.protocols endpoint.identification.algorithm engine.factory.class
    key.password keymanager.algorithm keystore.certificate.chain keystore.key keystore.location
    keystore.password keystore.type protocol provider secure.random.implementation
    trustmanager.algorithm truststore.certificates truststore.location truststore.password
    truststore.type
"""
_SASL = """
    client.callback.handler.class jaas.config kerberos.kinit.cmd kerberos.min.time.before.relogin
    kerberos.service.name kerberos.ticket.renew.jitter kerberos.ticket.renew.window.factor
    login.callback.handler.class login.class login.connect.timeout.ms login.read.timeout.ms
    login.refresh.buffer.seconds login.refresh.min.period.seconds login.refresh.window.factor
    login.refresh.window.jitter login.retry.backoff.max.ms login.retry.backoff.ms mechanism
    oauthbearer.assertion.algorithm oauthbearer.assertion.claim.aud
    oauthbearer.assertion.claim.exp.seconds oauthbearer.assertion.claim.iss
    oauthbearer.assertion.claim.jti.include oauthbearer.assertion.claim.nbf.seconds
    oauthbearer.assertion.claim.sub oauthbearer.assertion.file
    oauthbearer.assertion.private.key.file oauthbearer.assertion.private.key.passphrase
    oauthbearer.assertion.template.file oauthbearer.client.credentials.client.id
    oauthbearer.client.credentials.client.secret oauthbearer.clock.skew.seconds
    oauthbearer.expected.audience oauthbearer.expected.issuer oauthbearer.header.urlencode
    oauthbearer.jwks.endpoint.refresh.ms oauthbearer.jwks.endpoint.retry.backoff.max.ms
    oauthbearer.jwks.endpoint.retry.backoff.ms oauthbearer.jwks.endpoint.url
    oauthbearer.jwt.retriever.class oauthbearer.jwt.validator.class oauthbearer.scope
    oauthbearer.scope.claim.name oauthbearer.sub.claim.name oauthbearer.token.endpoint.url
"""
SECURITY_KEYS = frozenset(
    [SECURITY_PROTOCOL, *(f"ssl.{n}" for n in _SSL.split()), *(f"sasl.{n}" for n in _SASL.split())]
)
CONNECTION_KEYS = SECURITY_KEYS | {BOOTSTRAP_SERVERS}


def class_name(text: str) -> str:
    """Return a class name without `kafkashaded.`, which Databricks adds to Kafka's packages."""
    return text.strip().removeprefix("kafkashaded.")


def is_connection_key(name: str) -> bool:
    return name in CONNECTION_KEYS or name.startswith(("ssl.", "sasl."))


_COMMON = words("""
    client.dns.lookup client.id config.providers connections.max.idle.ms enable.metrics.push
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    auto.include.jmx.reporter receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retry.backoff.max.ms retry.backoff.ms security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """)
_PRODUCER = words("""
    acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level delivery.timeout.ms enable.idempotence interceptor.classes
    key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection max.request.size
    metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys retries
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
    """)
_CONSUMER = words("""
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack
    default.api.timeout.ms enable.auto.commit exclude.internal.topics fetch.max.bytes
    fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level
    key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    partition.assignment.strategy session.timeout.ms share.acknowledgement.mode
    share.acquire.mode value.deserializer
    """)
_ADMIN = words("bootstrap.controllers default.api.timeout.ms retries")

CLIENT_KEYS = {
    Role.PRODUCER: _COMMON | _PRODUCER | CONNECTION_KEYS,
    Role.CONSUMER: _COMMON | _CONSUMER | CONNECTION_KEYS,
    Role.ADMIN: _COMMON | _ADMIN | CONNECTION_KEYS,
}

ISOLATION_LEVEL = "isolation.level"
AUTO_OFFSET_RESET = "auto.offset.reset"
