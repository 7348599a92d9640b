"""An invalid file causes one line with the problem, its position and the remedy. The line contains
no secret.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import BASE, Loader, refusal, warnings_of
from twinlog.config.files.providers import PACKAGE
from twinlog.config.load import load
from twinlog.config.values.warnings import WarningCode
from twinlog.errors import ConfigError

CLUSTERS, A_SERVERS, B_SERVERS, ENABLED = BASE


def test_no_such_file(tmp_path: Path) -> None:
    message = refusal(lambda: load(tmp_path / "mm2.properties", environment={}))
    assert message.startswith("mm2.properties: no such file")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; name"):
        load(tmp_path, environment={})
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read: Not a directory; check path"):
        load(tmp_path / "file" / "mm2.properties", environment={})


@pytest.mark.parametrize(
    "lines",
    [
        (f"offset.lag.max = {'1' * 5000}",),
        (f"A->B.producer.override.bootstrap.servers = b:{'1' * 5000}",),
        (f"topics = a{{{'9' * 5000}}}",),
        (f"topics = {'(' * 5000}a{')' * 5000}",),
        (
            "topics = ${file:/a\\u0000b:c}",
            "config.providers = file",
            f"config.providers.file.class = {PACKAGE}FileConfigProvider",
        ),
    ],
)
def test_a_value_that_python_cannot_use_is_an_error_of_its_line(
    read: Loader, lines: tuple[str, ...]
) -> None:
    message = refusal(lambda: read(*lines))
    assert message.startswith(f"mm2.properties:5: {lines[0].partition(' ')[0]}: ")


@pytest.mark.parametrize(
    ("base", "starts", "holds"),
    [
        ([], "mm2.properties: clusters: missing", "clusters = A, B"),
        (["cluster = A, B"], "mm2.properties:1: cluster: no such key; did you mean clusters?", ""),
        (
            ["name = x", "source.cluster.bootstrap.servers = a:1"],
            "mm2.properties:2: source.cluster.bootstrap.servers: this is the configuration of a",
            "add connector.class = MirrorSourceConnector or MirrorCheckpointConnector",
        ),
        (["clusters ="], "mm2.properties:1: clusters: has no cluster", "clusters = A, B"),
        (["# x", "clusters = ,"], "mm2.properties:2: clusters: has no cluster", ""),
        (
            [CLUSTERS, A_SERVERS, B_SERVERS],
            "mm2.properties: No source->target replication flows",
            "A->B.enabled = true",
        ),
        (["clusters = A"], "mm2.properties: No source->target", "set two clusters"),
        (
            [CLUSTERS, A_SERVERS, B_SERVERS, "A->B.enable = true"],
            "mm2.properties:4: A->B.enable: ",
            "did you mean A->B.enabled?",
        ),
        (["clusters = A; B"], "mm2.properties:1: clusters: ", "separate aliases by commas"),
        ([f"\ufeff{CLUSTERS}"], "mm2.properties:1: ", "byte order mark"),
        ([CLUSTERS, 'A.bootstrap.servers = "a:1"', B_SERVERS, ENABLED], "", "remove the quotes"),
        (
            [CLUSTERS, A_SERVERS, ENABLED],
            "mm2.properties: B.bootstrap.servers: missing, and A->B needs it",
            "add: B.bootstrap.servers = ",
        ),
        (
            [CLUSTERS, A_SERVERS, B_SERVERS, "A->X.enabled = true"],
            "mm2.properties:4: A->X.enabled: X is not a cluster",
            "`clusters` has A, B",
        ),
        (
            [CLUSTERS, A_SERVERS, B_SERVERS, "A->A.enabled = true"],
            "mm2.properties:4: A->A.enabled: source and target are the same cluster",
            "",
        ),
        ([*BASE[:3], "A -> B.enabled = true"], "mm2.properties:4: A: a key ends at the", "A->..."),
        (["clusters = us-west, us-east", "us-west->us-est.enabled = true"], "", "us-east? "),
        (
            ["clusters = prod, dr", "prod->DR.enabled = true"],
            "",
            "DR is not a cluster; did you mean dr?",
        ),
        (["clusters = A, B", "b->A.enabled = true"], "", "b is not a cluster; did you mean B?"),
        (
            [*BASE[:3], "A->B.enabled = true  # disabled by default"],
            'mm2.properties:4: A->B.enabled: "true  # disabled by default" is not exactly true',
            "write: A->B.enabled = true",
        ),
        ([*BASE, "a=\\u12"], "mm2.properties:5: \\u must be followed by", ""),
    ],
)
def test_each_error_is_reported_once(
    read: Loader, base: list[str], starts: str, holds: str
) -> None:
    message = refusal(lambda: read(base=base))
    assert message.startswith(starts)
    assert holds in message
    assert message.endswith("[CONFIG_INVALID]")


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("twinlog.lease.second = 3", "no such key; did you mean twinlog.lease.seconds?"),
        ("A->B.twinlog.nothing = 3", "no such key; docs/configuration.md lists all keys"),
        (
            "B.twinlog.lease.seconds = 3",
            "is a setting of a flow, not of a cluster; "
            "write B->X.twinlog.lease.seconds, or twinlog.lease.seconds for all flows",
        ),
        ("B.twinlog.stat.topic.replication.factor = 1", "did you mean B.twinlog.state.topic."),
    ],
)
def test_own_keys_must_exist_at_their_position(read: Loader, line: str, holds: str) -> None:
    message = refusal(lambda: read(line))
    assert message.startswith(f"mm2.properties:5: {line.split(maxsplit=1)[0]}: ")
    assert holds in message


@pytest.mark.parametrize("clusters", [["b"], ["B", "C"], ["B,C"]])
def test_nearby_clusters_must_be_known(read: Loader, clusters: list[str]) -> None:
    message = refusal(lambda: read(clusters=clusters))
    assert message.startswith("--clusters: ")
    assert "it has A, B" in message


def test_no_flow_into_the_nearby_cluster(read: Loader) -> None:
    message = refusal(lambda: read(clusters=["A"]))
    assert "No source->target replication flows into A; add: B->A.enabled = true" in message


SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    "line",
    [
        f"A->X.sasl.jaas.config = {SECRET}",
        f"A.ssl.keystore.pasword = {SECRET} # x",
        f"sasl.oauthbearer.client.credentials.client.secrets = {SECRET}",
        f"A.ssl.truststore.password = ${{file:/x:{SECRET}}}",
    ],
)
def test_no_value_of_a_secret_key_is_shown(read: Loader, line: str) -> None:
    try:
        shown = "\n".join(map(str, read(line).warnings))
    except ConfigError as error:
        shown = str(error)
    assert shown
    assert SECRET not in shown


def test_a_value_from_a_provider_is_not_shown(read: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        read(
            "config.providers = env",
            "config.providers.env.class = "
            "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "replication.factor = ${env:FACTOR}",
            environment={"FACTOR": SECRET},
        )
    assert SECRET not in str(caught.value)
    assert "<hidden> is not a whole number" in str(caught.value)


def test_a_repr_shows_no_secret(read: Loader) -> None:
    config = read(
        f'A.sasl.jaas.config = PlainLoginModule required password="{SECRET}";',
        f"B.ssl.truststore.password = {SECRET}",
        f"B.ssl.keystore.key = {SECRET}",
    )
    flow = config.flows[0]
    assert SECRET not in repr(config)
    assert SECRET not in repr(flow.settings)
    assert SECRET not in repr(flow.clients.target_producer)
    assert SECRET not in repr(config.cluster("A").settings)
    # but the setting itself has the secret
    assert flow.clients.target_producer["ssl.truststore.password"] == SECRET


def test_a_line_that_lost_its_continuation_does_not_show_the_password(read: Loader) -> None:
    config = read(
        "A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required",
        f'"{SECRET}"; = x',
    )
    (warning,) = warnings_of(config, WarningCode.UNKNOWN_KEY)
    assert SECRET not in str(warning)
    assert warning.line == 6


def test_a_consequence_of_a_wrong_line_is_no_separate_error(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\ntwinlog.rpo.seconds = soon\ntwinlog.rpo.enforce = quota\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, environment={})
    assert [error.key for error in caught.value.each] == ["twinlog.rpo.seconds"]
