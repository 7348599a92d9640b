"""Advice cases for Strimzi's resources, for MirrorMaker 1's two files, and for several files at
once.
"""

from __future__ import annotations

from typing import Final

from tests.support.advice_cases import PROVIDERS, Case, File, connector, lines, whole
from tests.support.config_examples import COPY, a_resource
from tests.support.properties import BASE


def resource(text: str | bytes | None = None, *, secrets: bool = True, **parts: str) -> File:
    return File(a_resource(**parts) if text is None else text, "mirror.yaml", secrets)


def pair(consumer: str, producer: str = "bootstrap.servers = b:9092\n") -> File:
    return File(consumer, "consumer.properties", second=producer)


def two(first: File, second: File) -> File:
    return File(first.text, second=str(second.text))


def of_b(text: str) -> str:
    return f"      config: {{{text}}}"


def of_a(text: str, tls: str = "\n      tls: {}") -> str:
    return f"      authentication: {{{text}}}{tls}"


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CERTIFICATE = "type: tls, certificateAndKey: {secretName: mine, certificate: ca.crt, key: password}"
PROVIDER = f"config.providers: %s, config.providers.%s.class: {PROVIDERS}EnvVarConfigProvider"
CUSTOM = (
    "type: custom, sasl: true, config: {sasl.mechanism: PLAIN, sasl.jaas.config: "
    f"'{PLAIN} username=u password=p;'}}"
)
OAUTH_CLIENT = (
    "type: oauth, tokenEndpointUri: 'https://id.example/t', clientId: c, "
    "clientSecret: {secretName: mine, key: password}"
)
PASSWORD = "username: u, passwordSecret: {secretName: mine, password: %s}"
TASKS = "      sourceConnector: {}\n      checkpointConnector: {tasksMax: 8}"
SYNC = "{config: {sync.group.offsets.enabled: true}}"
SYNCS = f"      sourceConnector: {SYNC}\n      checkpointConnector: {{}}"
SYNCS_THERE = f"      sourceConnector: {{}}\n      checkpointConnector: {SYNC}"
BASE_RESOURCE = a_resource()

