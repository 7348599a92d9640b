"""Collects information for diagnosing a mirror, without secrets, in one archive.

Each file of the archive is collected independently. If that fails, the file has the error instead.
"""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus

from msgspec import to_builtins

from twinlog import __version__
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_keys import BrokenJaas, parse_jaas
from twinlog.cluster.topics.cluster_info import broker_versions
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.flow.schema import FlowConfig, FlowProperties, MirrorConfig
from twinlog.config.strimzi.resource import is_resource
from twinlog.config.values.origin import (
    USER_INFO,
    ClientProperties,
    Setting,
    Settings,
    is_secret,
    shown_key,
)
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.watch.events import last_events
from twinlog.control.watch.status_file import running_mirrors
from twinlog.errors import ConfigError, TwinlogError, UsageError
from twinlog.shown import shown
from twinlog.threads import THREADS

# Removes the secrets of a configuration from a text.
#
# Twinlog does not log secrets, so this is a second safeguard for texts that leave the machine. It
# removes the configuration's secrets in several encodings. It also removes texts that look like
# secrets, even if they are not configured any more: private keys, tokens, headers, users in URLs,
# and values after a name such as `password`. Secrets that were truncated, broken over lines or
# encoded in another way are not found.

HIDDEN: Final = "<hidden>"
PUBLIC_VALUE_ENDINGS: Final = (".type", ".location", ".url", ".algorithm", ".class")
"""Endings of keys that look like names of secrets, but have public values. `ssl.keystore.type`, for
example, is often `PEM`, which occurs in many texts.
"""

SHORTEST: Final = 3
"""Minimum length of a removed secret. Shorter values occur in any text by chance."""

SHORTEST_OF_PROVIDER: Final = 4
"""Minimum length of a removed value of a config provider, which may also be a port or a name."""

ALONE_BELOW: Final = 8
"""Length below which a value of a config provider is removed only if it is a whole word."""

_NO_SECRETS: Final = frozenset({"true", "false", "none", "null"})
_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_USERS: Final = frozenset({"username", "clientid"})
_PEM_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)
_TOKEN: Final = re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*")
_HEADER: Final = re.compile(r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?)[^\"'\r\n]+")
_SCHEME: Final = re.compile(
    r"(?i)\b((?:Bearer|Basic)[ \t]+)"
    r"(?!(?:auth\w*|tokens?|credentials?|access|login|scheme)\b)[\w.~+/-]{4,}=*"
)
_NAMES: Final = r"(?:password|passphrase|passwd|secret|token|credential|private\.key|ssl\.key)"
_NAMED: Final = re.compile(rf"(?i){_NAMES}")
_ASSIGNED: Final = re.compile(
    rf"""(?i)([\w.-]*{_NAMES}[ \t]*=[ \t]*)
    (?: \\"(?:[^"\\]|\\\\(?:\\.|[^\\])|\\[^"\\])*\\"  # in quotes, within a JSON text
      | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'
      | ["'\\]?[^\s,;"'}})\]]+ )""",
    re.VERBOSE,
)
_IN_MAPPING: Final = re.compile(
    rf"""(?i)([\w.-]*{_NAMES}\\?["'][ \t]*:[ \t]*)
    (?: \\"(?:[^"\\]|\\\\(?:\\.|[^\\])|\\[^"\\])*\\" | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )""",
    re.VERBOSE,
)


