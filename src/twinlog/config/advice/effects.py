"""Determines whether a key has an effect where it is written, or else what was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from twinlog.config.flow.connect import CONNECT_PREFIXES
from twinlog.config.flow.custom_classes import METHODS, SEPARATES
from twinlog.config.keys.client_keys import (
    CLIENT_KEYS,
    CONNECTION_KEYS,
    SECURITY_KEYS,
    Role,
    is_connection_key,
)
from twinlog.config.keys.key_table import (
    CERTIFICATE_FILE,
    CONNECTOR_NAMES,
    LISTENER_PREFIXES,
    OWN_FLOW_NAMES,
    OWN_PREFIX,
    OWN_PROCESS_NAMES,
    OWN_TARGET_NAMES,
    PRIVATE_KEY_FILE,
    PROCESS_KEYS,
    TOP_LEVEL_WORKER_PREFIXES,
    TRANSFORMS,
    WORKER_KEYS,
    WORKER_MEANINGS,
)
from twinlog.config.values.nearest import nearest
from twinlog.model import Flow

_ANY_CLIENT = frozenset[str]().union(*CLIENT_KEYS.values())
_CONVERTERS = ("key.converter.", "value.converter.", "header.converter.")
_OF_TRANSFORMS = f"{TRANSFORMS}."
_NEW_TOPICS = "topic.creation."
_FREE_PREFIXES = (
    _OF_TRANSFORMS,
    *CONNECT_PREFIXES,
    _NEW_TOPICS,
    "metrics.context.",
    *_CONVERTERS,
)
"""Users choose the names of keys below these prefixes."""

_FIXED_FAMILIES = ("replication.policy", "task", "worker")
"""Prefixes with which MirrorMaker 2 reads all keys, although only known names have a meaning."""

_MAKES_NO_TOPIC = (
    "creates no topic: remote topics are created like the source topics, with replication.factor; "
    "if a topic should have other settings, create it beforehand"
)
_HTTPS = (
    "belongs to MirrorMaker 2's REST server; for https write "
    f"{CERTIFICATE_FILE} and {PRIVATE_KEY_FILE}"
)
_WITHOUT_EFFECT = {
    "topic.creation.enable": "",
    _NEW_TOPICS: _MAKES_NO_TOPIC,
    **dict.fromkeys(LISTENER_PREFIXES, _HTTPS),
}
"""Why a key, or each key with this prefix, has no effect; empty if such keys have an effect."""


def _why_without_effect(name: str) -> str:
    return next((why for start, why in _WITHOUT_EFFECT.items() if name.startswith(start)), "")


_PLUGINS = (
    *("metric.reporters", "rest.extension.classes", "partitioner.class", "security.providers"),
    *("plugin.path", "connector.client.config.override.policy", "interceptor.classes"),
    *("forwarding.admin.class", *METHODS),
)
"""Last parts of keys whose values are Java classes, or folders of Java classes."""
_OF_ADOPTION = ("group.id", "offset.storage.topic")
"""Keys that `twinlog mirror --adopt-mm2` reads."""
_KAFKAS = ("org.apache.kafka.", "All", "None", "Principal")


def why_without_effect(name: str, value: str) -> str:
    """Return why a key of MirrorMaker 2 has no effect, or an empty text if it has one. A key that
    names Java classes has none, except Kafka's own classes.
    """
    if why := _why_without_effect(name):
        return why
    classes = [class_name for class_name in map(str.strip, value.split(",")) if class_name]
    is_java = not all(
        class_name.startswith(_KAFKAS) or SEPARATES in class_name for class_name in classes
    )
    if name.endswith(_PLUGINS) and is_java:
        return "no Java class is loaded here, so the line has no effect; remove it"
    return ""


_OF_FLOWS = {
    name
    for name in (CONNECTOR_NAMES | OWN_FLOW_NAMES) - SECURITY_KEYS
    if not _why_without_effect(name)
}
"""Keys to suggest for a misspelt key of a flow."""

_SIDES = ("source", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEffect:
    """Whether a key has an effect. `known`: Twinlog or MirrorMaker 2 reads the key. `dead`: the key
    exists, but has no effect with its prefix, or in Twinlog at all.
    """

    known: bool = False
    dead: bool = False
    reason: str = ""
    advise: Callable[[], str] = str

    @property
    def instead(self) -> str:
        """What to write instead, or an empty text. Computed only on demand, because it takes
        milliseconds to find the nearest name. Most keys are known, at least with one of the
        prefixes that they may have.
        """
        return self.advise()


_KNOWN = KeyEffect(known=True)


def dead(reason: str, instead: str) -> KeyEffect:
    """Return the effect of a key that has none where it is written."""
    return KeyEffect(dead=True, reason=reason, advise=lambda: instead)


def _unknown_key(prefix: str, name: str, candidates: Iterable[str]) -> KeyEffect:
    def advise() -> str:
        near = nearest(name, candidates)
        return f"did you mean {prefix}{near}?" if near else ""

    is_own = name.startswith(OWN_PREFIX)
    return KeyEffect(
        reason="no such key" if is_own else "unknown key, nothing reads it", advise=advise
    )


def judge_general(name: str) -> KeyEffect:
    """Return the effect of a key without a prefix, which is for every flow or the process."""
    if name in OWN_PROCESS_NAMES:
        return _KNOWN
    if name in CONNECTOR_NAMES | OWN_FLOW_NAMES | PROCESS_KEYS or is_connection_key(name):
        # invented ssl.* names are unknown keys, although is_connection_key accepts them
        return _judge_connection("", name)
    families = ("replication.policy", _OF_TRANSFORMS, *CONNECT_PREFIXES, *LISTENER_PREFIXES)
    if name.startswith((*families, *TOP_LEVEL_WORKER_PREFIXES)):
        return _known_or_near("", name)
    role = _role_of(name)
    if role:
        return _judge_without_cluster(name, role)
    if name in WORKER_KEYS:
        return _judge_of_worker(name)
    of_workers = {key for key in WORKER_KEYS if key.startswith(TOP_LEVEL_WORKER_PREFIXES)}
    return _unknown_key("", name, CONNECTOR_NAMES | PROCESS_KEYS | OWN_FLOW_NAMES | of_workers)


def _judge_of_worker(name: str) -> KeyEffect:
    if name in _OF_ADOPTION:
        return dead("a worker's setting is read per target", f"write <target alias>.{name}")
    return dead(f"a setting of Connect's workers: {WORKER_MEANINGS[name]}", "remove the line")


def _judge_without_cluster(name: str, role: Role) -> KeyEffect:
    """Return the effect of a key such as `producer.x`, which reaches no client, because it names no
    cluster.
    """
    override = f"{role}.override."
    key = name.removeprefix(override).removeprefix(f"{role}.")
    key = _near_or_same(key, CLIENT_KEYS[role])
    if role is Role.PRODUCER and name.startswith(override):
        return dead("an override is read per flow", f"write <flow>.{override}{key}")
    return dead(f"{role} settings without a cluster reach no client", f"write <alias>.{role}.{key}")


def _known_or_near(prefix: str, name: str) -> KeyEffect:
    """Return the effect of a key below a prefix. All keys below such prefixes are read, although
    only certain names have a meaning.
    """
    if name.startswith(CONNECT_PREFIXES):
        return dead("a transform is read per flow", f"write <flow>.{name}")
    family = {key for key in CONNECTOR_NAMES | WORKER_KEYS if key.startswith(_FIXED_FAMILIES)}
    if name.startswith(_FIXED_FAMILIES) and name not in family:
        return _unknown_key(prefix, name, family)
    return _KNOWN


def judge_cluster(alias: str, name: str) -> KeyEffect:
    """Return the effect of `alias.name`."""
    prefix = f"{alias}."
    if is_connection_key(name):
        return _judge_connection(prefix, name)
    if name in WORKER_KEYS or name in OWN_TARGET_NAMES or name.startswith(_CONVERTERS):
        return _KNOWN
    if name in CONNECTOR_NAMES | OWN_FLOW_NAMES or name.startswith(_OF_TRANSFORMS):
        return dead(
            "is a setting of a flow, not of a cluster",
            f"write {alias}->X.{name}, or {name} for all flows",
        )
    role = _role_of(name)
    if role:
        return _judge_client(prefix, name, role)
    return _judge_of_no_cluster(prefix, name)


def _judge_of_no_cluster(prefix: str, name: str) -> KeyEffect:
    """Return the effect of a key that neither a cluster nor a client's role reads."""
    if name.startswith(CONNECT_PREFIXES):
        return dead("is a setting of a flow, not of a cluster", f"write {prefix[:-1]}->X.{name}")
    if name in OWN_PROCESS_NAMES:
        return dead("is a setting of the process", f"write {name}")
    if name in _ANY_CLIENT:
        roles = [f"{prefix}{role}.{name}" for role in Role if name in CLIENT_KEYS[role]]
        what = "has no effect without consumer., producer. or admin. before it"
        return dead(what, f"write {' or '.join(roles)}")
    client_names = (f"{role}.{key}" for role in Role for key in CLIENT_KEYS[role])
    return _unknown_key(prefix, name, {*WORKER_KEYS, *CONNECTION_KEYS, *client_names})


