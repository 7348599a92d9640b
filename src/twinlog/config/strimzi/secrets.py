"""Kubernetes secrets as a folder with files `DIR/<secretName>/<key>`.

Values refer to the files and do not contain their content. A reference becomes the variable
`${strimzi:DIR/secretName:key}` of Kafka's DirectoryConfigProvider, so its value is masked like any
other resolved value, and a converted file contains no secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from twinlog.config.files.providers import PACKAGE, PROVIDERS, provider_scopes
from twinlog.config.keys.client_keys import class_name
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import to_list
from twinlog.errors import ConfigError

PROVIDER: Final = "strimzi"
PROVIDER_CLASS: Final = PACKAGE + "DirectoryConfigProvider"

UNREAD: Final = Path("/SECRETS")
"""Placeholder for the folder if secrets are not needed, as to explain or convert a file."""

UNGIVEN: Final = Path("/NO-SECRETS")
"""Placeholder for a folder that is needed but was not given; an error reports this."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NOT_IN_A_VARIABLE: Final = re.compile(r"[:{}$]")
_NOT_IN_JAAS: Final = re.compile(r'["\\\r\n]')


@dataclass(frozen=True, slots=True)
class Named:
    """A name inside a value."""

    setting: Setting
    name: str

    def text(self) -> str:
        return self.name

    def refuse(self, what: str, todo: str) -> ConfigError:
        return refuse(self.setting, what, todo)


class Secrets:
    """The folder given with `--secrets`, if any."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.absolute()
        self.is_used = False
        self.error: ConfigError | None = None
        """The error if a folder is needed but was not given. Reported once for all secrets."""
        if self._folder is not None and _NOT_IN_A_VARIABLE.search(str(self._folder)):
            raise ConfigError(
                f"--secrets: {self._folder}: a path with one of : {{ }} $ cannot be "
                "written into a configuration; use another folder"
            )

    @property
    def is_read(self) -> bool:
        """Return True if files of secrets are read."""
        return self._folder not in (None, UNREAD)

    def folder(self, secret: str) -> str | None:
        """Return the folder of a secret, or None if secrets are not read."""
        if self._folder is None or not self.is_read or not _is_name(secret):
            return None
        return str(self._folder / secret)

    def holds(self, secret: str, key: str) -> bool:
        """Return True if the folder has a file for this key of the secret."""
        folder = self.folder(secret)
        return folder is not None and _is_name(key) and (Path(folder) / key).is_file()

    def text(self, secret: Node | Named, key: Node | Named) -> str:
        """Return a variable for a file of a secret. Raises ConfigError if it cannot be read."""
        path = self._secret(secret) / _checked_name(key)
        if self.is_read:
            self._read(path, key)
        return self._variable(path)

    def jaas_text(self, secret: Node | Named, key: Node | Named) -> str:
        """Return the same variable for a quoted JAAS option. Raises ConfigError if such an option
        cannot contain the value.
        """
        path = self._secret(secret) / _checked_name(key)
        if self.is_read and _NOT_IN_JAAS.search(self._read(path, key)):
            raise key.refuse(
                f"{path} ends with a line break, or contains a quote or a backslash",
                "write the password without a line break (printf %s), or choose one "
                "without these characters",
            )
        return self._variable(path)

    def matching(self, secret: Node | Named, pattern: Node | Named) -> list[str]:
        """Return variables for all files of a secret whose names match. Raises ConfigError if there
        are none.
        """
        folder = self._secret(secret)
        if not self.is_read:
            return [self._variable(folder / pattern.text())]
        try:
            names = sorted(path.name for path in folder.iterdir() if path.is_file())
        except OSError as error:
            raise _unreadable(secret, folder, error) from error
        chosen = [name for name in names if fnmatchcase(name, pattern.text()) and _is_name(name)]
        if not chosen:
            raise pattern.refuse(f"no file of {folder} matches", "correct the pattern")
        return [self._variable(folder / name) for name in chosen]

    def _secret(self, secret: Node | Named) -> Path:
        if self._folder is None:
            self.error = self.error or secret.refuse(
                "the secret must be read from a folder",
                "set --secrets DIR with a file DIR/<secretName>/<key> for each key",
            )
        return (self._folder or UNGIVEN) / _checked_name(secret)

    def _variable(self, path: Path) -> str:
        self.is_used = True
        return f"${{{PROVIDER}:{path.parent}:{path.name}}}"

    @staticmethod
    def _read(path: Path, key: Node | Named) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(key, path, error) from error


def _unreadable(node: Node | Named, path: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    why = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
    return node.refuse(
        f"the secret {path} cannot be read: {why}", "check --secrets, the names and permissions"
    )


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _checked_name(node: Node | Named) -> str:
    text = node.text()
    if not _is_name(text):
        raise node.refuse(
            (f'"{text}" is not a valid name of a secret or of a key in one'), "correct it"
        )
    return text


# Variables in values are resolved as in the operator's pods. The operator names four config
# providers (`_ADDED`), sets environment variables of the pods, and mounts secrets into them.
# Twinlog reads these secrets from the folder of `--secrets`, like the secrets that fields name. If
# the folder is not given, or lacks a secret, environment variables are those of this process, and
# paths are those of this machine.

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
    container = _descend(template, "connectContainer")
    for entry in (*_items(container, "env"), *_items(old, "env")):
        name, value = _text_of(entry, "name"), _text_of(entry, "value")
        source = _descend(entry, "valueFrom", "secretKeyRef")
        secret, key = _text_of(source, "name"), _text_of(source, "key")
        if name and value:
            pod.values[name] = value
        elif name and secret and key:
            pod.variables[name] = (secret, key)
    volumes = _volumes(_descend(template, "pod"))
    for mount in _items(container, "volumeMounts"):
        name, path = _text_of(mount, "name"), _text_of(mount, "mountPath")
        if name in volumes and path:
            pod.mounts[path.rstrip("/")] = volumes[name]
    pod.mounts |= {f"{_OLD_MOUNTS}/{name}": secret for name, secret in _volumes(old).items()}
    return pod


def _volumes(section: Node | None) -> dict[str, str]:
    secrets = {}
    for volume in _items(section, "volumes"):
        secret = _text_of(_descend(volume, "secret"), "secretName")
        if secret:
            secrets[_text_of(volume, "name")] = secret
    return secrets


def _descend(node: Node | None, *names: str) -> Node | None:
    for name in names:
        node = None if node is None else node.fields().get(name)
    return node


def _items(node: Node | None, name: str) -> list[Node]:
    items = _descend(node, name)
    return [] if items is None else items.items()


def _text_of(node: Node | None, name: str) -> str:
    child = _descend(node, name)
    return "" if child is None else child.text()


def with_secrets(settings: Mapping[str, Setting], secrets: Secrets, pod: Pod) -> dict[str, Setting]:
    """Return the settings with the operator's providers, and secrets as files of the folder."""
    resolved = {key: _in_the_pod(setting, secrets, pod) for key, setting in settings.items()}
    resolved.update(_added(dict(resolved)))
    operators = {
        (prefix, name)
        for prefix in provider_scopes(resolved)
        for name in to_list(resolved[prefix + PROVIDERS])
        if (kind := resolved.get(f"{prefix}{PROVIDERS}.{name}.class"))
        and class_name(kind.value) in SECRET_PROVIDERS
    }
    if not operators:
        return resolved
    prefixes = tuple(f"{prefix}{PROVIDERS}.{name}." for prefix, name in operators)
    out = {
        key: _resolved(setting, {name for _, name in operators}, secrets)
        for key, setting in resolved.items()
        if not key.startswith(prefixes)
    }
    for prefix in {prefix for prefix, _ in operators}:
        key = prefix + PROVIDERS
        rest = [name for name in to_list(resolved[key]) if (prefix, name) not in operators]
        out[key] = replace(resolved[key], value=", ".join(rest))
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
        user = next(
            (setting for setting in settings.values() if f"${{{name}:" in setting.value), None
        )
        if user is None or name in named:
            continue
        names = [*([] if listed is None else to_list(listed)), name]
        listed = replace(listed or user, key=PROVIDERS, value=", ".join(filter(None, names)))
        yield PROVIDERS, listed
        key = f"{PROVIDERS}.{name}.class"
        yield key, replace(user, key=key, value=kind)


