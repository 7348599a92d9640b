"""A KafkaMirrorMaker2 resource, field by field, and the errors that it may cause."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.config_examples import COPY, a_resource
from twinlog.cli.main import run
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.config_file import read_raw
from twinlog.config.files.raw import RawConfig
from twinlog.config.load import load, load_raw
from twinlog.config.strimzi.fields import SECTIONS, Use
from twinlog.errors import ConfigError


def read(folder: Path, text: str, *, secrets: Path | None = None) -> RawConfig:
    file = folder / "mirror.yaml"
    file.write_text(text, encoding="utf-8")
    return read_raw(file, secrets)


def values(raw: RawConfig) -> dict[str, str]:
    return {name: one.value for name, one in raw.settings.items()}


def refusal(folder: Path, text: str, *, secrets: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_raw(read(folder, text, secrets=secrets), environment={})
    assert caught.value.exit_code == 2
    return str(caught.value).removeprefix(f"{folder}/")


def secret_folder(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "secrets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "secrets"


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta2", "v1"])
def test_every_version_is_read(tmp_path: Path, version: str) -> None:
    raw = read(tmp_path, a_resource().replace("v1beta2", version))
    assert values(raw)["A->B.enabled"] == "true"


def test_another_group_has_the_same_resource(tmp_path: Path) -> None:
    """IBM Event Streams has the same resource as Strimzi, with another API group. It is read like
    Strimzi's, with a warning (READ_AS) that says so.
    """
    raw = read(tmp_path, a_resource().replace("kafka.strimzi.io", "eventstreams.ibm.com"))
    assert values(raw)["A->B.enabled"] == "true"
    (note,) = raw.warnings
    assert (note.code, note.line, note.key) == ("READ_AS", 1, "apiVersion")
    assert note.message == "read as kafka.strimzi.io/v1beta2, the same resource"


def test_scalars_may_be_strings_booleans_or_numbers(tmp_path: Path) -> None:
    config = 'config: {offset.lag.max: 10, refresh.topics.enabled: off, topics: "a", x: 0x10, y: ~}'
    found = values(read(tmp_path, a_resource(mirror=f"      sourceConnector:\n        {config}")))
    assert found["A->B.offset.lag.max"] == "10"
    assert found["A->B.refresh.topics.enabled"] == "false"
    assert found["A->B.topics"] == "a"
    assert found["A->B.x"] == "16"
    assert "A->B.y" not in found


def test_json_and_lists_of_kubectl_are_read_as_well(tmp_path: Path) -> None:
    item: dict[str, Any] = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": "m", "managedFields": [{"manager": "kubectl"}]},
        "status": {"observedGeneration": 1},
        "spec": {
            "target": {"alias": "B", "bootstrapServers": "b:9092"},
            "mirrors": [
                {
                    "source": {"alias": "A", "bootstrapServers": "a:9092"},
                    "sourceConnector": {},
                }
            ],
        },
    }
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Other"}, item]})
    file = tmp_path / "mirror.json"
    file.write_text(text)
    raw = read_raw(file)
    assert values(raw)["A->B.enabled"] == "true"
    assert raw.warnings == ()


def test_a_file_with_another_name_is_recognized_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "mirror"
    file.write_text("# a resource\n" + a_resource())
    assert values(read_raw(file))["clusters"] == "A, B"


def test_anchors_and_merges_are_followed(tmp_path: Path) -> None:
    a = "      config: &shared {producer.acks: all, producer.linger.ms: 5}"
    b = "      config: {<<: *shared, producer.linger.ms: 7}"
    found = values(read(tmp_path, a_resource(a=a, b=b)))
    assert (found["B.producer.acks"], found["B.producer.linger.ms"]) == ("all", "7")


def test_wrong_values_and_advice_name_the_fields_of_the_file(tmp_path: Path) -> None:
    mirror = """\
      topicsBlacklistPattern: x.*
      groupsPattern: "a["
      sourceConnector:
        config:
          replication.factor: many
          consumer.fetch.max.bytes: none
          twinlog.leese.seconds: 5
      checkpointConnector: {config: {sync.group.offsets.interval.seconds: soon}}"""
    a = "      config: {security.protocol: TLS}"
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, a_resource(a=a, mirror=mirror))
    config = "spec.mirrors[0].sourceConnector.config"
    found = {one.key: one.what for one in caught.value.each}
    assert set(found) == {
        "spec.clusters[0].config.security.protocol",
        "spec.mirrors[0].groupsPattern",
        f"{config}.replication.factor",
        f"{config}.consumer.fetch.max.bytes",
        f"{config}.twinlog.leese.seconds",
        "spec.mirrors[0].checkpointConnector.config.sync.group.offsets.interval.seconds",
    }
    (old,) = [one for one in caught.value.warnings if one.code == "DEPRECATED_KEY"]
    assert (old.key, old.message) == (
        "spec.mirrors[0].topicsBlacklistPattern",
        "deprecated name; write spec.mirrors[0].topicsExcludePattern",
    )
    assert "A->B" not in str([*found.items(), *caught.value.warnings])


def test_old_names_of_patterns_count(tmp_path: Path) -> None:
    mirror = COPY + "\n      topicsBlacklistPattern: x.*\n      groupsBlacklistPattern: y.*"
    config = load_text(tmp_path, a_resource(mirror=mirror))
    assert config.flows[0].topics_exclude.matches("xy")
    assert [w.line for w in config.warnings if w.code == "DEPRECATED_KEY"] == [16, 17]


def load_text(folder: Path, text: str, *, secrets: Path | None = None) -> Any:
    file = folder / "mirror.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, environment={}, secrets=secrets)


def test_patterns_of_the_mirror_win_over_the_connectors(tmp_path: Path) -> None:
    mirror = "      topicsPattern: a\n      sourceConnector: {config: {topics: b}}"
    assert values(read(tmp_path, a_resource(mirror=mirror)))["A->B.topics"] == "a"


def test_a_consumer_setting_of_the_connector_wins_over_the_clusters(tmp_path: Path) -> None:
    a = "      config: {consumer.isolation.level: read_committed}"
    mirror = "      sourceConnector: {config: {consumer.isolation.level: read_uncommitted}}"
    config = load_text(tmp_path, a_resource(a=a, mirror=mirror))
    assert config.flows[0].isolation_level == "read_uncommitted"


def test_keys_of_another_connector_do_nothing_and_are_reported(tmp_path: Path) -> None:
    mirror = """\
      sourceConnector: {config: {sync.group.offsets.enabled: true}}
      checkpointConnector: {config: {replication.policy.separator: _, replication.factor: 5}}"""
    raw = read(tmp_path, a_resource(mirror=mirror))
    found = values(raw)
    assert "A->B.sync.group.offsets.enabled" not in found
    assert "A->B.replication.policy.separator" not in found
    assert "A->B.replication.factor" not in found
    assert [(w.line, w.key) for w in raw.warnings] == [
        (15, "spec.mirrors[0].sourceConnector.config.sync.group.offsets.enabled"),
        (16, "spec.mirrors[0].checkpointConnector.config.replication.policy.separator"),
        (16, "spec.mirrors[0].checkpointConnector.config.replication.factor"),
    ]


def test_tasks_of_the_checkpoint_connector_are_reported_as_without_effect(tmp_path: Path) -> None:
    mirror = "      sourceConnector: {tasksMax: 32}\n      checkpointConnector: {tasksMax: 8}"
    raw = read(tmp_path, a_resource(mirror=mirror))
    assert values(raw)["A->B.tasks.max"] == "32"
    (warning,) = raw.warnings
    assert (warning.code, warning.line) == ("DEAD_KEY", 16)
    assert warning.key == "spec.mirrors[0].checkpointConnector.tasksMax"
    assert "set tasksMax of sourceConnector" in warning.message


def test_one_task_of_the_checkpoint_connector_is_no_mistake(tmp_path: Path) -> None:
    mirror = "      sourceConnector: {tasksMax: 2}\n      checkpointConnector: {tasksMax: 1}"
    assert read(tmp_path, a_resource(mirror=mirror)).warnings == ()


@pytest.mark.parametrize(
    ("field", "key", "found"),
    [("{tasksMax: 8, ", "tasks.max", "8"), ("{", "topics", "orders")],
)
def test_a_field_takes_precedence_over_the_same_key(
    tmp_path: Path, field: str, key: str, found: str
) -> None:
    mirror = "      topicsPattern: orders\n      sourceConnector: %sconfig: {%s: %s}}"
    raw = read(tmp_path, a_resource(mirror=mirror % (field, key, found)))
    assert raw.warnings == ()
    raw = read(tmp_path, a_resource(mirror=mirror % (field, key, 9)))
    assert values(raw)[f"A->B.{key}"] == found
    (warning,) = raw.warnings
    assert (warning.line, warning.key) == (16, f"spec.mirrors[0].sourceConnector.config.{key}")
    assert "takes precedence" in warning.message


def test_one_part_alone_runs_without_a_copy(tmp_path: Path) -> None:
    config = load_text(tmp_path, a_resource(mirror="      heartbeatConnector: {}"))
    (flow,) = config.flows
    assert not flow.topics.matches("anything")
    assert flow.settings["emit.heartbeats.enabled"].value == "true"


def test_the_table_has_every_field_once() -> None:
    for section, fields in SECTIONS.items():
        names = [field.name for field in fields]
        assert len(names) == len(set(names)), section
        assert all(field.meaning for field in fields)


FIELDS = {
    "spec": (
        "version replicas image connectCluster clusters target mirrors resources livenessProbe "
        "readinessProbe jvmOptions jmxOptions logging clientRackInitImage rack metricsConfig "
        "tracing template externalConfiguration"
    ),
    "spec.clusters[], spec.target, spec.mirrors[].source": (
        "alias bootstrapServers tls authentication config"
    ),
    "spec.target": "groupId configStorageTopic statusStorageTopic offsetStorageTopic",
    "tls": "trustedCertificates",
    "tls.trustedCertificates[]": "secretName certificate pattern",
    "authentication": (
        "type certificateAndKey username passwordSecret sasl config clientId clientSecret scope "
        "audience tokenEndpointUri accessToken accessTokenLocation refreshToken clientAssertion "
        "clientAssertionLocation clientAssertionType saslExtensions grantType "
        "tlsTrustedCertificates disableTlsHostnameVerification connectTimeoutSeconds "
        "readTimeoutSeconds httpRetries httpRetryPauseMs maxTokenExpirySeconds accessTokenIsJwt "
        "enableMetrics includeAcceptHeader"
    ),
    "spec.mirrors[]": (
        "sourceCluster targetCluster source sourceConnector checkpointConnector heartbeatConnector "
        "topicsPattern topicsExcludePattern topicsBlacklistPattern groupsPattern "
        "groupsExcludePattern groupsBlacklistPattern"
    ),
    "spec.mirrors[].sourceConnector, checkpointConnector, heartbeatConnector": (
        "tasksMax config state pause version autoRestart listOffsets alterOffsets"
    ),
}
"""The fields in Strimzi's reference, of all its versions."""