def judge_flow(flow: Flow, name: str) -> KeyEffect:
    """Return the effect of `A->B.name`."""
    if is_connection_key(name):
        name = _near_or_same(name, CONNECTION_KEYS)
        return dead(
            "a connection belongs to a cluster, not to a flow",
            f"write {flow.source}.{name} or {flow.target}.{name}",
        )
    # a key of a group of new topics has at least four parts; others are misspelt
    is_free = name.startswith(_FREE_PREFIXES) and (
        not name.startswith(_NEW_TOPICS) or name.count(".") > _NEW_TOPICS.count(".")
    )
    if is_free or name in CONNECTOR_NAMES | OWN_FLOW_NAMES:
        return _KNOWN
    sided = _judge_sided(flow, name)
    if sided:
        return sided
    role = _role_of(name)
    if role:
        return _judge_flow_client(flow, name, role)
    return _judge_elsewhere(flow, name)


def _judge_elsewhere(flow: Flow, name: str) -> KeyEffect:
    """Return the effect of a key that is not read for a flow."""
    if name in OWN_PROCESS_NAMES:
        return dead("is a setting of the process", f"write {name}")
    if name in WORKER_KEYS:
        return dead(
            "is a setting of the worker for a target, not of a flow", f"write {flow.target}.{name}"
        )
    return _unknown_key(f"{flow}.", name, _OF_FLOWS)


