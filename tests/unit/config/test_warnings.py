"""A line that has less effect than intended causes a warning, which names the line that takes
effect instead.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.support.properties import BASE, IDENTITY, Loader, flow_of, refusal, warnings_of
from twinlog.config.files.overrides import Override
from twinlog.config.flow.schema import PolicyKind
from twinlog.config.load import load
from twinlog.config.values.warnings import WarningCode
from twinlog.mirror.names.filters import policy_of


def test_a_plain_file_has_no_warnings(read: Loader) -> None:
    assert read("A->B.topics = a, b", "replication.factor = 3").warnings == ()


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("emit.heartbeats = false", "emit.heartbeats.enabled"),
        ("A->B.emit.heartbeats = false", "A->B.emit.heartbeats.enabled"),
        ("sync.group.offsets = true", "sync.group.offsets.enabled"),
        ("max.tasks = 20", "tasks.max"),
        ("A->B.max.tasks = 20", "A->B.tasks.max"),
        ("task.max = 20", "tasks.max"),
        ("A->B.topic.creation.enabled = false", "A->B.topic.creation.enable"),
        ("replication.facto = 1", "replication.factor"),
        ("A->B.topic = t", "A->B.topics"),
        ("B.offset_flush_timeout = 1", "B.offset.flush.timeout.ms"),
        ("B.producer.ack = all", "B.producer.acks"),
        ("A.bootstrap.server = x:1", "A.bootstrap.servers"),
        ("A.ssl.truststore.pasword = x", "A.ssl.truststore.password"),
        ("A->B.source.consumer.fetch.max.byte = 1", "A->B.source.consumer.fetch.max.bytes"),
        ("A->B.producer.override.linger = 1", "A->B.producer.override.linger.ms"),
        ("replication.policy.separater = _", "replication.policy.separator"),
    ],
)
def test_an_unknown_key_gets_the_nearest_known_one(read: Loader, line: str, near: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.UNKNOWN_KEY)
    assert warning.line == 5
    assert warning.key == line.split(maxsplit=1)[0]
    assert f"did you mean {near}?" in warning.message
    assert "mm2.properties:5: " in str(warning)


def test_a_misspelt_alias_is_recognised(read: Loader) -> None:
    config = read(
        "clustr-B.ssl.truststore.location = /t",
        base=[
            "clusters = cluster-A, cluster-B",
            "cluster-A.bootstrap.servers = a:1",
            "cluster-B.bootstrap.servers = b:1",
            "cluster-A->cluster-B.enabled = true",
        ],
    )
    (warning,) = warnings_of(config, WarningCode.UNKNOWN_KEY)
    assert "did you mean cluster-B.ssl.truststore.location?" in warning.message


def test_an_unknown_key_like_no_other_is_named_without_a_hint(read: Loader) -> None:
    (warning,) = warnings_of(read("com.example.thing = 1"), WarningCode.UNKNOWN_KEY)
    assert warning.message == "unknown key, nothing reads it"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("A->B.producer.linger.ms = 1", "B.producer.linger.ms or A->B.producer.override.linger.ms"),
        ("A->B.security.protocol = SSL", "A.security.protocol or B.security.protocol"),
        ("A->B.offset.flush.timeout.ms = 1", "B.offset.flush.timeout.ms"),
        ("A.topics = t", "A->X.topics, or topics for all"),
        ("A.admin.timeout.ms = 1", "A->X.admin.timeout.ms, or admin.timeout.ms for all"),
        ("A.fetch.max.bytes = 1", "A.consumer.fetch.max.bytes"),
        ("A.request.timeout.ms = 1", "A.producer.request.timeout.ms or A.consumer."),
        ("producer.acks = all", "<alias>.producer.acks"),
        ("producer.ack = all", "<alias>.producer.acks"),
        ("group.id = x", "<target alias>.group.id"),
    ],
)
def test_a_key_in_a_place_where_nothing_reads_it(read: Loader, line: str, instead: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.DEAD_KEY)
    assert f"write {instead}" in warning.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "A->old.topics = t",
            "old is not a cluster; `clusters` has A, B, so nothing reads this line",
        ),
        ("old->B.enabled = true", "old is not a cluster"),
        ("old->older.twinlog.nothing = 1", "old is not a cluster"),
        ("A->b.enabled = true", "did you mean B? `clusters` has A, B"),
        ("A->A.enabled = true", "source and target are the same cluster"),
    ],
)
def test_a_line_that_a_former_cluster_left(read: Loader, line: str, words: str) -> None:
    config = read(line)
    (warning,) = config.warnings
    assert (warning.line, warning.code) == (5, WarningCode.DEAD_KEY)
    assert words in warning.message
    assert [str(flow.flow) for flow in config.flows] == ["A->B"]


@pytest.mark.parametrize(
    ("key", "winner"),
    [
        ("consumer.fetch.max.bytes", "A.consumer.fetch.max.bytes"),
        # a cluster's connection settings apply to each kind of client
        ("consumer.ssl.provider", "A.ssl.provider"),
        ("admin.ssl.provider", "ssl.provider"),
    ],
)
def test_a_flows_consumer_setting_that_loses(read: Loader, key: str, winner: str) -> None:
    config = read(f"A->B.{key} = 1", f"{winner} = 2")
    (warning,) = warnings_of(config, WarningCode.DEAD_KEY)
    assert warning.line == 5
    assert warning.message == f"{winner} on line 6 takes precedence; write A->B.source.{key}"


def test_a_setting_of_the_command_line_that_wins(tmp_path: Path) -> None:
    file, key = tmp_path / "mm2.properties", "consumer.fetch.max.bytes"
    file.write_text("\n".join([*BASE, f"A->B.{key} = 1"]))
    config = load(file, overrides=[Override(flag="--set", key=f"A.{key}", value="2")])
    (warning,) = warnings_of(config, WarningCode.DEAD_KEY)
    assert warning.message == f"A.{key} takes precedence; write A->B.source.{key}"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["A->B.target.cluster.bootstrap.servers = near:1"],
            r"B\.bootstrap\.servers on line 3 takes precedence; write .* "
            r"A->B\.producer\.override\.bootstrap",
        ),
        (
            ["A->B.source.cluster.bootstrap.servers = near:1"],
            r"A\.bootstrap\.servers on line 2 takes precedence; write .* "
            r"A->B\.source\.consumer\.bootstrap",
        ),
        (
            ["A->B.source.cluster.ssl.key.password = x", "ssl.key.password = y"],
            r"ssl\.key\.password on line 6 takes precedence",
        ),
        (
            ["A->B.target.cluster.security.protocol = SSL"],
            r"does not reach the producer of the copied records; write B\.security\.protocol",
        ),
    ],
)
def test_a_connectors_connection_that_loses(read: Loader, lines: list[str], said: str) -> None:
    (warning,) = warnings_of(read(*lines), WarningCode.DEAD_KEY)
    assert warning.line == 5
    assert re.search(said, warning.message)


def test_a_connectors_connection_acts_on_the_source_where_nothing_else_is_set(
    read: Loader,
) -> None:
    config = read("A->B.source.cluster.security.protocol = SSL")
    assert warnings_of(config, WarningCode.DEAD_KEY) == []
    (flow,) = config.flows
    assert flow.clients.source_consumer["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    "line",
    [
        "dedicated.mode.enable.internal.rest = true",
        "listeners = http://127.0.0.1:8083",
        "B.exactly.once.source.support = enabled",
        "metric.reporters = org.apache.kafka.common.metrics.JmxReporter",
        "B.connector.client.config.override.policy = All",
        "B.offset.storage.topic = x",
        "offset.storage.replication.factor = 1",
        "status.storage.replication.factor = 1",
        "task.shutdown.graceful.timeout.ms = 1",
        "key.converter = org.apache.kafka.connect.converters.ByteArrayConverter",
        "B.key.converter.schemas.enable = false",
        "A->B.producer.override.acks = all",
        "A->B.exactly.once.support = required",
        "name = x",
        "B.group.id = x",
        "A.consumer.isolation.level = read_uncommitted",
        "sync.topic.acls.enabled = false",
        "emit.heartbeats.enabled = false",
        "sync.group.offsets.enabled = false",
    ],
)
def test_keys_that_are_accepted_without_a_word(read: Loader, line: str) -> None:
    assert read(line).warnings == ()


@pytest.mark.parametrize("line", ["A.sasl.jaas.config = x", "ssl.truststore.location = /t"])
def test_keys_of_connections_are_accepted_without_a_word(read: Loader, line: str) -> None:
    assert read(line, "security.protocol = SASL_SSL").warnings == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("topic.creation.groups = compacted", "creates no topic"),
        ("A->B.topic.creation.groups = compacted", "creates no topic"),
        ("A->B.topic.creation.default.partitions = 1", "creates no topic"),
        ("A->B.topic.creation.compacted.cleanup.policy = compact", "creates no topic"),
        ("predicates = isOrders", "no transform of `transforms` reads this line"),
        (
            "A->B.predicates.isOrders.pattern = orders",
            "no transform of `transforms` reads this line",
        ),
        ("transforms.x.type = com.example.X", "write <flow>.transforms.x.type"),
        ("A.predicates.x.type = com.example.X", "write A->X.predicates.x.type"),
        (
            "listeners.https.ssl.keystore.location = /k",
            "for https write twinlog.rest.tls.certificate.file",
        ),
        ("admin.listeners.https.ssl.protocol = TLSv1.3", "belongs to MirrorMaker 2's REST server"),
    ],
)
def test_rules_of_connect_that_make_no_difference_here(read: Loader, line: str, words: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.DEAD_KEY)
    assert warning.line == 5
    assert words in warning.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("metric.reporters = com.example.Reporter", "no Java class is loaded"),
        ("A.admin.metric.reporters = com.example.Reporter", "no Java class is loaded"),
        ("B.producer.partitioner.class = com.example.Partitioner", "no Java class is loaded"),
        ("B.plugin.path = /opt/plugins", "no Java class is loaded"),
        ("B.rest.extension.classes = com.example.Extension", "no Java class is loaded"),
        ("producer.interceptor.classes = com.example.X", "no Java class is loaded"),
        ("B.admin.interceptor.classes = com.example.X", "no Java class is loaded"),
        ("A.security.providers = com.example.Fips", "no Java class is loaded"),
        ("A.topic.filter.class = com.example.Filter", "no Java class is loaded"),
        ("B.transforms = mask", "is a setting of a flow, not of a cluster; write B->X.transforms"),
    ],
)
def test_java_classes_that_nothing_loads(read: Loader, line: str, words: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.DEAD_KEY)
    assert warning.line == 5
    assert words in warning.message


CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"


@pytest.mark.parametrize(
    "key",
    [
        "B.producer.interceptor.classes",
        "A->B.producer.override.interceptor.classes",
        "A.consumer.interceptor.classes",
        "A->B.source.consumer.interceptor.classes",
        "B.producer.value.serializer",
        "key.converter",
        "B.value.converter",
        "A->B.header.converter",
        "A.consumer.security.providers",
        "B.admin.security.providers",
    ],
)
def test_java_classes_that_change_records_or_security(read: Loader, key: str) -> None:
    is_converter = key.endswith("converter")
    theirs = CONVERTER if is_converter else "org.apache.kafka.Their"
    for classes in ("", theirs, f"kafkashaded.{theirs}"):
        read(f"{key} = {classes}")
    ours = "com.example.Own"
    for classes in (ours, "org.apache.kafka.Their" if is_converter else f"{theirs}, {ours}"):
        message = refusal(partial(read, f"{key} = {classes}"))
        assert message.startswith(f"mm2.properties:5: {key}: Twinlog cannot run the Java class")
        differs = "connections would be secured differently" in message
        assert differs is key.endswith("security.providers")
        assert "remove the line" in message


def test_a_key_that_is_set_twice(read: Loader) -> None:
    config = read("replication.factor = 1", "replication.factor = 3")
    (warning,) = warnings_of(config, WarningCode.DUPLICATE_KEY)
    assert (warning.line, warning.key) == (6, "replication.factor")
    assert "overrides line 5" in warning.message
    assert flow_of(config).new_topics.replication_factor == 3


@pytest.mark.parametrize("line", ["topics.blacklist = x", "A->B.topics.blacklist = x"])
def test_an_old_name(read: Loader, line: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.DEPRECATED_KEY)
    assert f"write {line.split('topics', maxsplit=1)[0]}topics.exclude" in warning.message


@pytest.mark.parametrize("value", ["true # x", "true // x", "yes", ""])
def test_a_flow_that_is_off_against_its_line(read: Loader, value: str) -> None:
    config = read(f"B->A.enabled = {value}")
    (warning,) = config.warnings
    assert warning.code is WarningCode.FLOW_OFF
    assert (warning.line, warning.key) == (5, "B->A.enabled")
    assert "is not exactly true" in warning.message
    assert "write: B->A.enabled = true" in warning.message


def test_a_blank_after_true_where_it_matters(read: Loader) -> None:
    (warning,) = read("B->A.enabled = true ", "emit.heartbeats.enabled = false").warnings
    assert warning.code is WarningCode.FLOW_OFF
    assert "a blank at the end" in warning.message


@pytest.mark.parametrize("value", ["/t # mine", "/t // mine"])
def test_a_comment_that_is_part_of_a_value(read: Loader, value: str) -> None:
    (warning,) = warnings_of(
        read(f"A.ssl.truststore.location = {value}"), WarningCode.COMMENT_IN_VALUE
    )
    assert warning.line == 5


def test_a_lone_star_is_read_as_everything_and_reported(read: Loader) -> None:
    config = read("topics = *", "B->A.enabled = true")
    assert flow_of(config).topics.matches("anything")
    (warning,) = warnings_of(config, WarningCode.STAR_PATTERN)
    assert warning.line == 5


def test_an_unknown_variable_stays_and_is_reported(read: Loader) -> None:
    config = read("A->B.use.defaults.from = ${file:/x:y}")
    (warning,) = warnings_of(config, WarningCode.UNRESOLVED)
    assert warning.line == 5
    assert flow_of(config).config_sync.use_defaults_from == "${file:/x:y}"


JAAS = "A.sasl.jaas.config = M required"


@pytest.mark.parametrize(
    "line",
    [
        JAAS + ' username="${TENANT}/${NAME}" password="${AUTH_CODE}";',
        JAAS + ' username="u" password="$AUTH_CODE";',
        JAAS + ' username="u" password="{{ .Values.password }}";',
        JAAS + ' username="u" password="<your password>";',
        JAAS + ' username="u" password="%PASSWORD%";',
        "A.ssl.key.password = ${KEY_PASSWORD}",
        "A.ssl.key.password = $key_password",
        "A.ssl.key.password = <password>",
        "A.bootstrap.servers = %HOST%:9092",
        "A.sasl.oauthbearer.token.endpoint.url = https://<host>/token",
        "source.cluster.alias = $SOURCE",
        "B.config.storage.topic = ${NAME}-config",
        "name = {{ name }}",
    ],
)
def test_a_placeholder_that_no_tool_replaced(read: Loader, line: str) -> None:
    config = read(line, "security.protocol = SASL_SSL")
    (warning,) = warnings_of(config, WarningCode.UNRESOLVED)
    assert (warning.line, "write the value here" in warning.message) == (5, True)
    assert warnings_of(config, WarningCode.SECRET_IN_FILE) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("replication.factor = ${FACTOR}", "it has a placeholder that was not replaced"),
        ("A.bootstrap.servers = <host>:9092", "it has a placeholder that was not replaced"),
        ("A->B.enabled = ${ENABLED}", "it has a placeholder that was not replaced"),
    ],
)
def test_an_error_names_the_placeholder_as_its_cause(read: Loader, line: str, words: str) -> None:
    message = refusal(lambda: read(line, base=[one for one in BASE if line[:12] not in one]))
    assert words in message


@pytest.mark.parametrize(
    "line",
    [
        JAAS + ' username="u" password="pa$Word<9>%x%";',
        "A.ssl.key.password = $ecret123",
        "twinlog.rename = pay-(.*):pay.$1",
        "topics = a$, b",
        "name = <x>",
    ],
)
def test_values_that_only_resemble_a_placeholder(read: Loader, line: str) -> None:
    assert warnings_of(read(line, "security.protocol = SSL"), WarningCode.UNRESOLVED) == []


def test_a_secret_beside_a_placeholder_is_in_the_file(read: Loader) -> None:
    config = read(JAAS + ' username="${NAME}" password="s3cr3t-value";')
    assert len(warnings_of(config, WarningCode.UNRESOLVED)) == 1
    assert len(warnings_of(config, WarningCode.SECRET_IN_FILE)) == 1


def test_characters_beyond_ascii_are_reported(read: Loader) -> None:
    (warning,) = warnings_of(read("A->B.topics = gr\u00fcn"), WarningCode.NOT_ASCII)
    assert "write \\uXXXX" in warning.message


def test_a_cluster_without_servers_that_no_flow_needs(read: Loader) -> None:
    config = read(
        base=[
            "clusters = A, B, C",
            "A.bootstrap.servers = a:1",
            "B.bootstrap.servers = b:1",
            "A->B.enabled = true",
        ]
    )
    (warning,) = warnings_of(config, WarningCode.NO_BOOTSTRAP)
    assert warning.key == "C.bootstrap.servers"
    assert config.cluster("C").servers == ()


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = f'A.sasl.jaas.config = {PLAIN} username="u" password="s3cr3t-value";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        (
            ["A.security.protocol = SASL_PLAINTEXT", "A.sasl.mechanism = PLAIN", LOGIN],
            "A.security.protocol",
            "PLAIN over SASL_PLAINTEXT sends the password unencrypted; use SASL_SSL",
        ),
        (
            [
                "A.security.protocol = SASL_SSL",
                "A.sasl.mechanism = OAUTHBEARER",
                f'A.sasl.jaas.config = {OAUTH} clientId="c" clientSecret="s3cr3t-value";',
                "A.sasl.oauthbearer.token.endpoint.url = http://login.example/token",
            ],
            "A.sasl.oauthbearer.token.endpoint.url",
            "use https",
        ),
        (
            ["A.security.protocol = SSL", "A.ssl.endpoint.identification.algorithm ="],
            "A.ssl.endpoint.identification.algorithm",
            "any certificate of a trusted issuer",
        ),
    ],
    ids=["plain", "http", "names"],
)
def test_insecure_settings_are_reported_once(
    read: Loader, lines: list[str], key: str, words: str
) -> None:
    (warning,) = warnings_of(read(*lines), WarningCode.INSECURE)
    assert warning.key == key
    assert words in warning.message
    assert "s3cr3t-value" not in str(warning)


@pytest.mark.parametrize(
    "lines",
    [
        ["A.security.protocol = SASL_SSL", "A.sasl.mechanism = PLAIN", LOGIN],
        ["A.security.protocol = SASL_PLAINTEXT", "A.sasl.mechanism = SCRAM-SHA-512"],
        ["A.security.protocol = SSL"],
        ["A.security.protocol = SSL", "A.ssl.endpoint.identification.algorithm = https"],
        ["A.ssl.endpoint.identification.algorithm ="],
    ],
)
def test_secure_settings_are_not_reported(read: Loader, lines: list[str]) -> None:
    assert warnings_of(read(*lines), WarningCode.INSECURE) == []


def test_code_that_runs_with_check_is_reported(read: Loader) -> None:
    line = "replication.policy.class = twinlog.mirror.names.naming:DefaultReplicationPolicy"
    (warning,) = warnings_of(read(line), WarningCode.CUSTOM_CODE)
    assert "also by `check`" in warning.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            r"topics = .*\.replica",
            r'Java drops the backslash before ., so that the value is ".*.replica"',
        ),
        (r"topics = .*\.replica", r"write \\."),
        (r"A->B.topics.exclude = \d+", r"write \\d"),
        (r"topics.exclude = .*[\-\.]internal", r"before - and ., so"),
        (r"topics.exclude = .*[\-\.]internal", r"write \\- and \\."),
    ],
)
def test_a_backslash_that_vanishes(read: Loader, line: str, words: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.BACKSLASH_DROPPED)
    assert (warning.line, warning.key) == (5, line.split(" = ", maxsplit=1)[0])
    assert words in warning.message


@pytest.mark.parametrize(
    "line",
    [
        r"topics = .*\\.replica",
        r"topics = a\\b",
        r"A.sasl.jaas.config = x y password=\"${a:b}\";",
        "topics = a,\\\n  b",
        r"topics = \u0061",
        r"name = a\:b\=c\ d\#e\!f",
    ],
)
def test_backslashes_that_have_a_meaning(read: Loader, line: str) -> None:
    assert warnings_of(read(line), WarningCode.BACKSLASH_DROPPED) == []


def test_a_backslash_that_vanishes_from_a_password(read: Loader) -> None:
    (warning,) = warnings_of(read(r"A.ssl.key.password = s3cr\3t"), WarningCode.BACKSLASH_DROPPED)
    assert "<hidden>" in warning.message
    assert "s3cr" not in warning.message


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (LOGIN, "A.security.protocol = SASL_SSL"),
        ("sasl.mechanism = PLAIN", "security.protocol = SASL_SSL"),
        ("B.producer.ssl.truststore.location = /t", "B.producer.security.protocol = SSL"),
        ("A.ssl.truststore.certificates = x", "A.security.protocol = SSL"),
    ],
)
def test_security_without_a_protocol(read: Loader, line: str, wanted: str) -> None:
    (warning,) = warnings_of(read(line), WarningCode.NO_PROTOCOL)
    assert warning.line == 5
    assert f"write {wanted}" in warning.message
    assert "PLAINTEXT" in warning.message


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["security.protocol = PLAINTEXT", "ssl.truststore.location = /t"],
        ["A.security.protocol = SASL_SSL", LOGIN],
        ["security.protocol = SSL", "A.ssl.truststore.location = /t"],
    ],
)
def test_security_with_its_protocol(read: Loader, lines: list[str]) -> None:
    assert warnings_of(read(*lines), WarningCode.NO_PROTOCOL) == []


def test_secrets_in_the_file_are_one_warning(read: Loader) -> None:
    lines = [LOGIN, "name = x", "B.ssl.keystore.password = s3cr3t-value"]
    (warning,) = warnings_of(read(*lines), WarningCode.SECRET_IN_FILE)
    assert (warning.line, warning.key) == (5, "A.sasl.jaas.config")
    assert "(also on line 7)" in warning.message
    assert "write ${env:NAME}" in warning.message
    assert "s3cr3t-value" not in str(warning)


def test_secrets_of_providers_and_public_values(read: Loader) -> None:
    lines = [
        "config.providers = env",
        "config.providers.env.class = EnvVarConfigProvider",
        'A.sasl.jaas.config = M required username="u" password="${env:PASSWORD}";',
        "A.ssl.key.password = ${env:MISSING}",
        "B.ssl.truststore.password = changeit",
        "B.ssl.keystore.password =",
    ]
    config = read(*lines, environment={"PASSWORD": "s3cr3t-value"})
    assert warnings_of(config, WarningCode.SECRET_IN_FILE) == []


NO_SEPARATOR = "replication.policy.separator ="
NO_ALIAS = "source.cluster.alias ="


@pytest.mark.parametrize(
    ("lines", "kind", "remote", "code", "words"),
    [
        ([NO_SEPARATOR, IDENTITY], "identity", "t", "NO_MEANING", "has no effect on topics"),
        ([NO_SEPARATOR, NO_ALIAS], "identity", "t", "BLANK_NAME", "runs under the identity policy"),
        ([NO_ALIAS], "default", ".t", "BLANK_NAME", "remote topics are called `.TOPIC`"),
        ([NO_ALIAS, IDENTITY], "identity", "t", None, ""),
    ],
)
def test_a_blank_alias_and_separator_are_judged_together(
    read: Loader, lines: list[str], kind: str, remote: str, code: str | None, words: str
) -> None:
    config = read(*lines, "B->A.source.cluster.alias = x")
    flow = flow_of(config)
    assert flow.policy.kind is PolicyKind(kind)
    assert policy_of(flow).format_remote_topic(flow.source_alias, "t") == remote
    found = [one for one in config.warnings if one.code == code]
    assert [one.code for one in config.warnings] == [one.code for one in found]
    assert [one.line for one in found] == ([] if code is None else [5])
    assert all(words in one.message for one in found)


def test_without_a_separator_heartbeats_are_undone_nevertheless(read: Loader) -> None:
    """Without a separator, heartbeats topics still get one, so that their source is recognized.
    Otherwise a name would be copied back and forth, longer each time.
    """
    policy = policy_of(flow_of(read(NO_SEPARATOR, IDENTITY)))
    remote = policy.format_remote_topic("west", "heartbeats")
    assert (policy.topic_source(remote), policy.upstream_topic(remote)) == ("west", "heartbeats")
