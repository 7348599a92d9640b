"""Decides which Java class names in the file have a counterpart in Twinlog, and rejects all others.

A custom policy or filter decides where records are copied. Without it records would be copied to
the wrong topics, so an unknown class is an error and never ignored.
"""

from __future__ import annotations

from dataclasses import replace

from twinlog.config.flow.connect import IN_PYTHON
from twinlog.config.flow.custom_classes import METHODS, SEPARATES, keeps_names
from twinlog.config.flow.precedence import setting_of
from twinlog.config.flow.schema import FlowProperties, PolicyConfig, PolicyKind
from twinlog.config.keys.client_keys import CLIENT_KEYS, Role, class_name
from twinlog.config.keys.key_table import DEFINITIONS, MIRROR_PACKAGE
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.renames import KEY, NO_RENAMES, Router, to_renames
from twinlog.config.values.types import parse_boolean, to_list, trimmed

_POLICY_CLASS = "replication.policy.class"
SEPARATOR = "replication.policy.separator"
SOURCE_ALIAS = "source.cluster.alias"
_INTERNAL_SEPARATOR_ENABLED = "replication.policy.internal.topic.separator.enabled"
_DEFAULT_SEPARATOR = "."

IDENTITY_CLASS = MIRROR_PACKAGE + "IdentityReplicationPolicy"
POLICY_CLASSES = {
    MIRROR_PACKAGE + "DefaultReplicationPolicy": PolicyKind.DEFAULT,
    IDENTITY_CLASS: PolicyKind.IDENTITY,
    # widely used identity policies from before Kafka had an identity policy
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": PolicyKind.IDENTITY,
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": PolicyKind.IDENTITY,
}

_ADMIN = "forwarding.admin.class"
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_BYTES = ("org.apache.kafka.connect.converters.ByteArrayConverter", "ByteArrayConverter")
_CANNOT_RUN = "Twinlog cannot run the Java class"
_COPY_DIFFERS = "the copy would differ"
_REMOVE = "remove the line from flows that Twinlog runs"
_CHANGES_RECORDS = (_COPY_DIFFERS, IN_PYTHON)
_CLASSES_OF_CLIENTS = {
    "interceptor.classes": _CHANGES_RECORDS,
    "key.serializer": _CHANGES_RECORDS,
    "value.serializer": _CHANGES_RECORDS,
    "security.providers": ("connections would be secured differently", _REMOVE),
}
_KAFKAS = "org.apache.kafka."
"""Package of Kafka's own classes, which clients may use because they do not change the copy."""


def policy_config(settings: Settings) -> PolicyConfig:
    """Return the replication policy of a flow."""
    separator = _DEFAULT_SEPARATOR
    internal = _DEFAULT_SEPARATOR
    setting = settings.get(SEPARATOR)
    if setting is not None:
        # a blank separator becomes a dot, because names of heartbeats topics need one
        separator = trimmed(setting.value) or _DEFAULT_SEPARATOR
        flag = settings.get(_INTERNAL_SEPARATOR_ENABLED)
        # KIP-949: the flag is read only if the separator is set
        internal = (
            trimmed(setting.value)
            if flag is None or parse_boolean(trimmed(flag.value))
            else _DEFAULT_SEPARATOR
        )
    setting = settings.get(_POLICY_CLASS)
    is_custom = setting is not None and SEPARATES in setting.value
    renames = settings.get(KEY)
    if renames is not None and trimmed(renames.value) and is_custom:
        raise refuse(
            renames,
            "a custom replication policy names the topics itself",
            f"set the names in its format_remote_topic, or remove {_POLICY_CLASS}",
        )
    kind = _policy_kind(setting)
    if kind is PolicyKind.DEFAULT and is_blank(settings, SEPARATOR):
        if is_custom or not is_blank(settings, SOURCE_ALIAS):
            raise refuse(
                settings[SEPARATOR],
                "with an empty separator the alias cannot be found in a topic's name",
                f"write {_POLICY_CLASS} = {IDENTITY_CLASS} if topics should keep their "
                "names; otherwise remove the line, or set a separator",
            )
        # without alias and separator, the default policy keeps topic names
        kind = PolicyKind.IDENTITY
    return PolicyConfig(
        kind=kind,
        separator=separator,
        internal_separator=internal,
        custom=trimmed(setting.value) if setting is not None and is_custom else "",
        renames=NO_RENAMES if renames is None else to_renames(renames),
    )