def _in_the_pod(setting: Setting, secrets: Secrets, pod: Pod) -> Setting:
    """Replace the pod's variables and mounted paths with their values, or files of the folder."""
    reads = _reader(setting, secrets)

    def variable(match: re.Match[str]) -> str:
        if match[1] in pod.values:
            return pod.values[match[1]]
        secret, key = pod.variables.get(match[1], ("", ""))
        if secret and secrets.holds(secret, key):
            return reads(Named(setting, secret), Named(setting, key))
        return match[0]

    value = re.sub(rf"\$\{{{_ENVIRONMENT}::?([^}}:]*)\}}", variable, setting.value)
    for path, secret in pod.mounts.items():
        if (folder := secrets.folder(secret)) is not None:
            value = re.sub(rf"(?<![^:]){re.escape(path)}(?=[/:])", lambda _: folder, value)
    return setting if value == setting.value else replace(setting, value=value)


def _resolved(setting: Setting, names: set[str], secrets: Secrets) -> Setting:
    variable = re.compile(rf"\$\{{(?:{'|'.join(map(re.escape, names))}):([^}}:]*):([^}}]*)\}}")
    reads = _reader(setting, secrets)

    def found(match: re.Match[str]) -> str:
        # the namespace has no meaning outside Kubernetes
        secret = match[1].rpartition("/")[2]
        return reads(Named(setting, secret), Named(setting, match[2]))

    return replace(setting, value=variable.sub(found, setting.value))


def _reader(setting: Setting, secrets: Secrets) -> Callable[[Named, Named], str]:
    return secrets.jaas_text if setting.key.endswith("sasl.jaas.config") else secrets.text