class SecretScrubber:
    """Removes the secrets of a configuration's settings from texts."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        secrets: set[str] = set()
        words: set[str] = set()
        users: set[str] = set()
        for setting in settings:
            every_secret = list(_secrets_of(setting))
            secrets.update(every_secret)
            users.update(text for name, text in _options(setting.value) if name.lower() in _USERS)
            word = setting.value.strip()
            is_long = len(word) >= SHORTEST_OF_PROVIDER
            if (
                not every_secret
                and setting.from_provider
                and is_long
                and word.lower() not in _NO_SECRETS
            ):
                words.add(word)
        known = {form for secret in secrets for form in encodings_of(secret)}
        known.update(form for secret in secrets for form in pairs_in_base64(users, secret))
        self._known = _any_of(known)
        self._words = _any_of(words, r"(?<![\w]){}(?![\w])")
        self._cores = _any_of(core for secret in secrets for core in cores_in_base64(secret))

    def clean(self, text: str) -> str:
        """Return the text with secrets replaced by HIDDEN."""
        for pattern in (_PEM_KEY, USER_INFO, _TOKEN):
            text = pattern.sub(HIDDEN, text)
        if self._cores is not None:
            text = hide_around(text, self._cores, HIDDEN)
        for known in (self._known, self._words):
            text = text if known is None else known.sub(HIDDEN, text)
        # search first, because most lines name no secret, and these two patterns are slow
        named = (_ASSIGNED, _IN_MAPPING) if _NAMED.search(text) else ()
        for behind in (_HEADER, _SCHEME, *named):
            text = behind.sub(rf"\1{HIDDEN}", text)
        return text

    def clean_value(self, value: Any) -> Any:
        """Clean the strings of a JSON value one by one, so that it stays valid JSON."""
        match value:
            case str():
                return self.clean(value)
            case dict():
                return {
                    self.clean(key) if isinstance(key, str) else key: HIDDEN
                    if isinstance(each, str) and is_secret(str(key))
                    else self.clean_value(each)
                    for key, each in value.items()
                }
            case list() | tuple():
                return [self.clean_value(each) for each in value]
            case _:
                return value


def settings_of(config: MirrorConfig) -> Iterator[Setting]:
    """Yield every setting of the configuration's clusters, flows and Kafka clients."""
    for cluster in config.clusters:
        yield from cluster.settings.values()
    for flow in config.flows:
        yield from flow.settings.values()
        for client in (*flow.clients.of_source(), *flow.clients.of_target()):
            yield from (client.origin(key) for key in client)


def _secrets_of(setting: Setting) -> Iterator[str]:
    value = setting.value.strip()
    for match in USER_INFO.finditer(value):
        password = match[0].partition(":")[2]
        if len(password) >= SHORTEST:
            yield password
    if is_secret(setting.key) and not setting.key.endswith(PUBLIC_VALUE_ENDINGS):
        parts = [value]
        # a text may contain only one option of a JAAS line, escaped or unescaped
        parts += [text for name, text in _options(value) if is_secret(name)]
        # a text may contain only one line of a PEM key
        parts += [line.strip() for line in value.splitlines() if not line.startswith("-----")]
        yield from (part for part in parts if len(part) >= SHORTEST)
    elif setting.from_provider and len(value) >= ALONE_BELOW:
        yield value


def _options(value: str) -> Iterator[tuple[str, str]]:
    for option in _OPTION.finditer(value):
        yield from ((option[1], part) for part in option.groups()[1:] if part)
    with suppress(BrokenJaas):  # not a valid JAAS line, so only the options found above are used
        yield from parse_jaas(value).options.items()


def _any_of(texts: Iterable[str], around: str = "{}") -> re.Pattern[str] | None:
    # try the longest text first, because a shorter one may be a part of it
    alternatives = [re.escape(text) for text in sorted(texts, key=len, reverse=True) if text]
    return re.compile(around.format(f"(?:{'|'.join(alternatives)})")) if alternatives else None


# Encodings in which a log may contain a secret: quoted, escaped, URL-encoded, and base64.