def _judge_sided(flow: Flow, name: str) -> KeyEffect | None:
    """Return the effect of `A->B.source.cluster.x`, `A->B.target.consumer.x` and similar keys, or
    None for other keys.
    """
    side, _, rest = name.partition(".")
    if side not in _SIDES:
        return None
    if rest.startswith("cluster.") and is_connection_key(rest.removeprefix("cluster.")):
        return _KNOWN
    if is_connection_key(rest):
        key = _near_or_same(rest, CONNECTION_KEYS)
        scope = f"{flow}.source.cluster" if side == "source" else flow.target
        return dead("has no effect with this prefix", f"write {scope}.{key}")
    role = _role_of(rest)
    if role is Role.PRODUCER:
        return _judge_producer(flow, rest)
    return _judge_client(f"{flow}.{side}.", rest, role) if role else None


def _judge_flow_client(flow: Flow, name: str, role: Role) -> KeyEffect:
    override = f"{role}.override."
    if name.startswith(override):
        key = name[len(override) :]
        if role is not Role.PRODUCER:
            key = _near_or_same(key, CLIENT_KEYS[role])
            sides = ("source",) if role is Role.CONSUMER else _SIDES
            instead = " or ".join(f"{flow}.{side}.{role}.{key}" for side in sides)
            return dead("Kafka Connect overrides only the producer", f"write {instead}")
        if key in CLIENT_KEYS[role]:
            return _KNOWN
        return _unknown_key(f"{flow}.{override}", key, CLIENT_KEYS[role])
    if role is Role.PRODUCER:
        return _judge_producer(flow, name)
    return _judge_client(f"{flow}.", name, role)


def _judge_producer(flow: Flow, name: str) -> KeyEffect:
    """Return the effect of a producer's key that only MirrorMaker 2's producer of offset syncs
    reads.
    """
    key = name.removeprefix("producer.").removeprefix("override.")
    key = _near_or_same(key, CLIENT_KEYS[Role.PRODUCER])
    return dead(
        "does not reach the producer of the copied records",
        f"write {flow.target}.producer.{key} or {flow}.producer.override.{key}",
    )


def _judge_client(prefix: str, name: str, role: Role) -> KeyEffect:
    key = name[len(role.value) + 1 :]
    if key in CLIENT_KEYS[role]:
        return _KNOWN
    return _unknown_key(f"{prefix}{role}.", key, CLIENT_KEYS[role])


def _judge_connection(prefix: str, name: str) -> KeyEffect:
    if name.startswith(("ssl.", "sasl.")) and name not in SECURITY_KEYS | {"ssl.client.auth"}:
        return _unknown_key(prefix, name, SECURITY_KEYS)
    return _KNOWN


def _near_or_same(name: str, known_names: Collection[str]) -> str:
    """Return the nearest known name, or the name itself if it is known or none is near."""
    return name if name in known_names else nearest(name, known_names) or name


def _role_of(name: str) -> Role | None:
    return next((role for role in Role if name.startswith(f"{role}.")), None)