@pytest.mark.parametrize("section", FIELDS)
def test_the_table_has_every_field_of_strimzi(section: str) -> None:
    assert set(FIELDS[section].split()) <= {field.name for field in SECTIONS[section]}


@pytest.mark.parametrize(
    "field",
    [f for f in SECTIONS["spec"] if f.use is Use.NO_MEANING],
    ids=lambda field: str(field.name),
)
def test_fields_without_effect_are_reported_once(tmp_path: Path, field: Any) -> None:
    raw = read(tmp_path, a_resource() + f"  {field.name}: {{anything: [1, 2]}}\n")
    (warning,) = raw.warnings
    assert f"spec.{field.name} (line 16)" in warning.message


BAD = {
    "misspelt field": (
        a_resource(mirror=COPY + "\n      topicPattern: a"),
        "mirror.yaml:16: spec.mirrors[0].topicPattern: KafkaMirrorMaker2 has no such field; "
        "did you mean topicsPattern?",
    ),
    "unknown version": (
        a_resource().replace("v1beta2", "v2"),
        'mirror.yaml:1: apiVersion: "kafka.strimzi.io/v2" is not a version of KafkaMirrorMaker2',
    ),
    "nothing runs": (
        a_resource(mirror=""),
        "mirror.yaml:12: spec.mirrors: no mirror has a connector section, so nothing runs",
    ),
    "all paused": (
        a_resource(mirror="      sourceConnector: {state: stopped}"),
        "mirror.yaml:12: spec.mirrors: no mirror has a connector section, so nothing runs",
    ),
    "unknown cluster": (
        a_resource().replace("targetCluster: B", "targetCluster: C"),
        "mirror.yaml:14: spec.mirrors[0].targetCluster: C is not a cluster; spec.clusters has A, B",
    ),
    "same cluster": (
        a_resource().replace("targetCluster: B", "targetCluster: A"),
        "mirror.yaml:13: spec.mirrors[0]: source and target are the same cluster",
    ),
    "no address": (
        a_resource().replace("      bootstrapServers: b:9092\n", ""),
        "mirror.yaml:9: spec.clusters[1]: bootstrapServers is missing",
    ),
    "bad alias": (
        a_resource().replace("alias: A", "alias: a b"),
        'mirror.yaml:6: spec.clusters[0].alias: "a b" is not a valid alias',
    ),
    "alias twice": (
        a_resource().replace("alias: B", "alias: A"),
        "mirror.yaml:9: spec.clusters[1].alias: A is already used on line 6",
    ),
    "field twice": (
        a_resource(mirror=COPY + "\n" + COPY),
        "mirror.yaml:16: spec.mirrors[0].sourceConnector: is already set on line 15",
    ),
    "flow twice": (
        a_resource() + "    - {sourceCluster: A, targetCluster: B, sourceConnector: {}}\n",
        "mirror.yaml:16: spec.mirrors[1]: already set by spec.mirrors[0] on line 13; remove one "
        "of them",
    ),
    "list for a value": (
        a_resource(mirror="      topicsPattern: [a, b]\n" + COPY),
        "mirror.yaml:15: spec.mirrors[0].topicsPattern: is not a single value",
    ),
    "value for a section": (
        a_resource(mirror="      sourceConnector: yes"),
        "mirror.yaml:15: spec.mirrors[0].sourceConnector: is not a mapping",
    ),
    "two resources": (
        a_resource() + "---\n" + a_resource(),
        "mirror.yaml:18: kind: a second KafkaMirrorMaker2, after the one on line 2",
    ),
    "no YAML": (
        a_resource().replace("targetCluster: B", "targetCluster: {B"),
        "mirror.yaml:15: invalid YAML: ",
    ),
    "a tab": (a_resource(a="\tconfig: {}"), "mirror.yaml:8: invalid YAML: "),
    "a control character": (
        a_resource(a="      config: {x: '\x07'}"),
        "mirror.yaml:8: invalid YAML: special characters are not allowed",
    ),
    "nested too deep": (
        "a: " + "[" * 5000,
        "mirror.yaml:1: invalid YAML: it is nested too deeply",
    ),
    "nothing": ("# nothing\n", "mirror.yaml: the file is empty"),
    "said twice": (
        a_resource(a="      config: {bootstrap.servers: x:1}"),
        "mirror.yaml:8: spec.clusters[0].config.bootstrap.servers: "
        "already set by spec.clusters[0].bootstrapServers on line 7; remove one of them",
    ),
    "unknown authentication": (
        a_resource(a="      authentication: {type: kerberos}"),
        'mirror.yaml:8: spec.clusters[0].authentication.type: "kerberos" is not supported',
    ),
    "certificate without TLS": (
        a_resource(a="      authentication: {type: tls, certificateAndKey: {}}"),
        "mirror.yaml:8: spec.clusters[0].authentication: a client certificate needs TLS",
    ),
    "no folder of secrets": (
        a_resource(a="      tls: {trustedCertificates: [{secretName: s, certificate: c}]}"),
        "mirror.yaml:8: spec.clusters[0].tls.trustedCertificates[0].secretName: the secret must "
        "be read from a folder; set --secrets DIR",
    ),
    "refused field": (
        a_resource(a="      authentication: {type: oauth, refreshToken: {}}"),
        "mirror.yaml:8: spec.clusters[0].authentication.refreshToken: is not supported",
    ),
    "custom with foreign keys": (
        a_resource(a="      authentication: {type: custom, config: {acks: all}}"),
        "mirror.yaml:8: spec.clusters[0].authentication.config.acks: is not a key of custom",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_named_with_their_line(name: str, tmp_path: Path) -> None:
    text, expected = BAD[name]
    assert refusal(tmp_path, text).startswith(expected)


def test_all_that_is_wrong_is_named_in_one_run(tmp_path: Path) -> None:
    """One run reports all errors of fields, secrets and values. It does not report consequences of
    a misspelled field.
    """
    mirror = f"{COPY}\n      topicsPatern: x\n      topicsPattern: a["
    a = "      tls: {trustedCertificates: [{secretName: s, certificate: c}]}"
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, a_resource(a=a, mirror=mirror))
    assert [one.key for one in caught.value.each] == [
        "spec.clusters[0].tls.trustedCertificates[0].secretName",
        "spec.mirrors[0].topicsPatern",
        "spec.mirrors[0].topicsPattern",
    ]
    with pytest.raises(ConfigError) as caught:
        load_text(
            tmp_path, a_resource(mirror=mirror).replace("bootstrapServers", "bootstrapSrvers", 1)
        )
    assert [one.key for one in caught.value.each] == ["spec.clusters[0].bootstrapSrvers"]
    without_a_type = "      authentication: {typ: plain}\n      tsl: {}"
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, a_resource(a=without_a_type))
    assert [one.key for one in caught.value.each] == [
        "spec.clusters[0].authentication.typ",
        "spec.clusters[0].tsl",
    ]