MIN_BASE64_CHARS: Final = 8
"""Minimum length of a searched base64 text. Shorter ones would match by chance."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")


def encodings_of(secret: str) -> set[str]:
    """Return the encodings of a secret except base64, whose result depends on adjacent text."""
    encodings: set[str] = set()
    # a JAAS line escapes quotes and backslashes, and a properties file backslashes, so a JAAS line
    # in a properties file is escaped twice
    for text in (secret, _quoted(secret), _quoted(_quoted(secret)), secret.replace("\n", "\\n")):
        encodings |= {text, repr(text)[1:-1], shown(text)}
        for ensure_ascii in (True, False):
            in_json = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
            encodings |= {in_json, in_json.replace("/", "\\/")}
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        encodings |= {encoded, re.sub("%[0-9A-F]{2}", lambda hexed: hexed[0].lower(), encoded)}
    return encodings


def pairs_in_base64(users: Iterable[str], secret: str) -> Iterator[str]:
    """Yield the base64 texts that SASL PLAIN, HTTP Basic and OAuth clients send for each user and
    the password. They are needed for passwords that are too short for `cores_in_base64`.
    """
    for user in users:
        for text in (f"\0{user}\0{secret}", f"{user}\0{user}\0{secret}", f"{user}:{secret}"):
            yield from _encoded(text.encode())
        form = f"{quote_plus(user)}:{quote_plus(secret)}"  # OAuth clients URL-encode both first
        yield from _encoded(form.encode())


def cores_in_base64(secret: str) -> Iterator[str]:
    """Yield the base64 characters that depend only on the secret, for each of its three possible
    alignments in an encoded text.
    """
    data = secret.encode()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # leave out the characters at both ends that also encode bits of adjacent text
        start = (0, 2, 3)[before]
        end = len(text) - (0 if (before + len(data)) % 3 == 0 else 1)
        if end - start >= MIN_BASE64_CHARS:
            core = text[start:end]
            yield core
            yield core.replace("+", "-").replace("/", "_")


def hide_around(text: str, core: re.Pattern[str], hidden: str) -> str:
    """Replace each base64 text that contains a match of `core` completely by `hidden`."""
    parts: list[str] = []
    done = 0
    for match in core.finditer(text):
        if match.end() <= done:
            continue  # this match is in the text that was just hidden
        start, end = match.span()
        while start > done and text[start - 1] in _BASE64:
            start -= 1
        while end < len(text) and text[end] in _BASE64:
            end += 1
        parts += [text[done:start], hidden]
        done = end
    return "".join([*parts, text[done:]])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _encoded(data: bytes) -> Iterator[str]:
    for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        yield encoded.decode().rstrip("=")


class CurrentSecrets:
    """Removes the secrets of the current configuration from every log line. Thread-safe.

    Secrets of earlier configurations are removed as well, because their flows may still log errors.
    If a password changes in a config provider's file, the new one is removed only after the next
    read of the configuration.

    Only values of keys that name a secret, and passwords in URLs, are removed. Other values of
    config providers are often names of brokers and topics, which operators need in the log. A
    support bundle hides them, because it is for outsiders.
    """

    def __init__(self, current: Callable[[], MirrorConfig]) -> None:
        """`current`: returns the current configuration."""
        self._current = current
        self._known: dict[tuple[str, str], Setting] = {}
        """Known secrets by key and value, because clusters and their clients share settings."""
        self._made: tuple[MirrorConfig | None, SecretScrubber] = (None, SecretScrubber())

    def clean(self, text: str) -> str:
        """Return the text with secrets replaced by HIDDEN."""
        config, scrubber = self._made
        now = self._current()
        if now is not config:
            secret = filter(None, map(_secret, settings_of(now)))
            self._known |= {(setting.key, setting.value): setting for setting in secret}
            scrubber = SecretScrubber(list(self._known.values()))
            self._made = (now, scrubber)
        return scrubber.clean(text)


def _secret(setting: Setting) -> Setting | None:
    may_hold_one = is_secret(setting.key) or "://" in setting.value
    return replace(setting, from_provider=False) if may_hold_one else None


PACKAGES: Final = (
    "pyspark",
    "py4j",
    "kafka-python",
    "crc32c",
    "cramjam",
    "cryptography",
    "msgspec",
    "prometheus-client",
    "psutil",
    "python-json-logger",
    "click",
    "rich",
)
LOG_BYTES: Final = 2_000_000
"""Maximum number of bytes that are read from the end of each log file."""

CLUSTER_GIVES_UP_S: Final = 10.0
JAVA_GIVES_UP_S: Final = 10.0

READ_ME: Final = """\
A support bundle of Twinlog.

configuration.txt  effective configuration; secrets are hidden
versions.json      Twinlog, Python, Java, Spark and the libraries
clusters.json      brokers with their API versions and features
status.json        last reports of running mirrors of this configuration on this machine
events.json        last events of mirrors of this configuration, including stopped ones
log/               the ends of the log files given

