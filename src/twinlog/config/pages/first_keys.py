"""What most people need of the configuration, in front of the tables of all keys."""

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

# for both clusters; the password comes from the environment
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
    ("clusters", "names of the clusters"),
    ("A.bootstrap.servers", "where a cluster is"),
    ("A->B.enabled", "`true`: the flow from A to B is on"),
    ("topics", "what is copied: names or regular expressions"),
    ("topics.exclude", "and what is not"),
    ("groups", "groups whose positions are translated"),
    ("sync.group.offsets.enabled", "`true`: idle groups on B get their positions, for a failover"),
    ("replication.factor", "of topics that are made on B"),
    ("replication.policy.class", "`A.orders` (the default), or the same name on both sides"),
    ("refresh.topics.interval.seconds", "how often new topics are looked for"),
    ("sync.topic.acls.enabled", "`false`: ACLs of topics stay as they are on B"),
    ("A.security.protocol", "and `A.sasl.*`, `A.ssl.*`: how to enter a cluster"),
    ("twinlog.start", "where copies begin: earliest, latest, a time, offsets"),
    ("twinlog.max.bytes.per.second", "what the flow may take of the line"),
    ("twinlog.source.group.id", "a group that shows the copy's lag to tools at A"),
)


def render() -> str:
    """A section of the page."""
    rows = "".join(f"| `{key}` | {meaning} |\n" for key, meaning in FIRST_KEYS)
    return (
        "## The keys most people need\n\n| key | meaning |\n| --- | --- |\n"
        f"{rows}\nA whole file, with logins:\n\n```properties\n{SECURED_EXAMPLE}```\n\n"
    )