SCRAM = """\
      authentication:
        type: scram-sha-512
        username: me
        passwordSecret: {secretName: mine, password: password}"""


def test_an_unreadable_secret_is_named_with_its_line(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/other": "x"})
    text = a_resource(a=SCRAM)
    expected = "mirror.yaml:11: spec.clusters[0].authentication.passwordSecret.password: the secret"
    assert refusal(tmp_path, text, secrets=secrets) == (
        f"{expected} {secrets}/mine/password cannot be read: No such file or directory; "
        "check --secrets, the names and permissions [CONFIG_INVALID]"
    )


def test_a_folder_of_secrets_must_fit_into_a_variable(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path / "a:b", {"mine/password": "pw"})
    message = refusal(tmp_path, a_resource(a=SCRAM), secrets=secrets)
    assert message.endswith(
        "cannot be written into a configuration; use another folder [CONFIG_INVALID]"
    )
    load_text(
        tmp_path, a_resource(a=SCRAM), secrets=secret_folder(tmp_path, {"mine/password": "pw"})
    )


def test_a_secret_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "x"})
    text = a_resource(a=SCRAM.replace("secretName: mine", "secretName: ../secrets/mine"))
    assert "is not a valid name of a secret" in refusal(tmp_path, text, secrets=secrets)


def test_a_password_that_a_login_text_cannot_hold_is_refused_unseen(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "hunter2\n"})
    message = refusal(tmp_path, a_resource(a=SCRAM), secrets=secrets)
    assert "mirror.yaml:11: " in message
    assert "hunter2" not in message


