"""The most common configuration keys, which docs/configuration.md shows before the tables of all
keys.
"""

from __future__ import annotations

from typing import Final

SECURED_EXAMPLE: Final = """\
clusters = west, east
west.bootstrap.servers = west-1.example.com:9093, west-2.example.com:9093
east.bootstrap.servers = east-1.example.com:9093, east-2.example.com:9093

west->east.enabled = true
west->east.topics = orders.*, payments
west->east.groups = billing-.*
west->east.sync.group.offsets.enabled = true
replication.factor = 3

# for both clusters; the password is read from the environment
config.providers = env
config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="twinlog" password="${env::TWINLOG_PASSWORD}";
ssl.truststore.type = PEM
ssl.truststore.location = /etc/twinlog/ca.pem
"""

FIRST_KEYS: Final = (
    ("clusters", "aliases of the clusters"),
    ("A.bootstrap.servers", "bootstrap addresses of a cluster"),
    ("A->B.enabled", "`true` enables the flow from A to B"),
    ("topics", "topics to copy: names or regular expressions"),
    ("topics.exclude", "topics to exclude"),
    ("groups", "consumer groups whose offsets are translated"),
    (
        "sync.group.offsets.enabled",
        ("`true`: set the translated offsets of idle groups on B, so that they can fail over"),
    ),
    ("replication.factor", "replication factor of topics created on B"),
    (
        "replication.policy.class",
        ("remote topics are named `A.orders` (the default), or as on the source"),
    ),
    ("refresh.topics.interval.seconds", "how often new topics are discovered"),
    ("sync.topic.acls.enabled", "`false`: ACLs are not copied to B"),
    (
        "A.security.protocol",
        ("with `A.sasl.*` and `A.ssl.*`: authentication and encryption for a cluster"),
    ),
    ("twinlog.start", "where the copy starts: earliest, latest, a time, or offsets"),
    ("twinlog.max.bytes.per.second", "rate limit of the flow"),
    ("twinlog.source.group.id", "a consumer group on A whose lag is the lag of the copy"),
)


def render() -> str:
    """Return the section with these keys and an example."""
    rows = "".join(f"| `{key}` | {meaning} |\n" for key, meaning in FIRST_KEYS)
    return (
        "## The keys most people need\n\n| key | meaning |\n| --- | --- |\n"
        f"{rows}\nA complete file with authentication:\n\n```properties\n{SECURED_EXAMPLE}```\n\n"
    )
