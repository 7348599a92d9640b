"""Every key of every table can be set at its place, and `check` shows its effect with its line."""

from __future__ import annotations

import pytest

from tests.support.properties import Loader, flow_of
from twinlog.config.advice.explanation import CLIENT_MEANINGS, ClientKey, explain, without_meaning
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.client_keys import Role
from twinlog.config.keys.key_table import (
    DEFINITIONS,
    PROCESS_KEYS,
    RENAMED,
    WORKER_KEYS,
    KeyDefinition,
    KeyKind,
    KeyScope,
    Support,
)
from twinlog.config.values.warnings import WarningCode

USELESS = {WarningCode.UNKNOWN_KEY, WarningCode.DEAD_KEY, WarningCode.FLOW_OFF}
VALUES = {
    KeyKind.BOOLEAN: "true",
    KeyKind.SHORT: "1",
    KeyKind.INT: "1",
    KeyKind.LONG: "1048576",
    KeyKind.STRING: "x",
    KeyKind.LIST: "",
    KeyKind.NAMES: "a.*, b",
}
CLIENT_VALUES = {
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "latest",
    "compression.type": "zstd",
}
OF_CLASSES = (
    *("key.converter", "value.converter", "header.converter", "metric.reporters", "plugin.path"),
    *("rest.extension.classes", "partitioner.class", "security.providers"),
    *("connector.client.config.override.policy", "interceptor.classes"),
    *("key.serializer", "value.serializer"),
)
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CLASSES = dict.fromkeys(OF_CLASSES, BYTES)
"""Values of the keys whose value is a Java class. Other classes are refused or cause a warning
(test_warnings.py).
"""
OF_FEW_VALUES = {"twinlog.transforms.quarantine.topic": "__x"}
VALUES_OF_OLD = {"twinlog.source.start": "latest"}
ALIAS_OF = {Role.PRODUCER: "B", Role.CONSUMER: "A", Role.ADMIN: "A"}


def value_of(definition: KeyDefinition) -> str:
    if definition.name == "enabled":
        return "true"
    if definition.kind is KeyKind.CHOICE:
        return definition.choices[0]
    named = CLASSES | OF_FEW_VALUES
    return definition.default or named.get(definition.name) or VALUES[definition.kind]


def useless(config: MirrorConfig) -> list[str]:
    return [str(warning) for warning in config.warnings if warning.code in USELESS]


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
@pytest.mark.parametrize("prefix", ["", "A->B."])
def test_a_key_of_flows(read: Loader, definition: KeyDefinition, prefix: str) -> None:
    if definition.name == "enabled":
        prefix = "A->B."  # without a prefix, B->A would also be enabled
    config = read(f"{prefix}{definition.name} = {value_of(definition)}")
    assert useless(config) == []
    (explained,) = [one for one in explain(flow_of(config)).keys if one.line == 5]
    assert (explained.key, explained.support) == (f"{prefix}{definition.name}", definition.support)
    assert explained.meaning


@pytest.mark.parametrize(
    "name", [name for name, one in DEFINITIONS.items() if one.scope is KeyScope.TARGET]
)
def test_a_key_of_the_target(read: Loader, name: str) -> None:
    config = read(f"B.{name} = {value_of(DEFINITIONS[name])}")
    assert useless(config) == []
    assert f"B.{name}" in {one.key for one in explain(flow_of(config)).keys}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_acts_and_names_the_new_one(read: Loader, old: str) -> None:
    config = read(f"{old} = {VALUES_OF_OLD.get(old, 'a.*, b')}")
    (warning,) = [one for one in config.warnings if one.code is WarningCode.DEPRECATED_KEY]
    assert (warning.line, RENAMED[old] in warning.message) == (5, True)
    assert old in {one.key for one in explain(flow_of(config)).keys if one.line == 5}


@pytest.mark.parametrize("name", sorted(WORKER_KEYS - set(DEFINITIONS)))
def test_a_key_of_connects_workers(read: Loader, name: str) -> None:
    config = read(f"B.{name} = {CLASSES.get(name, '1')}")
    assert useless(config) == []
    assert [one.line for one in without_meaning(config)] == [5]


@pytest.mark.parametrize("name", sorted(PROCESS_KEYS - {"clusters", "listeners"}))
def test_a_key_of_the_process(read: Loader, name: str) -> None:
    config = read(f"{name} = {CLASSES.get(name, 'true')}")
    assert useless(config) == []
    assert [one.line for one in without_meaning(config)] == [5]


@pytest.mark.parametrize("row", CLIENT_MEANINGS, ids=lambda row: f"{row.role}.{row.name}")
def test_a_setting_of_a_client(read: Loader, row: ClientKey) -> None:
    key = f"{ALIAS_OF[row.role]}.{row.role}.{row.name}"
    config = read(f"{key} = {({**CLIENT_VALUES, **CLASSES}).get(row.name, '5000')}")
    assert useless(config) == []
    (explained,) = [one for one in explain(flow_of(config)).keys if one.line == 5]
    assert (explained.key, explained.support, explained.meaning) == (key, row.support, row.meaning)
    named = {one.line for one in without_meaning(config)}
    assert named == ({5} if row.support is Support.NO_MEANING else set())