OF_RESOURCES: Final[list[Case]] = [
    (
        "set it in the environment, or set the folder of secrets with --secrets",
        resource(b="      config: {client.id: '${strimzienv:NOBODY}'}"),
        resource(b="      config: {client.id: '${strimzienv:NAME}'}"),
    ),
    (
        "YAML must be UTF-8",
        resource("# \u00fc\n".encode("latin-1") + BASE_RESOURCE.encode()),
        resource("# \u00fc\n" + BASE_RESOURCE),
    ),
    ("write a KafkaMirrorMaker2, or name", resource("# nothing\n"), resource()),
    (
        "put each into a file of its own",
        resource(BASE_RESOURCE + "---\n" + BASE_RESOURCE),
        resource(),
    ),
    ("name a file with one, or an mm2.properties", resource("kind: Kafka\n"), resource()),
    (
        "without effect: spec.rack",
        resource(BASE_RESOURCE.replace("spec:\n", "spec:\n  rack: {topologyKey: z}\n")),
        resource(mirror="      sourceConnector: {config: {consumer.client.rack: z}}"),
    ),
    (
        "did you mean topicsPattern?",
        resource(mirror=f"{COPY}\n      topicsPatern: a"),
        resource(mirror=f"{COPY}\n      topicsPattern: a"),
    ),
    (
        "KafkaMirrorMaker2 has no such field; remove it",
        resource(mirror=f"{COPY}\n      zzz: a"),
        resource(),
    ),
    ("is not supported", resource(a=of_a("type: oauth, refreshToken: {}")), resource()),
    (
        "set tasksMax of sourceConnector",
        resource(mirror=TASKS),
        resource(
            mirror=TASKS.replace("tasksMax: 8", "").replace(
                "sourceConnector: {}", "sourceConnector: {tasksMax: 8}"
            )
        ),
    ),
    (
        "write running, paused or stopped",
        resource(mirror="      sourceConnector: {state: on}"),
        resource(mirror="      sourceConnector: {state: running}"),
    ),
    (
        "write it in checkpointConnector",
        resource(mirror=SYNCS),
        resource(mirror=SYNCS_THERE),
    ),
    (
        "see docs/strimzi.md",
        resource(BASE_RESOURCE.replace("spec:\n", "spec:\n  replicas: 3\n")),
        resource(),
    ),
    (
        "add an entry to spec.mirrors",
        resource(BASE_RESOURCE.partition("  mirrors:")[0]),
        resource(),
    ),
    ("add `sourceConnector: {}` to a mirror", resource(mirror=""), resource()),
    (
        "is not a version of KafkaMirrorMaker2; write ",
        resource(BASE_RESOURCE.replace("v1beta2", "v2")),
        resource(),
    ),
    (
        "use letters, digits, dots, _ and -",
        resource(BASE_RESOURCE.replace("alias: A", "alias: a b")),
        resource(),
    ),
    (
        "give each cluster one alias of its own",
        resource(BASE_RESOURCE.replace("alias: B", "alias: A")),
        resource(),
    ),
    (
        "C is not a cluster; spec.clusters has A, B",
        resource(BASE_RESOURCE.replace("Cluster: A", "Cluster: C")),
        resource(),
    ),
    (
        "source and target are the same cluster; name two",
        resource(BASE_RESOURCE.replace("targetCluster: B", "targetCluster: A")),
        resource(),
    ),
    (
        "rename your provider",
        resource(
            a=of_a(f"type: plain, {PASSWORD % 'password'}"),
            b=of_b(PROVIDER % ("strimzi", "strimzi")),
        ),
        resource(
            a=of_a(f"type: plain, {PASSWORD % 'password'}"),
            b=of_b(PROVIDER % ("mine", "mine")),
        ),
    ),
    ("did you mean to put it into spec?", resource(BASE_RESOURCE + "replicas: 3\n"), resource()),
    (
        "check --secrets, the names and permissions",
        resource(a=of_a(f"type: plain, {PASSWORD % 'none'}")),
        resource(a=of_a(f"type: plain, {PASSWORD % 'password'}")),
    ),
    (
        "is not a valid name of a secret or of a key in one; correct it",
        resource(a=of_a(f"type: plain, {PASSWORD % '../mine/password'}")),
        resource(a=of_a(f"type: plain, {PASSWORD % 'password'}")),
    ),
    (
        "without a line break (printf %s)",
        resource(a=of_a(f"type: plain, {PASSWORD % 'line'}")),
        resource(a=of_a(f"type: plain, {PASSWORD % 'password'}")),
    ),
    (
        "correct the pattern",
        resource(a='      tls: {trustedCertificates: [{secretName: mine, pattern: "*.no"}]}'),
        resource(a='      tls: {trustedCertificates: [{secretName: mine, pattern: "*.crt"}]}'),
    ),
    (
        "set --secrets DIR with a file DIR/",
        resource(secrets=False, a=of_a(f"type: plain, {PASSWORD % 'password'}")),
        resource(a=of_a(f"type: plain, {PASSWORD % 'password'}")),
    ),
    (
        "add `bootstrapServers: ...`",
        resource(BASE_RESOURCE.replace("      bootstrapServers: b:9092\n", "")),
        resource(),
    ),
    (
        "add sasl.mechanism to its `config`",
        resource(a=of_a("type: custom, sasl: true")),
        resource(a=of_a(CUSTOM)),
    ),
    (
        "add `sasl: true`",
        resource(a=of_a("type: custom, config: {sasl.mechanism: PLAIN}")),
        resource(a=of_a("type: custom, sasl: true, config: {sasl.mechanism: PLAIN}")),
    ),
    (
        "write tls, scram-sha-256, scram-sha-512, plain, oauth or custom",
        resource(a=of_a("type: kerberos")),
        resource(a=of_a(f"type: scram-sha-512, {PASSWORD % 'password'}")),
    ),
    (
        "write clientId and clientSecret",
        resource(a=of_a("type: oauth, username: u")),
        resource(a=of_a(OAUTH_CLIENT)),
    ),
    (
        "put others into the cluster's `config`",
        resource(a=of_a("type: custom, config: {client.dns.lookup: x}")),
        resource(a=of_b("consumer.client.dns.lookup: x")),
    ),
    (
        "add `tls: {}` next to it",
        resource(a=of_a(CERTIFICATE, "")),
        resource(a=of_a(CERTIFICATE)),
    ),
    (
        "already set by spec.clusters[0].bootstrapServers on line 7; remove one of them",
        resource(a=of_b("bootstrap.servers: x:1")),
        resource(),
    ),
    ("put the resource into a file of its own", resource("# " + "x" * 5_000_000), resource()),
    (
        "merges itself or a value that is not a mapping; write the fields out instead",
        resource(mirror="      sourceConnector: &x {<<: *x}"),
        resource(),
    ),
    (
        "write `name: value` lines below it",
        resource(mirror="      sourceConnector: yes"),
        resource(mirror="      sourceConnector:\n        tasksMax: 1"),
    ),
    (
        "begin each entry with `- `",
        resource(BASE_RESOURCE.partition("  mirrors:")[0] + "  mirrors: x\n"),
        resource(),
    ),
    (
        "write a string, a boolean or a number",
        resource(mirror=f"      topicsPattern: [a]\n{COPY}"),
        resource(mirror=f"      topicsPattern: a\n{COPY}"),
    ),
    ("invalid YAML: ", resource(BASE_RESOURCE.replace("Cluster: B", "Cluster: {B")), resource()),
    ("remove the character", resource(a="      config: {x: '\x07'}"), resource()),
    ("nested too deeply; correct it", resource("a: " + "[" * 5000), resource()),
    (
        "is already set on line 15; remove one of the two",
        resource(mirror=f"{COPY}\n{COPY}"),
        resource(),
    ),
    (
        "is not a whole number; correct it, or quote it",
        resource(mirror="      sourceConnector: {tasksMax: !!int abc}"),
        resource(mirror="      sourceConnector: {tasksMax: '4'}"),
    ),
]

