"""Config providers get values from files, folders and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import Loader, flow_of, refusal

PACKAGE = "org.apache.kafka.common.config.provider."
ENV = ("config.providers = env", f"config.providers.env.class = {PACKAGE}EnvVarConfigProvider")
FILE = ("config.providers = file", f"config.providers.file.class = {PACKAGE}FileConfigProvider")
FOLDER = (
    "config.providers = dir",
    f"config.providers.dir.class = {PACKAGE}DirectoryConfigProvider",
)


def password(read: Loader, *lines: str, environment: dict[str, str] | None = None) -> str:
    flow = flow_of(read(*lines, environment=environment))
    return flow.clients.source_admin["ssl.truststore.password"]


def test_from_the_environment(read: Loader) -> None:
    line = "A.ssl.truststore.password = <${env:PASS}-${env:MORE}>"
    environment = {"PASS": "p", "MORE": "${env:PASS}"}
    # variables within a value that was looked up are not replaced
    assert password(read, *ENV, line, environment=environment) == "<p-${env:PASS}>"


def test_from_a_file(read: Loader, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("pass = p\\u0041\u00e9\n", encoding="utf-8")
    line = f"A.ssl.truststore.password = ${{file:{tmp_path}/secrets:pass}}"
    assert password(read, *FILE, line) == "pA\u00e9"


def test_from_a_folder(read: Loader, tmp_path: Path) -> None:
    (tmp_path / "pass").write_text("p q")
    line = f"A.ssl.truststore.password = ${{dir:{tmp_path}:pass}}"
    assert password(read, *FOLDER, line) == "p q"


def test_the_name_of_a_provider_is_free(read: Loader) -> None:
    lines = (
        "config.providers = a, vault",
        f"config.providers.vault.class = {PACKAGE}EnvVarConfigProvider",
        "A.ssl.truststore.password = ${vault:X}",
    )
    assert password(read, *lines, environment={"X": "x"}) == "x"


@pytest.mark.parametrize(
    "value",
    [
        "${env:MISSING}",
        "${other:PASS}",
        "${env:path:PASS}",
        "$env:PASS",
        "${PASS}",
        "${env:PASS",
    ],
)
def test_placeholders_of_unknown_providers_stay_as_text(read: Loader, value: str) -> None:
    line = f"A.ssl.truststore.password = {value}"
    assert password(read, *ENV, line, environment={"PASS": "p"}) == value


def test_a_provider_that_is_not_named_does_nothing(read: Loader) -> None:
    lines = (ENV[1], "A.ssl.truststore.password = ${env:PASS}")
    assert password(read, *lines, environment={"PASS": "p"}) == "${env:PASS}"


@pytest.mark.parametrize("prefix", ["A.", "A->B.", "A.consumer.", "A->B.source.consumer."], ids=str)
def test_a_provider_may_be_named_for_a_cluster_a_flow_or_a_client(
    read: Loader, prefix: str
) -> None:
    """The providers of MirrorMaker 2's connectors and workers have prefixes of a cluster, a flow or
    a client. Variables are resolved by a provider with any of these prefixes.
    """
    lines = [f"{prefix}{line}" for line in ENV]
    config = read(
        *lines,
        "A.ssl.truststore.password = ${env:PASS}",
        "A->B.topics = ${env:TOPICS}",
        environment={"PASS": "p", "TOPICS": "orders.*"},
    )
    assert flow_of(config).topics.matches("orders-1")
    assert flow_of(config).clients.source_admin["ssl.truststore.password"] == "p"
    assert config.warnings == ()


def test_a_name_that_two_places_use_is_that_of_the_keys_own_prefix(
    read: Loader, tmp_path: Path
) -> None:
    (tmp_path / "topics").write_text("invoices")
    folder = f"config.providers.env.class = {PACKAGE}DirectoryConfigProvider"
    config = read(
        *ENV,
        "A->B.config.providers = env",
        f"A->B.{folder}",
        f"A->B.topics = ${{env:{tmp_path}:topics}}",
        "A.ssl.truststore.password = ${env:PASS}",
        environment={"PASS": "p"},
    )
    assert flow_of(config).topics.matches("invoices")
    assert flow_of(config).clients.source_admin["ssl.truststore.password"] == "p"


def test_a_wrong_provider_of_a_flow_is_the_only_error(read: Loader) -> None:
    message = refusal(
        lambda: read(
            "A->B.config.providers = v",
            "A->B.config.providers.v.class = com.example.Vault",
            "A->B.topics = ${v:x:y}",
        )
    )
    assert message.startswith("mm2.properties:6: A->B.config.providers.v.class: ")


@pytest.mark.parametrize(
    "line",
    [
        "A->B.topics = ${env:NOBODY_SET_IT}",
        "A->B.tasks.max = ${env:NOBODY_SET_IT}",
        "A->B.sync.topic.acls.enabled = ${env:NOBODY_SET_IT}",
        "A->B.offset-syncs.topic.location = ${env:NOBODY_SET_IT}",
    ],
)
def test_a_value_that_no_provider_has_is_reported_as_that(read: Loader, line: str) -> None:
    message = refusal(lambda: read(*ENV, line))
    assert message.startswith(f"mm2.properties:7: {line.split(maxsplit=1)[0]}: ")
    assert '"${env:NOBODY_SET_IT}" has a variable without a value' in message
    assert "no provider of config.providers has a value for it" in message


def test_only_listed_variables(read: Loader) -> None:
    lines = (*ENV, "config.providers.env.param.allowlist.pattern = MM2_.*")
    line = "A.ssl.truststore.password = ${env:MM2_X}${env:X}"
    environment = {"MM2_X": "1", "X": "2"}
    assert password(read, *lines, line, environment=environment) == "1${env:X}"


def test_only_listed_paths(read: Loader, tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pass").write_text(name)
    lines = (*FOLDER, f"config.providers.dir.param.allowed.paths = {tmp_path}/in")
    ways = (f"{tmp_path}/in", f"{tmp_path}/out", f"{tmp_path}/in/../out")
    found = [password(read, *lines, f"A.ssl.truststore.password = ${{dir:{w}:pass}}") for w in ways]
    assert found[0] == "in"
    assert all(value.startswith("${dir:") for value in found[1:])


def test_a_flow_may_be_switched_by_a_variable(read: Loader) -> None:
    lines = (*ENV, "B->A.enabled = ${env:BACK}")
    assert len(read(*lines, environment={"BACK": "true"}).flows) == 2
    assert len(read(*lines, environment={"BACK": "false"}).flows) == 1


def test_an_address_that_no_provider_knows_is_reported_as_that(read: Loader) -> None:
    message = refusal(lambda: read(*ENV, "A.bootstrap.servers = ${env:NOBODY_SET_IT}"))
    assert message.startswith("mm2.properties:7: A.bootstrap.servers: ")
    assert "no provider of config.providers has a value for it" in message


def test_an_unreadable_file_names_the_line(read: Loader, tmp_path: Path) -> None:
    line = f"A.ssl.truststore.password = ${{file:{tmp_path}/none:pass}}"
    message = refusal(lambda: read(*FILE, line))
    assert message.startswith("mm2.properties:7: A.ssl.truststore.password: ")
    assert "No such file" in message


def test_an_unknown_provider_class_is_refused(read: Loader) -> None:
    message = refusal(
        lambda: read("config.providers = v", "config.providers.v.class = com.example.Vault")
    )
    assert message.startswith("mm2.properties:6: config.providers.v.class: ")
    assert "is not supported" in message