def test_a_pattern_takes_all_certificates_that_match(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"ca/a.crt": "one", "ca/b.crt": "two", "ca/c.p12": "no"})
    tls = '      tls: {trustedCertificates: [{secretName: ca, pattern: "*.crt"}]}'
    config = load_text(tmp_path, a_resource(a=tls), secrets=secrets)
    settings = config.cluster("A").settings
    assert settings["ssl.truststore.certificates"].value == "one\ntwo"
    assert settings["ssl.truststore.certificates"].shown == "<hidden>"
    assert settings["security.protocol"].value == "SSL"


def test_every_kind_of_authentication(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "pw", "mine/key": "sec"})
    for kind, protocol, mechanism in (
        ("scram-sha-256", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("plain", "SASL_PLAINTEXT", "PLAIN"),
    ):
        text = a_resource(a=SCRAM.replace("scram-sha-512", kind))
        a = load_text(tmp_path, text, secrets=secrets).cluster("A").settings
        assert (a["security.protocol"].value, a["sasl.mechanism"].value) == (protocol, mechanism)
        assert a["sasl.jaas.config"].value.endswith('username="me" password="pw";')
    oauth = """\
      tls: {}
      authentication:
        type: oauth
        clientId: me
        clientSecret: {secretName: mine, key: key}
        tokenEndpointUri: https://id.example/token"""
    a = load_text(tmp_path, a_resource(a=oauth), secrets=secrets).cluster("A").settings
    assert (a["security.protocol"].value, a["sasl.mechanism"].value) == ("SASL_SSL", "OAUTHBEARER")
    assert a["sasl.jaas.config"].value.endswith('clientId="me" clientSecret="sec";')
    custom = """\
      authentication:
        type: custom
        sasl: true
        config: {sasl.mechanism: PLAIN, sasl.jaas.config: any}"""
    a = load_text(tmp_path, a_resource(a=custom)).cluster("A").settings
    assert a["security.protocol"].value == "SASL_PLAINTEXT"


def test_a_file_is_explained_and_converted_without_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = a_resource(
        a=f"{SCRAM}\n      tls: {{trustedCertificates: [{{secretName: ca, pattern: x*}}]}}"
    )
    file = tmp_path / "mirror.yaml"
    file.write_text(text)
    assert run(["check", str(file), "--explain"]) == 0
    said = capsys.readouterr().out
    assert "A.sasl.jaas.config = <hidden>" in said
    assert "because --secrets is not given; /SECRETS stands for its folder [UNRESOLVED]" in said
    assert run(["convert", str(file)]) == 0
    assert 'password="${strimzi:/SECRETS/mine:password}";' in capsys.readouterr().out
    assert run(["check", str(file)]) == 2, "to connect they are needed"
    said = "".join(capsys.readouterr())
    assert said.count("--secrets") == 1, "an error, and no warnings of the same"
    assert "UNRESOLVED" not in said
    assert "set --secrets DIR" in said


def test_strimzis_own_provider_finds_secrets_in_the_folder(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/user": "me", "mine/password": "pw"})
    a = "      config: {client.id: '${secrets:my-namespace/mine:user}'}"
    b = """\
      config:
        config.providers: env, secrets
        config.providers.env.class: org.apache.kafka.common.config.provider.EnvVarConfigProvider
        config.providers.secrets.class: io.strimzi.kafka.KubernetesSecretConfigProvider"""
    text = a_resource(a=a, b=b)
    config = load_text(tmp_path, text, secrets=secrets)
    client_id = config.cluster("A").settings["client.id"]
    assert (client_id.value, client_id.shown) == ("me", "<hidden>")
    raw = values(read(tmp_path, text, secrets=secrets))
    assert raw["config.providers"] == "env, strimzi"
    assert "config.providers.secrets.class" not in raw
    assert refusal(tmp_path, text.replace("mine:user", "mine:none"), secrets=secrets).startswith(
        "mirror.yaml:8: A.client.id: the secret "
    )
    assert "set --secrets DIR" in refusal(tmp_path, text)


TEMPLATE = """\
  template:
    pod:
      volumes:
        - {name: oauth, secret: {secretName: mine}}
    connectContainer:
      env:
        - {name: CLIENT_ID, value: me}
        - name: CLIENT_SECRET
          valueFrom: {secretKeyRef: {name: mine, key: password}}
      volumeMounts:
        - {name: oauth, mountPath: /mnt/oauth}
"""


def strimzis(folder: Path, variable: str, text: str = "", **given: Any) -> Any:
    """Return the setting `client.id` of cluster A. `variable`: its value in the resource, a
    variable of one of the operator's providers.
    """
    file = folder / "mirror.yaml"
    file.write_text(a_resource(a=f"      config: {{client.id: '{variable}'}}") + text)
    return load(file, **{"environment": {}, **given}).cluster("A").settings["client.id"]


def test_the_operators_providers_need_no_line(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "pw"})
    properties = tmp_path / "my.properties"
    properties.write_text("password = pw\n")
    for variable in (
        "${strimzienv:PASSWORD}",
        f"${{strimzifile:{properties}:password}}",
        f"${{strimzidir:{secrets}/mine:password}}",
        "${strimzisecrets:my-namespace/mine:password}",
    ):
        found = strimzis(tmp_path, variable, secrets=secrets, environment={"PASSWORD": "pw"})
        assert (found.value, found.shown) == ("pw", "<hidden>"), variable


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("${strimzienv:CLIENT_ID}", "me"),
        ("${strimzienv:CLIENT_SECRET}", "pw"),
        ("${strimzidir:/mnt/oauth:password}", "pw"),
        ("${strimzifile:/mnt/oauth/all.properties:user}", "you"),
    ],
)
def test_secrets_of_the_pod_are_found_in_the_folder(
    tmp_path: Path, variable: str, expected: str
) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "pw", "mine/all.properties": "user=you"})
    assert strimzis(tmp_path, variable, TEMPLATE, secrets=secrets).value == expected
    raw = read_raw(tmp_path / "mirror.yaml", secrets)
    assert raw.warnings == (), "template is used"