CONSUMER = "bootstrap.servers = a:9092\ngroup.id = g\n"
OTHERS = whole("clusters = C, B", "C.bootstrap.servers = c:9092", BASE[2], "C->B.enabled = true")
LABELS, OTHER_LABELS = "twinlog.metrics.labels = a=b", "twinlog.metrics.labels = a=c"
MERGES = "".join(f"x{at}: {{<<: *m}}\n" for at in range(21))
FIELDS = ", ".join(f"f{at}: 1" for at in range(1000))

OF_PAIRS: Final[list[Case]] = [
    ("missing; add the group", pair(CONSUMER.replace("group.id = g\n", "")), pair(CONSUMER)),
    ("write the group of this MirrorMaker", pair(CONSUMER.replace("= g", "=")), pair(CONSUMER)),
    ("missing; add: bootstrap.servers = host:9092", pair(CONSUMER, "acks = all\n"), pair(CONSUMER)),
    (
        "; write bootstrap.servers = host:9092",
        pair(CONSUMER.replace("bootstrap.servers = a:9092", "zookeeper.connect = z")),
        pair(CONSUMER),
    ),
    (
        "Twinlog cannot run Java classes; write it in Python with twinlog.transforms",
        pair(CONSUMER + "interceptor.classes = com.example.X\n"),
        pair(CONSUMER),
    ),
    (
        "write the same in both files, or in only one",
        two(lines(LABELS), File(f"{OTHERS.text!s}{OTHER_LABELS}\n")),
        two(lines(LABELS), File(f"{OTHERS.text!s}{LABELS}\n")),
    ),
    (
        "give one of the two clusters another alias",
        two(lines(), File(str(OTHERS.text).replace("= b:9092", "= other:9092"))),
        two(lines(), File(str(OTHERS.text).replace("= b:9092", "= other:9092").replace("B", "D"))),
    ),
    ("disable it in one of the files, or use other", two(lines(), lines()), two(lines(), OTHERS)),
    (
        "fields are merged by <<; write the fields out instead",
        resource(f"{BASE_RESOURCE}---\nm: &m {{{FIELDS}}}\n{MERGES}"),
        resource(f"{BASE_RESOURCE}---\nm: 1\n"),
    ),
]

CHECKPOINT = "MirrorCheckpointConnector"
OF_CONNECTORS: Final[list[Case]] = [
    (
        "topics.blacklist: deprecated name; write topics.exclude",
        connector(topics_blacklist="a"),
        connector(topics_exclude="a"),
    ),
    (
        "source.cluster.fetch.max.bytes: has no effect without consumer., producer. or admin. "
        "before it; write consumer.fetch.max.bytes",
        connector(source_cluster_fetch_max_bytes="1"),
        connector(consumer_fetch_max_bytes="1"),
    ),
    (
        "producer.linger.ms: does not reach the producer of the copied records; "
        "write producer.override.linger.ms",
        connector(producer_linger_ms="1"),
        connector(producer_override_linger_ms="1"),
    ),
    (
        "source.cluster.security.protocol is not set, so connections are PLAINTEXT; "
        "write source.cluster.security.protocol = SSL",
        connector(source_cluster_ssl_truststore_location="/t"),
        connector(
            source_cluster_ssl_truststore_location="/t", source_cluster_security_protocol="SSL"
        ),
    ),
    (
        "did you mean topics?",
        connector(topic="a"),
        connector(topics="a"),
    ),
    (
        "consumer.override.fetch.max.bytes: Kafka Connect overrides only the producer; "
        "write consumer.fetch.max.bytes",
        connector(consumer_override_fetch_max_bytes="1"),
        connector(consumer_fetch_max_bytes="1"),
    ),
    (
        "the connectors of a flow share this key; write it in ",
        two(connector(), connector(CHECKPOINT, consumer_fetch_max_bytes="1")),
        two(connector(consumer_fetch_max_bytes="1"), connector(CHECKPOINT)),
    ),
]

OF_OTHERS: Final = [*OF_RESOURCES, *OF_PAIRS, *OF_CONNECTORS]
