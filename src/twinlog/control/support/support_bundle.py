"""Collects information for diagnosing a mirror, without secrets, in one archive.

Each part is collected independently: a part that fails is replaced by its error.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from twinlog import __version__
from twinlog.cluster.broker_versions import broker_versions
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.flow.schema import FlowConfig, FlowProperties, MirrorConfig
from twinlog.config.strimzi.resource import is_resource
from twinlog.config.values.origin import ClientProperties, Setting, Settings, is_secret, shown_key
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.support.secret_scrubber import HIDDEN, SecretScrubber, settings_of
from twinlog.control.watch.events import last_events
from twinlog.control.watch.status_file import running_mirrors
from twinlog.errors import ConfigError, TwinlogError, UsageError

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
"""Maximum bytes from the end of each log file."""

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
    """Return the files of the bundle by name. A configuration that cannot be read is given as its
    error. `more` are files that belong to one of the configurations.
    """
    read = [one for one in configs.values() if not isinstance(one, TwinlogError)]
    settings = [setting for config in read for setting in settings_of(config)]
    unread = [path for path, one in configs.items() if isinstance(one, TwinlogError)]
    unknown = ""
    for path in (*unread, *(more if unread else ())):
        try:
            settings += settings_of_text(path)
        except NotKnown as why:
            unknown = f"left out because it may contain unknown secrets: {why}"
    scrubber = SecretScrubber(settings)
    texts = [
        f"{one}\n" if isinstance(one, TwinlogError) else effective_config(one)
        for one in configs.values()
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
    for log in logs:
        for file in (log, *sorted(log.parent.glob(f"{log.name}.[0-9]"))):  # and rotated files
            files[f"log/{file.name}"] = f"{unknown}\n" if unknown else scrubber.clean(_end_of(file))
    return files


def write_bundle(output: Path, files: Mapping[str, str]) -> None:
    """Write a .tar.gz that only its owner can read. An existing file is never overwritten."""
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
        # one mirror may use several of the files
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
    """Query the clusters by alias, in parallel, so that unreachable ones time out together."""
    found: dict[str, ClusterSettings] = {}
    problems: dict[str, Any] = {}
    for flow in flows:
        try:
            setup = flow_setup(flow)
        except TwinlogError as error:
            problems[str(flow.flow)] = {"problem": str(error)}
            continue
        found.setdefault(setup.source.alias, setup.source)
        found.setdefault(setup.target.alias, setup.target)
    with ThreadPoolExecutor(max(len(found), 1)) as pool:
        return problems | dict(zip(found, pool.map(_cluster, found.values()), strict=True))


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


# The effective configuration as text: each value of every flow with its file and line. Values of
# secret keys, and all values that a config provider returned, are hidden.


def effective_config(config: MirrorConfig) -> str:
    """Return all clusters and flows, each as a section."""
    return "\n".join(_lines(config)) + "\n"


def _lines(config: MirrorConfig) -> Iterator[str]:
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


# The secrets of a configuration file that cannot be parsed, taken from its lines.
# A support bundle is often requested because a file is wrong. Its mirror has run before, and its
# logs may contain secrets of the file. Every line that looks like a setting is therefore used,
# including comments and duplicates, with every option in it. If a secret may be stored elsewhere (a
# variable of a config provider, a Kubernetes secret), NotKnown is raised.

_VARIABLE: Final = re.compile(r"\$\{[^}]*:")
_ENDS_IN_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")


class NotKnown(Exception):
    """Why not all secrets of a file are known."""


def settings_of_text(path: Path) -> list[Setting]:
    """Return the settings of the file that look like secrets. Raises NotKnown."""
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise NotKnown(f"{path} cannot be read: {error.strerror}") from None
    if is_resource(path, text):
        raise NotKnown(f"the secrets of {path} are stored elsewhere")
    found = list(_settings_of_lines(path, text))
    if any(_VARIABLE.search(setting.value) for setting in found):
        raise NotKnown(f"{path} has variables whose values are unknown")
    return [setting for setting in found if is_secret(setting.key)]


def _settings_of_lines(path: Path, text: str) -> Iterator[Setting]:
    for line in _logical_lines(text):
        try:
            entries = parse_properties(line).entries
        except ConfigError:
            raise NotKnown(f"a line of {path} cannot be read") from None
        for entry in entries:
            yield Setting(key=entry.key, value=entry.value, file=str(path))
            # a lost backslash before the end of a line makes the rest of a JAAS line a key
            for name, value in _OPTION.findall(f"{entry.key}={entry.value}"):
                yield Setting(key=name, value=value.strip("\"'"), file=str(path))


def _logical_lines(text: str) -> Iterator[str]:
    """Yield each line joined with its continuations, including comments."""
    pending = ""
    for line in text.splitlines():
        pending += line.lstrip(" \t\f#!")
        if _ENDS_IN_ESCAPE.search(pending):
            pending = pending[:-1]
        else:
            yield pending
            pending = ""
    yield pending
