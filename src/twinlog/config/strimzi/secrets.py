"""Kubernetes secrets as a folder with files `DIR/<secretName>/<key>`, and Kafka's keys for `tls`
and `authentication` of a cluster, converted as by Strimzi's operator.

Values refer to the files and do not contain their content. A reference becomes the variable
`${strimzi:DIR/secretName:key}` of Kafka's DirectoryConfigProvider. So its value is masked like any
other resolved value, and a converted file contains no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from twinlog.config.files.providers import PACKAGE, PROVIDERS, provider_scopes
from twinlog.config.keys.client_keys import SECURITY_PROTOCOL, class_name
from twinlog.config.strimzi.fields import (
    AUTHENTICATION,
    CERTIFICATE,
    CERTIFICATE_AND_KEY,
    CLIENT_SECRET,
    PASSWORD_SECRET,
    TLS,
    Field,
    SectionReader,
)
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import to_list
from twinlog.errors import ConfigError

PROVIDER: Final = "strimzi"
PROVIDER_CLASS: Final = PACKAGE + "DirectoryConfigProvider"

UNREAD: Final = Path("/SECRETS")
"""Placeholder for the folder if secrets are not read, as when a file is explained or converted."""

UNGIVEN: Final = Path("/NO-SECRETS")
"""Placeholder for a folder that is needed but was not given. An error reports this."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NOT_IN_A_VARIABLE: Final = re.compile(r"[:{}$]")
_NOT_IN_JAAS: Final = re.compile(r'["\\\r\n]')


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a secret or of its key, as part of a setting's value."""

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

    def has_key(self, secret: str, key: str) -> bool:
        """Return True if the folder has a file for this key of the secret."""
        folder = self.folder(secret)
        return folder is not None and _is_name(key) and (Path(folder) / key).is_file()

    def text(self, secret: Node | Named, key: Node | Named, *, in_jaas: bool = False) -> str:
        """Return the variable that refers to a file of a secret. Raises ConfigError if the file
        cannot be read. `in_jaas`: also if a quoted JAAS option cannot contain the value.
        """
        path = self._secret(secret) / _checked_name(key)
        if not self.is_read:
            return self._variable(path)
        try:
            value = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable_error(key, path, error) from error
        if in_jaas and _NOT_IN_JAAS.search(value):
            raise key.refuse(
                f"{path} ends with a line break, or contains a quote or a backslash",
                "write the password without a line break (printf %s), or choose one "
                "without these characters",
            )
        return self._variable(path)

    def matching(self, secret: Node | Named, pattern: Node | Named) -> list[str]:
        """Return a variable for each file of a secret whose name matches. Raises ConfigError if no
        name matches.
        """
        folder = self._secret(secret)
        if not self.is_read:
            return [self._variable(folder / pattern.text())]
        try:
            names = sorted(path.name for path in folder.iterdir() if path.is_file())
        except OSError as error:
            raise _unreadable_error(secret, folder, error) from error
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


def _unreadable_error(
    node: Node | Named, path: Path, error: OSError | UnicodeDecodeError
) -> ConfigError:
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
"""Fields of `spec` that set variables of pods and mount secrets into them."""
_OLD_MOUNTS: Final = "/opt/kafka/external-configuration"


@dataclass(slots=True)
class Pod:
    """The secrets in the environment and the file system of the resource's pods."""

    values: dict[str, str] = field(default_factory=dict)
    """Variables whose value is in the resource itself."""
    variables: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each variable whose value is in a secret, the secret's name and key."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Names of mounted secrets, by mount path."""

    def __bool__(self) -> bool:
        return bool(self.values or self.variables or self.mounts)