It contains names of topics, clusters and hosts, and no records. Secrets are removed: values of keys
that name a secret are left out, and their current values are removed from all texts, whether plain,
quoted, escaped, URL-encoded or in base64. So are values after a word that names a secret, tokens,
headers and private keys. A secret that was truncated, broken over lines or encoded in another way
is not found: check the files before you send them.
If a configuration cannot be parsed, secrets are taken from its lines as text. If these do not
contain all secrets, logs and reports of mirrors are left out, and the files say so.
"""


def collect(
    configs: Mapping[Path, MirrorConfig | TwinlogError],
    logs: Iterable[Path] = (),
    more: Iterable[Path] = (),
) -> dict[str, str]:
    """Return the texts of the bundle's files, by name. `configs`: the configuration of each file,
    or the error with which it was read. `more`: other files that belong to these configurations.
    """
    read = [config for config in configs.values() if not isinstance(config, TwinlogError)]
    settings = [setting for config in read for setting in settings_of(config)]
    unread = [path for path, config in configs.items() if isinstance(config, TwinlogError)]
    unknown = ""
    for path in (*unread, *(more if unread else ())):
        try:
            settings += settings_of_text(path)
        except SecretsUnknown as why:
            unknown = f"left out because it may contain unknown secrets: {why}"
    scrubber = SecretScrubber(settings)
    texts = [
        "\n".join([str(config)] if isinstance(config, TwinlogError) else _lines(config)) + "\n"
        for config in configs.values()
    ]
    clusters = _clusters([flow for config in read for flow in config.flows])
    files = {
        "README.txt": READ_ME,
        "configuration.txt": scrubber.clean("\n".join(texts)),
        "versions.json": _json(scrubber.clean_value(_versions())),
        "clusters.json": _json(scrubber.clean_value(clusters)),
        "status.json": _json(unknown or scrubber.clean_value(_status(configs))),
        "events.json": _json(unknown or scrubber.clean_value(_events(configs))),
    }
    for number, log in enumerate(logs, 1):
        parts = (log, *sorted(log.parent.glob(f"{log.name}.[0-9]")))  # with rotated files
        # logs in different folders may have the same name
        folder = f"log/{number}" if any(f"log/{part.name}" in files for part in parts) else "log"
        for file in parts:
            text = f"{unknown}\n" if unknown else scrubber.clean(_end_of(file))
            files[f"{folder}/{file.name}"] = text
    return files


def write_bundle(output: Path, files: Mapping[str, str]) -> None:
    """Write a .tar.gz that only its owner can read. Raises UsageError if the file exists."""
    folder = output.name.removesuffix(".tar.gz")
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be written: {error.strerror}") from error
    with (
        os.fdopen(descriptor, "wb") as raw,
        tarfile.open(fileobj=raw, mode="w:gz") as archive,
    ):
        for name, text in files.items():
            data = text.encode("utf-8", errors="replace")
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"


def _status(configs: Iterable[Path]) -> Any:
    try:
        # by process ID, because one mirror may use several of the configuration files
        mirrors = {mirror.pid: mirror for path in configs for mirror in running_mirrors(path)}
    except TwinlogError as error:
        return {"mirrors": [], "problem": str(error)}
    return {"mirrors": to_builtins([*mirrors.values()])}


def _events(configs: Iterable[Path]) -> Any:
    try:
        events = {process.pid: process for path in configs for process in last_events(path)}
    except TwinlogError as error:
        return {"problem": str(error)}
    return to_builtins([*events.values()])


def _versions() -> dict[str, Any]:
    return {
        "twinlog": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "java": _java(),
        "packages": {name: _package(name) for name in PACKAGES},
    }


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_GIVES_UP_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} cannot be run: {error}"
    return (answer.stderr + answer.stdout).strip()


def _clusters(flows: Iterable[FlowConfig]) -> dict[str, Any]:
    """Return data of each cluster, by alias. The clusters are queried in parallel, so that timeouts
    of unreachable ones do not add up.
    """
    clusters: dict[str, ClusterSettings] = {}
    problems: dict[str, Any] = {}
    for flow in flows:
        try:
            setup = flow_setup(flow)
        except TwinlogError as error:
            problems[str(flow.flow)] = {"problem": str(error)}
            continue
        clusters.setdefault(setup.source.alias, setup.source)
        clusters.setdefault(setup.target.alias, setup.target)
    asked = {
        alias: THREADS.submit("twinlog-ask", partial(_cluster, settings))
        for alias, settings in clusters.items()
    }
    return problems | {alias: question.result() for alias, question in asked.items()}


def _cluster(settings: ClusterSettings) -> dict[str, Any]:
    try:
        with ClusterClient(settings, api_timeout_s=CLUSTER_GIVES_UP_S) as client:
            cluster_id = client.metadata([]).cluster_id
            brokers = [asdict(broker) for broker in broker_versions(client)]
    except TwinlogError as error:
        return {"addresses": settings.addresses, "problem": str(error)}
    return {"addresses": settings.addresses, "id": cluster_id, "brokers": brokers}


def _end_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, io.SEEK_END)
            opened.seek(max(0, size - LOG_BYTES))
            return opened.read().decode("utf-8", errors="replace")
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}\n"


# The effective configuration as text: each value of every flow, with the file and line from which
# it was read. Values of secret keys, and all values from config providers, are hidden.


def _lines(config: MirrorConfig) -> Iterator[str]:
    """Yield the configuration as text, with a section for each cluster and flow."""
    yield f"# {config.file}"
    for warning in config.warnings:
        yield f"# warning: {warning}"
    for cluster in config.clusters:
        yield f"\n[cluster {cluster.alias}]"
        yield from _settings(cluster.settings.items())
    for flow in config.flows:
        yield from _flow(flow)


def _flow(flow: FlowConfig) -> Iterator[str]:
    yield f"\n[flow {flow.flow}]"
    for field in fields(flow):
        value = getattr(flow, field.name)
        if not isinstance(value, (Settings, FlowProperties)):
            yield f"{field.name} = {value}"
    yield f"\n[flow {flow.flow}: settings]"
    yield from _settings(flow.settings.items())
    for field in fields(flow.clients):
        client: ClientProperties = getattr(flow.clients, field.name)
        yield f"\n[flow {flow.flow}: {field.name}]"
        yield from _settings((key, client.origin(key)) for key in client)


def _settings(settings: Iterable[tuple[str, Setting]]) -> Iterator[str]:
    for name, setting in sorted(settings, key=lambda item: item[0]):
        value = HIDDEN if setting.secret else setting.value
        origin = f"line {setting.line}" if setting.line is not None else setting.location
        yield f"{shown_key(name)} = {value}  # {origin}"


# Finds the secrets of a configuration file that cannot be parsed.
#
# A support bundle is often requested because such a file has an error. The mirror may have run
# before with an earlier version of the file, so its logs may contain secrets of the file. Every
# line that looks like a setting is therefore searched, including comments and duplicates.
# SecretsUnknown is raised if a secret may be stored elsewhere, by a config provider or in a
# Kubernetes secret.

_VARIABLE: Final = re.compile(r"\$\{[^}]*:")
_ENDS_IN_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")


class SecretsUnknown(Exception):
    """Raised if some secrets of a configuration file cannot be found. Its text has the reason."""


def settings_of_text(path: Path) -> list[Setting]:
    """Return the settings of the file that look like secrets. Raises SecretsUnknown
    if the file cannot be read or refers to secrets that are stored elsewhere.
    """
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise SecretsUnknown(f"{path} cannot be read: {error.strerror}") from None
    if is_resource(path, text):
        raise SecretsUnknown(f"the secrets of {path} are stored elsewhere")
    settings = list(_settings_of_lines(path, text))
    if any(_VARIABLE.search(setting.value) for setting in settings):
        raise SecretsUnknown(f"{path} has variables whose values are unknown")
    return [setting for setting in settings if is_secret(setting.key)]


def _settings_of_lines(path: Path, text: str) -> Iterator[Setting]:
    for line in _logical_lines(text):
        try:
            settings = parse_properties(line).settings
        except ConfigError:
            raise SecretsUnknown(f"a line of {path} cannot be read") from None
        for key, setting in settings.items():
            yield Setting(key=key, value=setting.value, file=str(path))
            # if the backslash at the end of a line is missing, the rest of a JAAS line is parsed as
            # a key. So search the whole entry for options
            for name, value in _options(f"{key}={setting.value}"):
                yield Setting(key=name, value=value, file=str(path))


def _logical_lines(text: str) -> Iterator[str]:
    """Yield each logical line: a line joined with its continuations. Comments are included."""
    pending = ""
    for line in text.splitlines():
        pending += line.lstrip(" \t\f#!")
        if _ENDS_IN_ESCAPE.search(pending):
            pending = pending[:-1]
        else:
            yield pending
            pending = ""
    yield pending
