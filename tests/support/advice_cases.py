"""For each piece of advice about a configuration, a file for which the advice is given and a file
that follows it.

A file is the text of an mm2.properties after its first four lines, or a complete file of any
format. `FOLDER` stands for the test's folder, which contains a folder `secrets`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from tests.support.properties import BASE, IDENTITY
from twinlog.config.keys.key_table import (
    CERTIFICATE_FILE,
    CLIENT_CA_FILE,
    CLIENT_ROLE,
    OPEN_MONITORING,
    PRIVATE_KEY_FILE,
)
from twinlog.mirror.names.naming import DefaultReplicationPolicy

ENVIRONMENT: Final = {"NAME": "s3cret"}
SECRETS: Final = {
    "mine/password": "pw",
    "mine/line": "pw\n",
    "mine/ca.crt": "certificate",
    "mine/all.properties": "user = u\n",
}


class EveryTopic:
    def should_replicate_topic(self, _: str) -> bool:
        return True


class NoTopic:
    def should_replicate_topic(self, _: str) -> bool:
        raise ValueError("no")


class OneWay(DefaultReplicationPolicy):
    def topic_source(self, _: str) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class File:
    """A configuration file, with or without a folder of secrets."""

    text: str | bytes
    name: str = "mm2.properties"
    has_secrets: bool = False
    second: str = ""
    """Text of a second file: MirrorMaker 1's producer file, or another mm2.properties. Empty if
    there is none.
    """


def lines(*more: str) -> File:
    return File("\n".join([*BASE, *more, ""]))


def whole(*of_file: str) -> File:
    return File("\n".join([*of_file, ""]))


def connector(kind: str = "MirrorSourceConnector", **more: str) -> File:
    """Return the JSON file of a connector. `_` stands for a dot in the names of `more`."""
    config = {
        "connector.class": kind,
        "source.cluster.bootstrap.servers": "a:9092",
        "target.cluster.bootstrap.servers": "b:9092",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return File(json.dumps(config, indent=1), "connector.json")


CONVERTERS = "org.apache.kafka.connect."
PROVIDERS = "org.apache.kafka.common.config.provider."
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HERE = "tests.support.advice_cases"
PYTHON_POLICY = "replication.policy.class = twinlog.mirror.names.naming:DefaultReplicationPolicy"
ENV = ("config.providers = env", f"config.providers.env.class = {PROVIDERS}EnvVarConfigProvider")
LOGIN = f'A.sasl.jaas.config = {OAUTH} clientId="c" clientSecret="s";'
WITH_TLS = "A.security.protocol = SSL"
WITH_OAUTH = ("A.security.protocol = SASL_SSL", "A.sasl.mechanism = OAUTHBEARER", LOGIN)
ENDPOINT = "A.sasl.oauthbearer.token.endpoint.url ="
EXAMPLE = "twinlog.start = payments.*:latest, orders:2026-11-01T00:00:00Z, audit:0=120;1=77"
TRANSFORMS = "twinlog.transforms"
LISTED = f"{TRANSFORMS} = cut"
OF_CUT = f"{TRANSFORMS}.cut.topics = clicks"
QUERY = "twinlog.transforms.cut.sql = SELECT * FROM records"
RENAMES = "twinlog.rename = orders:eu-orders, pay-(.*):pay.$1"
SMTS = "org.apache.kafka.connect.transforms."
FILTER = ("A->B.transforms = x", f"A->B.transforms.x.type = {SMTS}Filter")
BY_HEADER = (
    *("A->B.transforms.x.predicate = p", "A->B.predicates.p.name = h"),
    f"A->B.predicates.p.type = {SMTS}predicates.HasHeaderKey",
)
INSERT = (FILTER[0], f"A->B.transforms.x.type = {SMTS}InsertHeader", "A->B.transforms.x.header = h")
NO_ALIAS, NO_SEPARATOR = "source.cluster.alias =", "replication.policy.separator ="
Case = tuple[str, File, File]

OF_KEYS: Final[list[Case]] = [
    (
        "write B.security.protocol. To set it for this flow only, write all of these: ",
        lines("A->B.target.cluster.security.protocol = SSL"),
        lines(
            "A->B.producer.override.security.protocol = SSL",
            "A->B.target.admin.security.protocol = SSL",
            "A->B.target.consumer.security.protocol = SSL",
        ),
    ),
    ("did you mean B? `clusters`", lines("A->b.topics = t"), lines("A->B.topics = t")),
    (
        "did you mean clust-B.ssl.key.password?",
        whole(*(one.replace("B", "clust-B") for one in BASE), "clst-B.ssl.key.password = s"),
        whole(*(one.replace("B", "clust-B") for one in BASE), "clust-B.ssl.key.password = s"),
    ),
    ("write topics.exclude", lines("topics.blacklist = a"), lines("topics.exclude = a")),
    (
        "takes precedence; write A->B.source.consumer.fetch.max.bytes",
        lines("A->B.consumer.fetch.max.bytes = 1", "A.consumer.fetch.max.bytes = 2"),
        lines("A->B.source.consumer.fetch.max.bytes = 1", "A.consumer.fetch.max.bytes = 2"),
    ),
    ("put it on a line of its own", lines("name = x # y"), lines("# y", "name = x")),
    ("write \\uXXXX", lines("name = gr\u00fcn"), lines("name = gr\\u00fcn")),
    ("write it without blanks: A->", whole(*BASE[:3], "A -> B.enabled = true"), lines()),
    ("name two clusters", lines("A->A.topics = t"), lines("A->B.topics = t")),
    (
        "did you mean twinlog.lease.seconds?",
        lines("twinlog.lease.second = 3"),
        lines("twinlog.lease.seconds = 3"),
    ),
    ("docs/configuration.md lists all keys", lines("A->B.twinlog.nothing = 3"), lines()),
    ("write the value here", lines("A.ssl.key.password = $KEY"), lines("A.ssl.key.password = s")),
    ("remove one of them", lines("tasks.max = 1", "tasks.max = 2"), lines("tasks.max = 2")),
    (
        "write it in Python with twinlog.transforms (docs/transforms.md#a-connect-file-with-smts), "
        "and remove the line",
        lines(f"B.value.converter = {CONVERTERS}json.JsonConverter"),
        lines(),
    ),
    ("write <flow>.transforms.x.type", lines(f"transforms.x.type = {SMTS}Filter"), lines(*FILTER)),
    (
        "write A->X.transforms.x.type",
        lines(f"A.transforms.x.type = {SMTS}Filter"),
        lines(*FILTER),
    ),
    (
        "remove the needless comma",
        lines("A->B.transforms = x,", FILTER[1]),
        lines(*FILTER),
    ),
    (
        "as in Connect; correct or remove the line",
        lines(*FILTER, "A->B.transforms.x.negated = true"),
        lines(*FILTER),
    ),
    (
        f"add A->B.transforms.x.type = {SMTS}Filter",
        lines("A->B.transforms = x"),
        lines(*FILTER),
    ),
    (
        "add A->B.transforms.x.predicate = NAME, or remove the line",
        lines(*FILTER, "A->B.transforms.x.negate = true"),
        lines(*FILTER, *BY_HEADER, "A->B.predicates = p", "A->B.transforms.x.negate = true"),
    ),
    (
        "add p to A->B.predicates",
        lines(*FILTER, *BY_HEADER),
        lines(*FILTER, *BY_HEADER, "A->B.predicates = p"),
    ),
    (
        "write a text or a whole number; or write it in Python",
        lines(*INSERT, "A->B.transforms.x.value.literal = 12:30"),
        lines(*INSERT, "A->B.transforms.x.value.literal = noon"),
    ),
    (
        "or name remote topics with twinlog.rename or RegexRouter for all of their records",
        lines("A->B.transforms = x", "A->B.transforms.x.type = TimestampRouter"),
        lines("twinlog.rename = a:b"),
    ),
    (
        "use twinlog.transforms.NAME.topics, which compares source names",
        lines(
            *(*FILTER, "A->B.transforms.x.predicate = p", "A->B.predicates = p", RENAMES),
            *("A->B.predicates.p.type = TopicNameMatches", "A->B.predicates.p.pattern = a"),
        ),
        lines(RENAMES, LISTED, OF_CUT, QUERY),
    ),
    ("no Java class is loaded here", lines("metric.reporters = com.example.X"), lines()),
    ("a setting of Connect's workers: ", lines("offset.flush.interval.ms = 1"), lines()),
    ("write <alias>.producer.acks", lines("producer.acks = all"), lines("B.producer.acks = all")),
    ("write <target alias>.group.id", lines("group.id = x"), lines("B.group.id = x")),
    (
        "write <flow>.producer.override.acks",
        lines("producer.override.acks = all"),
        lines("A->B.producer.override.acks = all"),
    ),
    (
        "write <alias>.consumer.fetch.max.bytes",
        lines("consumer.override.fetch.max.bytes = 1"),
        lines("A.consumer.fetch.max.bytes = 1"),
    ),
    (
        "overrides only the producer; write A->B.source.consumer.fetch.max.bytes",
        lines("A->B.consumer.override.fetch.max.bytes = 1"),
        lines("A->B.source.consumer.fetch.max.bytes = 1"),
    ),
    (
        "write A->B.source.admin.request.timeout.ms or A->B.target.admin.request.timeout.ms",
        lines("A->B.admin.override.request.timeout.ms = 5000"),
        lines("A->B.target.admin.request.timeout.ms = 5000"),
    ),
    ("write A->X.topics, or topics for all", lines("A.topics = t"), lines("A->B.topics = t")),
    ("write A->X.topics, or topics for all", lines("A.topics = t"), lines("topics = t")),
    (
        "write twinlog.metrics.labels",
        lines("A.twinlog.metrics.labels = a=b"),
        lines("twinlog.metrics.labels = a=b"),
    ),
    (
        "write twinlog.metrics.labels",
        lines("A->B.twinlog.metrics.labels = a=b"),
        lines("twinlog.metrics.labels = a=b"),
    ),
    (
        "without consumer., producer. or admin. before it; write A.consumer.fetch.max.bytes",
        lines("A.fetch.max.bytes = 1"),
        lines("A.consumer.fetch.max.bytes = 1"),
    ),
    (
        "write A.security.protocol or B.security.protocol",
        lines("A->B.security.protocol = SSL"),
        lines("A.security.protocol = SSL"),
    ),
    (
        "write B.offset.flush.timeout.ms",
        lines("A->B.offset.flush.timeout.ms = 1"),
        lines("B.offset.flush.timeout.ms = 1"),
    ),
    (
        "write A->B.source.cluster.security.protocol",
        lines("A->B.source.security.protocol = SSL"),
        lines("A->B.source.cluster.security.protocol = SSL"),
    ),
    (
        "write B.producer.batch.size or A->B.producer.override.batch.size",
        lines("A->B.target.producer.batch.size = 1"),
        lines("B.producer.batch.size = 1"),
    ),
    (
        "write B.producer.linger.ms or A->B.producer.override.linger.ms",
        lines("A->B.producer.linger.ms = 1"),
        lines("A->B.producer.override.linger.ms = 1"),
    ),
    (
        "did you mean replication.factor?",
        lines("replication.facto = 1"),
        lines("replication.factor = 1"),
    ),
    (
        "set it to read_uncommitted to copy them too",
        lines(),
        lines("A.consumer.isolation.level = read_uncommitted"),
    ),
]

OF_PATTERNS: Final[list[Case]] = [
    ("did you mean orders.*?", lines("topics = orders*"), lines("topics = orders.*")),
    ("write it without quotes", lines('topics = "a"'), lines("topics = a")),
    ("separate names by commas", lines("topics = a b"), lines("topics = a, b")),
    ("write replication.policy.class = ", lines(NO_ALIAS, NO_SEPARATOR), lines(IDENTITY)),
    ("if topics should keep their names, or remove", lines(NO_ALIAS), lines(NO_ALIAS, IDENTITY)),
    ("if topics should keep their names; ", lines(NO_SEPARATOR), lines(NO_SEPARATOR, IDENTITY)),
    ("or set a separator", lines(NO_SEPARATOR), lines(f"{NO_SEPARATOR} _")),
    (
        "write the characters as a class",
        lines("topics = \\\\p{IsGreek}+"),
        lines("topics = [a-z]+"),
    ),
    (
        "write both sides in brackets of their own",
        lines("topics = [a&&]"),
        lines("topics = [[a]&&[a-z]]"),
    ),
    (
        "is ignored under (?x); escape it",
        lines("topics = (?x)[a b]"),
        lines("topics = (?x)[a\\\\ b]"),
    ),
    ("or write [^..]", lines("topics = [a-z&&^b]"), lines("topics = [a-z&&[^b]]")),
    ("write it so that there is one way only", lines("topics = (a+-?)*"), lines("topics = (a+-)*")),
    ("write \\{ for the character", lines("topics = a{"), lines("topics = a\\\\{")),
    ("patterns have Java's syntax", lines("topics = a["), lines("topics = [a]")),
    ("Java drops the backslash before ", lines("topics = .*\\.x"), lines("topics = .*\\\\.x")),
    (
        "write payments.*:10, logs:1",
        lines("twinlog.priority = a"),
        lines("twinlog.priority = payments.*:10, logs:1"),
    ),
    ("use 1 to ", lines("twinlog.priority = a:0"), lines("twinlog.priority = a:1")),
    ("has no topic pattern; write payments", lines("twinlog.start = :latest"), lines(EXAMPLE)),
    ("is not a start: use earliest, latest", lines("twinlog.start = soon"), lines(EXAMPLE)),
    (
        "put latest last",
        lines("twinlog.start = latest, a:earliest"),
        lines("twinlog.start = a:earliest, latest"),
    ),
    ("remove one of them", lines("twinlog.start = a:0=1;0=2"), lines("twinlog.start = a:0=1")),
    ("0=123 for an offset", lines("twinlog.start = a:123"), lines("twinlog.start = a:0=123")),
    (
        "write milliseconds since 1970, or 2026",
        lines("twinlog.start = a:123"),
        lines("twinlog.start = a:2026-01-31T12:00:00Z, 1769860800000"),
    ),
    (
        "(with a zone)",
        lines("twinlog.start = 2026-99-01"),
        lines("twinlog.start = 2026-01-31T12:00:00Z"),
    ),
    (
        "Z for UTC",
        lines("twinlog.start = 2026-01-31T12:00"),
        lines("twinlog.start = 2026-01-31T12:00:00Z"),
    ),
    (
        "write a later time",
        lines("twinlog.start = 1971-01-01T00:00:00Z"),
        lines("twinlog.start = 1975-01-01T00:00:00Z"),
    ),
    (
        "write an earlier time",
        lines("twinlog.start = 6000-01-01T00:00:00Z"),
        lines("twinlog.start = 5000-01-01T00:00:00Z"),
    ),
    (
        "write names of letters, digits, - and _",
        lines(f"{TRANSFORMS} = a:b", OF_CUT, QUERY),
        lines(LISTED, OF_CUT, QUERY),
    ),
    (
        "write twinlog.transforms.NAME.sql",
        lines("twinlog.transforms.zzz = SELECT * FROM records"),
        lines(LISTED, OF_CUT, QUERY),
    ),
    (
        "add cut to twinlog.transforms, or remove the line",
        lines(OF_CUT),
        lines(LISTED, OF_CUT, QUERY),
    ),
    (
        "remove one of the two",
        lines(LISTED, OF_CUT, QUERY, f"{TRANSFORMS}.cut.function = a:b"),
        lines(LISTED, OF_CUT, f"{TRANSFORMS}.cut.function = a:b"),
    ),
    (
        "add twinlog.transforms.cut.function = package.module:function, or a query as "
        "twinlog.transforms.cut.sql",
        lines(LISTED, OF_CUT),
        lines(LISTED, OF_CUT, QUERY),
    ),
    (
        "add twinlog.transforms.cut.topics = orders, pay.*",
        lines(LISTED, QUERY),
        lines(LISTED, f"{TRANSFORMS}.cut.topics = orders, pay.*", QUERY),
    ),
    (
        "write names or expressions, such as pay.*",
        lines(LISTED, f"{TRANSFORMS}.cut.topics =", QUERY),
        lines(LISTED, f"{TRANSFORMS}.cut.topics = pay.*", QUERY),
    ),
    (
        "write package.module:function",
        lines(LISTED, OF_CUT, f"{TRANSFORMS}.cut.function = cut"),
        lines(LISTED, OF_CUT, f"{TRANSFORMS}.cut.function = package.module:function"),
    ),
    (
        "write SELECT ... FROM records",
        lines(LISTED, OF_CUT, "twinlog.transforms.cut.sql = DELETE FROM records"),
        lines(LISTED, OF_CUT, QUERY),
    ),
    (
        "write a name that begins with __, such as __orders-dead-letters",
        lines(f"{TRANSFORMS}.quarantine.topic = orders"),
        lines(f"{TRANSFORMS}.quarantine.topic = __orders-dead-letters"),
    ),
    ("write orders:eu-orders, pay", lines("twinlog.rename = a"), lines(RENAMES)),
    (
        "write (?:...) for groups",
        lines("twinlog.rename = " + "(a)" * 10 + ":x"),
        lines("twinlog.rename = " + "(?:a)" * 10 + ":x"),
    ),
    (
        "use letters, digits, `.`",
        lines("twinlog.rename = a:b/c"),
        lines("twinlog.rename = a:b.c_d-1"),
    ),
    (
        "use at most 249",
        lines("twinlog.rename = a:" + "x" * 250),
        lines("twinlog.rename = a:" + "x" * 249),
    ),
    ("remove it, or double it", lines("twinlog.rename = a:b\\\\"), lines("twinlog.rename = a:b")),
    ("write $1 for the text", lines("twinlog.rename = a:$1"), lines("twinlog.rename = (a):$1")),
]

OF_SECURITY: Final[list[Case]] = [
    (
        "the file contains a secret",
        lines("A.ssl.key.password = s3cret"),
        lines(*ENV, "A.ssl.key.password = ${env:NAME}"),
    ),
    (
        "unencrypted; use https",
        lines(*WITH_OAUTH, f"{ENDPOINT} http://id.example/token"),
        lines(*WITH_OAUTH, f"{ENDPOINT} https://id.example/token"),
    ),
    (
        "unencrypted; use SASL_SSL",
        lines("A.security.protocol = SASL_PLAINTEXT", "A.sasl.mechanism = PLAIN"),
        lines("A.security.protocol = SASL_SSL", "A.sasl.mechanism = PLAIN"),
    ),
    (
        "any certificate of a trusted issuer",
        lines(WITH_TLS, "A.ssl.endpoint.identification.algorithm ="),
        lines(WITH_TLS),
    ),
    (
        "write A.security.protocol = SSL",
        lines("A.ssl.truststore.location = /t"),
        lines("A.ssl.truststore.location = /t", "A.security.protocol = SSL"),
    ),
    (
        "and no authentication is configured",
        lines("listeners = http://0.0.0.0:8083"),
        lines("listeners = http://0.0.0.0:8083", f"{OPEN_MONITORING} = true"),
    ),
    (
        "is not a listener; write",
        lines("listeners = x"),
        lines("listeners = http://127.0.0.1:8083"),
    ),
    (
        "which makes it https",
        lines("listeners = https://h:8083"),
        lines("listeners = http://h:8083", f"{CERTIFICATE_FILE} = /c", f"{OPEN_MONITORING} = true"),
    ),
    (
        f"for https write {CERTIFICATE_FILE} and {PRIVATE_KEY_FILE}",
        lines("listeners.https.ssl.keystore.location = /k"),
        lines(f"{CERTIFICATE_FILE} = /c", f"{PRIVATE_KEY_FILE} = /k"),
    ),
    (
        f"has no effect without {CLIENT_CA_FILE}; set it as well",
        lines(f"{CERTIFICATE_FILE} = /c", f"{CLIENT_ROLE} = read"),
        lines(f"{CERTIFICATE_FILE} = /c", f"{CLIENT_ROLE} = read", f"{CLIENT_CA_FILE} = /a"),
    ),
    (
        "write its path, or remove the line",
        lines(f"{CERTIFICATE_FILE} ="),
        lines(f"{CERTIFICATE_FILE} = /c"),
    ),
    (
        f"has no effect without {CERTIFICATE_FILE}; set it as well",
        lines(f"{PRIVATE_KEY_FILE} = /k"),
        lines(f"{PRIVATE_KEY_FILE} = /k", f"{CERTIFICATE_FILE} = /c"),
    ),
    (
        "use File-, Directory- or EnvVarConfigProvider",
        lines(ENV[0], "config.providers.env.class = com.example.Vault"),
        lines(*ENV),
    ),
    (
        "allowlist.pattern is invalid",
        lines(*ENV, "config.providers.env.param.allowlist.pattern = a["),
        lines(*ENV, "config.providers.env.param.allowlist.pattern = [a]"),
    ),
    (
        "check path and permissions",
        lines(
            "config.providers = f",
            f"config.providers.f.class = {PROVIDERS}FileConfigProvider",
            "name = ${f:FOLDER/none:user}",
        ),
        lines(
            "config.providers = f",
            f"config.providers.f.class = {PROVIDERS}FileConfigProvider",
            "name = ${f:FOLDER/secrets/mine/all.properties:user}",
        ),
    ),
    (
        "no provider of config.providers has a value for it: set it",
        lines(*ENV, "tasks.max = ${env:NOBODY_SET_IT}"),
        lines("tasks.max = 4"),
    ),
]

OF_VALUES: Final[list[Case]] = [
    ("write A->B", lines("twinlog.beside = A2"), lines("twinlog.beside = A2->B")),
    (
        "importable class with the method should_replicate_topic(name)",
        lines("topic.filter.class = no.such:Filter"),
        lines(f"topic.filter.class = {HERE}:EveryTopic"),
    ),
    (
        "or remove the line and use the *.exclude keys",
        lines("topic.filter.class = com.example.Filter"),
        lines("topics.exclude = a"),
    ),
    (
        "let it return True or False for every name",
        lines(f"topic.filter.class = {HERE}:NoTopic"),
        lines(f"topic.filter.class = {HERE}:EveryTopic"),
    ),
    (
        "importable subclass of",
        lines("replication.policy.class = no.such:Policy"),
        lines(PYTHON_POLICY),
    ),
    (
        "make topic_source() and upstream_topic() the inverse",
        lines(f"replication.policy.class = {HERE}:OneWay"),
        lines(PYTHON_POLICY),
    ),
    (
        "or a Python class as package.module:Class",
        lines("replication.policy.class = com.example.P"),
        lines(PYTHON_POLICY),
    ),
    ("in its format_remote_topic, or remove", lines(PYTHON_POLICY, RENAMES), lines(RENAMES)),
    (
        "set the names in its format_remote_topic, and remove the line",
        lines(
            *(PYTHON_POLICY, "A->B.transforms = x", f"A->B.transforms.x.type = {SMTS}RegexRouter"),
            *("A->B.transforms.x.regex = (.*)", "A->B.transforms.x.replacement = $1"),
        ),
        lines(PYTHON_POLICY),
    ),
    (
        "lacks its package; write ",
        lines("replication.policy.class = IdentityReplicationPolicy"),
        lines(IDENTITY),
    ),
    (
        "remove the line from flows",
        lines("A.consumer.security.providers = com.example.X"),
        lines(),
    ),
    (
        "with topic.creation.enable = false",
        lines("forwarding.admin.class = com.example.A"),
        lines("topic.creation.enable = false"),
    ),
    (
        "add twinlog.target.partitions = keyed",
        lines("twinlog.new.topic.partitions = default"),
        lines("twinlog.new.topic.partitions = default", "twinlog.target.partitions = keyed"),
    ),
    (
        "add twinlog.rpo.seconds = NUMBER",
        lines("twinlog.rpo.enforce = quota"),
        lines("twinlog.rpo.enforce = quota", "twinlog.rpo.seconds = 60"),
    ),
    (
        "records of aborted transactions would be copied",
        lines(
            "A->B.exactly.once.support = required", "A.consumer.isolation.level = read_uncommitted"
        ),
        lines("A->B.exactly.once.support = required"),
    ),
    (
        "literal ACLs are copied to the new names",
        lines("twinlog.sync.topic.acls.prefixed = true", RENAMES),
        lines(RENAMES),
    ),
    (
        "there is no offset-syncs topic",
        lines("emit.offset-syncs.enabled = false", "offset-syncs.topic.location = target"),
        lines("emit.offset-syncs.enabled = false"),
    ),
    ("write: B->A.enabled = true", lines("B->A.enabled = yes"), lines("B->A.enabled = true")),
    (
        "a blank at the end of the value does not enable the flow; write",
        lines("B->A.enabled = true ", "emit.heartbeats.enabled = false"),
        lines("B->A.enabled = true", "emit.heartbeats.enabled = false"),
    ),
    (
        "write <target alias>.producer.compression.type too",
        lines("twinlog.compression = enforce"),
        lines("twinlog.compression = enforce", "B.producer.compression.type = zstd"),
    ),
    (
        "the interval must not be 0; write at least 1",
        lines("refresh.topics.interval.seconds = 0"),
        lines("refresh.topics.interval.seconds = 1"),
    ),
    (
        "or -1 for the broker's default",
        lines("replication.factor = 0"),
        lines("replication.factor = -1"),
    ),
    ("missing; set the clusters: clusters = A, B", whole(*BASE[1:]), lines()),
    ("add: A->B.enabled = true", whole(*BASE[:3]), lines()),
    ("set two clusters in `clusters`", whole("clusters = A"), lines()),
    ("has no cluster; write clusters = A, B", whole("clusters =", *BASE[1:]), lines()),
    ("did you mean clusters?", whole("cluster = A, B", *BASE[1:]), lines()),
    ("save the file without it", whole(f"\ufeff{BASE[0]}", *BASE[1:]), lines()),
    ("separate aliases by commas", whole("clusters = A; B", *BASE[1:]), lines()),
    ("remove the quotes", whole(BASE[0], 'A.bootstrap.servers = "a:9092"', *BASE[2:]), lines()),
    ("add: B.bootstrap.servers = host:9092", whole(*BASE[:2], BASE[3]), lines()),
    (
        "write legacy, or new, or both as legacy, new",
        lines("metric.names.formats = x"),
        lines("metric.names.formats = legacy, new"),
    ),
    (
        "has no format of metric names",
        lines("metric.names.formats ="),
        lines("metric.names.formats = new"),
    ),
    (
        "write name=value",
        lines("twinlog.metrics.labels = x"),
        lines("twinlog.metrics.labels = namespace=kafka"),
    ),
    (
        "use another name",
        lines("twinlog.metrics.labels = a=1, a=2"),
        lines("twinlog.metrics.labels = a=1, b=2"),
    ),
    (
        "is part of the value: put it on a line",
        lines("tasks.max = 4 # four"),
        lines("# four", "tasks.max = 4"),
    ),
    ("that was not replaced: write the value", lines("tasks.max = ${MAX}"), lines("tasks.max = 4")),
    (
        "with a port from 1 to 65535",
        whole(BASE[0], "A.bootstrap.servers = a:0", *BASE[2:]),
        lines(),
    ),
    (
        "add the port, for example a:9092",
        whole(BASE[0], "A.bootstrap.servers = a", *BASE[2:]),
        lines(),
    ),
    (
        "has no server; write host:port",
        whole(BASE[0], "A.bootstrap.servers = ,", *BASE[2:]),
        lines(),
    ),
    (
        "write 600",
        lines("refresh.topics.interval.seconds = 10m"),
        lines("refresh.topics.interval.seconds = 600"),
    ),
    (
        "write follow or raise-only",
        lines("twinlog.sync.retention = x"),
        lines("twinlog.sync.retention = follow"),
    ),
    (
        "write true or false",
        lines("refresh.topics.enabled = yes"),
        lines("refresh.topics.enabled = true"),
    ),
    ("write digits only", lines("tasks.max = four"), lines("tasks.max = 4")),
    ("write at least 1", lines("tasks.max = 0"), lines("tasks.max = 1")),
    (
        "write a number from 0 to 2147483647",
        lines("B.producer.batch.size = 2147483647999"),
        lines("B.producer.batch.size = 1"),
    ),
    ("\\u must be followed by", lines("name = \\u12"), lines("name = \\\\u12")),
    (
        "add connector.class = MirrorSourceConnector or",
        whole(
            "source.cluster.bootstrap.servers = a:9092", "target.cluster.bootstrap.servers = b:9092"
        ),
        connector("MirrorSourceConnector"),
    ),
    (
        "give the configuration of a Mirror",
        connector("com.example.JdbcSink"),
        connector("MirrorSourceConnector"),
    ),
]

OF_PROPERTIES: Final = [*OF_KEYS, *OF_PATTERNS, *OF_SECURITY, *OF_VALUES]