def pod_of(spec: Mapping[str, Node]) -> Pod:
    """Return the pod's variables and mounts, from `template` and `externalConfiguration`."""
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
    """Return the settings with the operator's providers, and with secrets read from the folder."""
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
    """Replace the pod's variables with values or secrets, and mounted paths with secret folders."""

    def variable(match: re.Match[str]) -> str:
        if match[1] in pod.values:
            return pod.values[match[1]]
        secret, key = pod.variables.get(match[1], ("", ""))
        if secret and secrets.has_key(secret, key):
            return _variable_in(setting, secrets, secret, key)
        return match[0]

    value = re.sub(rf"\$\{{{_ENVIRONMENT}::?([^}}:]*)\}}", variable, setting.value)
    for path, secret in pod.mounts.items():
        if (folder := secrets.folder(secret)) is not None:
            value = re.sub(rf"(?<![^:]){re.escape(path)}(?=[/:])", lambda _: folder, value)
    return setting if value == setting.value else replace(setting, value=value)


def _resolved(setting: Setting, names: set[str], secrets: Secrets) -> Setting:
    variable = re.compile(rf"\$\{{(?:{'|'.join(map(re.escape, names))}):([^}}:]*):([^}}]*)\}}")

    def found(match: re.Match[str]) -> str:
        # the namespace is dropped, because it has no meaning outside Kubernetes
        return _variable_in(setting, secrets, match[1].rpartition("/")[2], match[2])

    return replace(setting, value=variable.sub(found, setting.value))


def _variable_in(setting: Setting, secrets: Secrets, secret: str, key: str) -> str:
    in_jaas = setting.key.endswith("sasl.jaas.config")
    return secrets.text(Named(setting, secret), Named(setting, key), in_jaas=in_jaas)


_MODULES: Final = "org.apache.kafka.common.security."
_PLAIN: Final = _MODULES + "plain.PlainLoginModule"
_SCRAM: Final = _MODULES + "scram.ScramLoginModule"
_OAUTH: Final = _MODULES + "oauthbearer.OAuthBearerLoginModule"
_CUSTOM_PREFIXES: Final = ("sasl.", "ssl.keystore.")


KeyValue = tuple[str, str, Node]
"""A key without an alias, its value, and the node that sets it."""


