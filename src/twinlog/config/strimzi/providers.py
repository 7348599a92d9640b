"""Resolves variables in a resource's values as they are resolved in the operator's pods.

The operator names four config providers (`strimzienv`, `strimzifile`, `strimzidir`,
`strimzisecrets`), sets environment variables of the pods, and mounts secrets into them. Twinlog
reads these secrets from the folder of `--secrets`, like the secrets that fields name. If the folder
is not given, or lacks a secret, environment variables are those of this process, and paths are
those of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.config.files.providers import PACKAGE, PROVIDERS, provider_scopes
from twinlog.config.keys.client_keys import class_name
from twinlog.config.strimzi.secrets import Named, Secrets
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import to_list
from twinlog.errors import ConfigError

_OF_SECRETS: Final = "KubernetesSecretConfigProvider"
SECRET_PROVIDERS: Final = frozenset((f"io.strimzi.kafka.{_OF_SECRETS}", _OF_SECRETS))
_ENVIRONMENT: Final = "strimzienv"
_ADDED: Final = {
    _ENVIRONMENT: PACKAGE + "EnvVarConfigProvider",
    "strimzifile": PACKAGE + "FileConfigProvider",
    "strimzidir": PACKAGE + "DirectoryConfigProvider",
    "strimzisecrets": f"io.strimzi.kafka.{_OF_SECRETS}",
}
OF_PODS: Final = ("template", "externalConfiguration")
"""Fields of `spec` that set variables and mount secrets."""
_OLD_MOUNTS: Final = "/opt/kafka/external-configuration"


@dataclass(frozen=True, slots=True)
class _Named:
    """A name inside a value."""

    setting: Setting
    name: str

    def text(self) -> str:
        return self.name

    def refuse(self, what: str, todo: str) -> ConfigError:
        return refuse(self.setting, what, todo)


@dataclass(slots=True)
class Pod:
    """The secrets in the environment and the file system of the resource's pods."""

    values: dict[str, str] = field(default_factory=dict)
    """Variables with a value in the resource itself."""
    variables: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Secret and key by variable."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Secret by the folder where it is mounted."""

    def __bool__(self) -> bool:
        return bool(self.values or self.variables or self.mounts)


def pod_of(spec: Mapping[str, Node]) -> Pod:
    """Return the pod's variables and mounts, by `template` and `externalConfiguration`."""
    pod = Pod()
    template, old = map(spec.get, OF_PODS)
    container = _below(template, "connectContainer")
    for entry in (*_items(container, "env"), *_items(old, "env")):
        name, value = _text(entry, "name"), _text(entry, "value")
        source = _below(entry, "valueFrom", "secretKeyRef")
        secret, key = _text(source, "name"), _text(source, "key")
        if name and value:
            pod.values[name] = value
        elif name and secret and key:
            pod.variables[name] = (secret, key)
    volumes = _volumes(_below(template, "pod"))
    for mount in _items(container, "volumeMounts"):
        name, path = _text(mount, "name"), _text(mount, "mountPath")
        if name in volumes and path:
            pod.mounts[path.rstrip("/")] = volumes[name]
    pod.mounts |= {f"{_OLD_MOUNTS}/{name}": secret for name, secret in _volumes(old).items()}
    return pod


def _volumes(section: Node | None) -> dict[str, str]:
    found = {}
    for volume in _items(section, "volumes"):
        secret = _text(_below(volume, "secret"), "secretName")
        if secret:
            found[_text(volume, "name")] = secret
    return found


def _below(node: Node | None, *names: str) -> Node | None:
    for name in names:
        node = None if node is None else node.fields().get(name)
    return node


def _items(node: Node | None, name: str) -> list[Node]:
    found = _below(node, name)
    return [] if found is None else found.items()


def _text(node: Node | None, name: str) -> str:
    found = _below(node, name)
    return "" if found is None else found.text()


def with_secrets(settings: Mapping[str, Setting], secrets: Secrets, pod: Pod) -> dict[str, Setting]:
    """Return the settings with the operator's providers, and secrets as files of the folder."""
    found = {key: _in_the_pod(one, secrets, pod) for key, one in settings.items()}
    found.update(_added(dict(found)))
    ours = {
        (prefix, name)
        for prefix in provider_scopes(found)
        for name in to_list(found[prefix + PROVIDERS])
        if (kind := found.get(f"{prefix}{PROVIDERS}.{name}.class"))
        and class_name(kind.value) in SECRET_PROVIDERS
    }
    if not ours:
        return found
    theirs = tuple(f"{prefix}{PROVIDERS}.{name}." for prefix, name in ours)
    out = {
        key: _resolved(one, {name for _, name in ours}, secrets)
        for key, one in found.items()
        if not key.startswith(theirs)
    }
    for prefix in {prefix for prefix, _ in ours}:
        key = prefix + PROVIDERS
        rest = [name for name in to_list(found[key]) if (prefix, name) not in ours]
        out[key] = replace(found[key], value=", ".join(rest))
        if not rest:
            del out[key]
    return out


def _added(settings: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Yield settings for the operator's providers that values use but no setting defines."""
    named = {
        name
        for prefix in provider_scopes(settings)
        for name in to_list(settings[prefix + PROVIDERS])
    }
    listed = settings.get(PROVIDERS)
    for name, kind in _ADDED.items():
        user = next((one for one in settings.values() if f"${{{name}:" in one.value), None)
        if user is None or name in named:
            continue
        names = [*([] if listed is None else to_list(listed)), name]
        listed = replace(listed or user, key=PROVIDERS, value=", ".join(filter(None, names)))
        yield PROVIDERS, listed
        key = f"{PROVIDERS}.{name}.class"
        yield key, replace(user, key=key, value=kind)


def _in_the_pod(one: Setting, secrets: Secrets, pod: Pod) -> Setting:
    """Replace the pod's variables and mounted paths with their values, or files of the folder."""
    reads = _reader(one, secrets)

    def variable(match: re.Match[str]) -> str:
        if match[1] in pod.values:
            return pod.values[match[1]]
        secret, key = pod.variables.get(match[1], ("", ""))
        if secret and secrets.holds(secret, key):
            return reads(_Named(one, secret), _Named(one, key))
        return match[0]

    value = re.sub(rf"\$\{{{_ENVIRONMENT}::?([^}}:]*)\}}", variable, one.value)
    for path, secret in pod.mounts.items():
        if (folder := secrets.folder(secret)) is not None:
            value = re.sub(rf"(?<![^:]){re.escape(path)}(?=[/:])", lambda _: folder, value)
    return one if value == one.value else replace(one, value=value)


def _resolved(one: Setting, names: set[str], secrets: Secrets) -> Setting:
    variable = re.compile(rf"\$\{{(?:{'|'.join(map(re.escape, names))}):([^}}:]*):([^}}]*)\}}")
    reads = _reader(one, secrets)

    def found(match: re.Match[str]) -> str:
        # the namespace has no meaning outside Kubernetes
        secret = match[1].rpartition("/")[2]
        return reads(_Named(one, secret), _Named(one, match[2]))

    return replace(one, value=variable.sub(found, one.value))


def _reader(one: Setting, secrets: Secrets) -> Callable[[Named, Named], str]:
    return secrets.jaas_text if one.key.endswith("sasl.jaas.config") else secrets.text