def with_routers(
    policy: PolicyConfig, routers: tuple[Router, ...], settings: Settings
) -> PolicyConfig:
    """Return the policy with routers, which rename the topics that the policy has named."""
    if routers and policy.custom:
        raise refuse(
            settings[f"{routers[0]}.type"],
            "a custom replication policy names the topics itself",
            "set the names in its format_remote_topic, and remove the line",
        )
    return replace(policy, renames=replace(policy.renames, routers=routers))


def is_blank(settings: Settings, name: str) -> bool:
    """Return True if a key is set to an empty value."""
    setting = settings.get(name)
    return setting is not None and not trimmed(setting.value)


def _policy_kind(setting: Setting | None) -> PolicyKind:
    if setting is None:
        return PolicyKind.DEFAULT
    name = trimmed(setting.value)
    if SEPARATES in name:
        return PolicyKind.IDENTITY if keeps_names(setting, name) else PolicyKind.DEFAULT
    if name in POLICY_CLASSES:
        return POLICY_CLASSES[name]
    full = next((known for known in POLICY_CLASSES if known.endswith(f".{name}")), None)
    if full:
        raise refuse(setting, f"{setting.shown} lacks its package", f"write {full}")
    raise refuse(
        setting,
        f"the class {setting.shown} is not supported",
        "use DefaultReplicationPolicy or IdentityReplicationPolicy of "
        f"{MIRROR_PACKAGE[:-1]}, or a Python class as package.module:Class",
    )


def refuse_java_classes(settings: Settings, clients: FlowProperties) -> None:
    """Raise ConfigError for classes that would change what is copied, or how clients
    are secured.
    """
    _refuse_other_classes(settings, clients)
    for name, method in METHODS.items():
        setting = setting_of(settings, name)
        if SEPARATES not in setting.value and trimmed(setting.value) != DEFINITIONS[name].default:
            raise refuse(
                setting,
                f"{_CANNOT_RUN} {setting.shown}, so {_COPY_DIFFERS}",
                f"write package.module:Class of a Python class with {method}(name), or remove the "
                "line and use the *.exclude keys",
            )
    admin = setting_of(settings, _ADMIN)
    if trimmed(admin.value) != DEFINITIONS[_ADMIN].default:
        raise refuse(
            admin,
            f"{_CANNOT_RUN} {admin.shown}, so remote topics would not be created where that class "
            "creates them",
            "remove the line if topics can be created on the target itself; or create them "
            "beforehand, with topic.creation.enable = false",
        )


def _refuse_other_classes(settings: Settings, clients: FlowProperties) -> None:
    """Raise ConfigError for a client's class that is not Kafka's own, or for a converter that
    changes bytes.
    """
    for role, client in (
        (Role.CONSUMER, clients.source_consumer),
        (Role.ADMIN, clients.source_admin),
        (Role.ADMIN, clients.target_admin),
        (Role.PRODUCER, clients.target_producer),
    ):
        for name, (effect, todo) in _CLASSES_OF_CLIENTS.items():
            if name not in client or name not in CLIENT_KEYS[role]:
                continue
            setting = client.origin(name)
            if not all(class_name(part).startswith(_KAFKAS) for part in to_list(setting) if part):
                raise refuse(setting, f"{_CANNOT_RUN} {setting.shown}, so {effect}", todo)
    for name in _CONVERTERS:
        converter = settings.get(name) or settings.get(f"target.cluster.{name}")
        if converter is not None and class_name(converter.value) not in ("", *_BYTES):
            what = f"{_CANNOT_RUN} {converter.shown}, which changes the bytes of records"
            raise refuse(converter, what, IN_PYTHON)