class SecurityReader:
    """Reads the security settings of clusters. References to secrets become variables
    `${strimzi:...}`, which are not resolved here.
    """

    def __init__(self, reader: SectionReader, secrets: Secrets) -> None:
        self._reader = reader
        self._secrets = secrets

    def read(self, cluster: Mapping[str, Node]) -> Iterator[KeyValue]:
        """Yield a cluster's security settings, with no alias in keys. Yields none for PLAINTEXT."""
        tls, authentication = cluster.get("tls"), cluster.get("authentication")
        is_sasl = False
        if tls is not None:
            yield from self._trust(tls)
        if authentication is not None:
            pairs = list(self._authentication(authentication, has_tls=tls is not None))
            is_sasl = any(key == "sasl.mechanism" for key, _, _ in pairs)
            yield from pairs
        at = authentication if is_sasl else tls
        if at is not None:
            security = "SSL" if tls is not None else "PLAINTEXT"
            yield SECURITY_PROTOCOL, f"SASL_{security}" if is_sasl else security, at

    def _trust(self, tls: Node) -> Iterator[KeyValue]:
        listed = self._reader.section(tls, TLS).get("trustedCertificates")
        certificates = [
            text for entry in (listed.items() if listed else ()) for text in self._files(entry)
        ]
        if listed is not None and certificates:
            yield "ssl.truststore.type", "PEM", listed
            yield "ssl.truststore.certificates", "\n".join(certificates), listed

    def _files(self, entry: Node) -> list[str]:
        fields = self._reader.section(entry, CERTIFICATE)
        secret = _required(entry, fields, "secretName")
        if "pattern" in fields and "certificate" not in fields:
            return self._secrets.matching(secret, fields["pattern"])
        return [self._secrets.text(secret, _required(entry, fields, "certificate"))]

    def _authentication(self, node: Node, *, has_tls: bool) -> Iterator[KeyValue]:
        fields = self._reader.section(node, AUTHENTICATION)
        kind = _required(node, fields, "type")
        match kind.text():
            case "tls":
                if not has_tls:
                    raise node.refuse("a client certificate needs TLS", "add `tls: {}` next to it")
                yield from self._client_certificate(_required(node, fields, "certificateAndKey"))
            case "plain":
                yield from self._password(node, fields, kind, "PLAIN", _PLAIN)
            case "scram-sha-256" | "scram-sha-512" as name:
                yield from self._password(node, fields, kind, name.upper(), _SCRAM)
            case "oauth":
                yield from self._oauth(node, fields, kind)
            case "custom":
                yield from self._custom(node, fields)
            case _:
                raise kind.refuse(
                    f'"{kind.text()}" is not supported',
                    "write tls, scram-sha-256, scram-sha-512, plain, oauth or custom",
                )

    def _client_certificate(self, node: Node) -> Iterator[KeyValue]:
        fields = self._reader.section(node, CERTIFICATE_AND_KEY)
        secret = _required(node, fields, "secretName")
        chain, key = _required(node, fields, "certificate"), _required(node, fields, "key")
        yield "ssl.keystore.type", "PEM", node
        yield "ssl.keystore.certificate.chain", self._secrets.text(secret, chain), chain
        yield "ssl.keystore.key", self._secrets.text(secret, key), key

    def _password(
        self, node: Node, fields: Mapping[str, Node], kind: Node, mechanism: str, module: str
    ) -> Iterator[KeyValue]:
        user = _required(node, fields, "username")
        source = _required(node, fields, "passwordSecret")
        password = self._jaas_text(source, PASSWORD_SECRET, "password")
        yield "sasl.mechanism", mechanism, kind
        options = f'username="{_escaped(user.text())}" password="{password}"'
        yield "sasl.jaas.config", f"{module} required {options};", node

    def _oauth(self, node: Node, fields: Mapping[str, Node], kind: Node) -> Iterator[KeyValue]:
        for name in ("username", "passwordSecret"):
            if name in fields:
                raise fields[name].refuse(
                    "only client credentials are supported", "write clientId and clientSecret"
                )
        endpoint = _required(node, fields, "tokenEndpointUri")
        client = _required(node, fields, "clientId")
        source = _required(node, fields, "clientSecret")
        secret = self._jaas_text(source, CLIENT_SECRET, "key")
        options = f'clientId="{_escaped(client.text())}" clientSecret="{secret}"'
        if "scope" in fields:
            options += f' scope="{_escaped(fields["scope"].text())}"'
        yield "sasl.mechanism", "OAUTHBEARER", kind
        yield "sasl.oauthbearer.token.endpoint.url", endpoint.text(), endpoint
        yield "sasl.jaas.config", f"{_OAUTH} required {options};", node

    def _jaas_text(self, source: Node, table: tuple[Field, ...], name: str) -> str:
        fields = self._reader.section(source, table)
        secret, key = _required(source, fields, "secretName"), _required(source, fields, name)
        return self._secrets.text(secret, key, in_jaas=True)

    @staticmethod
    def _custom(node: Node, fields: Mapping[str, Node]) -> Iterator[KeyValue]:
        config = fields["config"].fields() if "config" in fields else {}
        for key, value in config.items():
            if not key.startswith(_CUSTOM_PREFIXES):
                raise value.refuse(
                    "is not a key of custom authentication",
                    f"only keys with {' and '.join(_CUSTOM_PREFIXES)} are allowed here; "
                    "put others into the cluster's `config`",
                )
            yield key, value.text(), value
        is_sasl = "sasl" in fields and fields["sasl"].text() == "true"
        if is_sasl and "sasl.mechanism" not in config:
            raise node.refuse("SASL without a mechanism", "add sasl.mechanism to its `config`")
        if not is_sasl and "sasl.mechanism" in config:
            raise node.refuse("a mechanism without SASL", "add `sasl: true`")


def _required(section: Node, fields: Mapping[str, Node], name: str) -> Node:
    if name not in fields:
        raise missing_error(section, name)
    return fields[name]


def missing_error(section: Node, name: str) -> ConfigError:
    """Return the error for a section that lacks a field."""
    error = section.refuse(f"{name} is missing", f"add `{name}: ...`")
    error.missing_key = name
    return error


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)