def test_secrets_of_the_old_external_configuration_are_found(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "pw"})
    old = """\
  externalConfiguration:
    env:
      - {name: P, valueFrom: {secretKeyRef: {name: mine, key: password}}}
    volumes:
      - {name: x, secret: {secretName: mine}}
"""
    for variable in (
        "${strimzienv:P}",
        "${strimzidir:/opt/kafka/external-configuration/x:password}",
    ):
        assert strimzis(tmp_path, variable, old, secrets=secrets).value == "pw"


def test_a_variable_of_the_pod_may_be_one_of_this_process(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"other/x": "y"})
    variable = "${strimzienv:CLIENT_SECRET}"
    environment = {"CLIENT_SECRET": "pw"}
    for folder in (None, secrets):
        found = strimzis(tmp_path, variable, TEMPLATE, secrets=folder, environment=environment)
        assert found.value == "pw"
    config = load(tmp_path / "mirror.yaml", environment={})
    (warning,) = [one for one in config.warnings if one.code == "UNRESOLVED"]
    assert warning.line == 8
    assert "set it in the environment, or set the folder of secrets" in warning.message


def test_providers_of_a_connector_are_read(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/topic": "orders", "mine/group": "payments"})
    mirror = """\
      sourceConnector:
        config: &shared
          config.providers: kubernetes
          config.providers.kubernetes.class: io.strimzi.kafka.KubernetesSecretConfigProvider
          topics: ${kubernetes:my-namespace/mine:topic}
      checkpointConnector:
        config:
          <<: *shared
          groups: ${kubernetes:my-namespace/mine:group}"""
    (flow,) = load_text(tmp_path, a_resource(mirror=mirror), secrets=secrets).flows
    assert flow.topics.matches("orders")
    assert not flow.topics.matches("invoices")
    assert flow.settings["groups"].value == "payments"
    environment = """\
      sourceConnector: {}
      checkpointConnector:
        config:
          config.providers: env
          config.providers.env.class: org.apache.kafka.common.config.provider.EnvVarConfigProvider
          groups: ${env:GROUPS}"""
    file = tmp_path / "mirror.yaml"
    file.write_text(a_resource(mirror=environment))
    (flow,) = load(file, environment={"GROUPS": "payments"}).flows
    assert flow.settings["groups"].value == "payments"


def test_custom_authentication_with_strimzis_handler(tmp_path: Path) -> None:
    secrets = secret_folder(tmp_path, {"mine/password": "pw"})
    handler = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
    a = f"""\
      tls: {{}}
      authentication:
        type: custom
        sasl: true
        config:
          sasl.login.callback.handler.class: {handler}
          sasl.mechanism: OAUTHBEARER
          sasl.jaas.config: |
            org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required
            oauth.token.endpoint.uri="https://id.example/token" oauth.client.id="me"
            oauth.client.secret="${{strimzienv:CLIENT_SECRET}}";"""
    config = load_text(tmp_path, a_resource(a=a) + TEMPLATE, secrets=secrets)
    client = config.flows[0].clients.source_admin
    security = load_security(client, where="A")
    assert security.oauth is not None
    assert security.oauth.client_secret == "pw"
    assert config.warnings == ()


def test_it_is_read_as_utf_8(tmp_path: Path) -> None:
    config = load_text(tmp_path, a_resource(mirror=COPY + "\n      topicsPattern: a, été"))
    assert config.flows[0].topics.matches("été")
    assert not [w for w in config.warnings if w.code == "NOT_ASCII"]
    (tmp_path / "mirror.yaml").write_bytes(b"kind: x\n# \xff\n")
    with pytest.raises(ConfigError, match=r"mirror.yaml:2: YAML must be UTF-8"):
        read_raw(tmp_path / "mirror.yaml")
