"""Collects what somebody else needs to understand a mirror, without a secret, into one archive.

Each part is collected for itself: what cannot be had is named in its place, and the rest is there.
"""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from twinlog import __version__
from twinlog.cluster.broker_versions import broker_versions
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.settings import ClusterSettings
from twinlog.config.schema import FlowConfig, MirrorConfig
from twinlog.control.effective_config import effective_config
from twinlog.control.events import last_events
from twinlog.control.run import flow_setup
from twinlog.control.secret_scrubber import SecretScrubber, settings_of
from twinlog.control.status_file import running_mirrors
from twinlog.errors import TwinlogError, UsageError

PACKAGES: Final = (
    "pyspark",
    "py4j",
    "kafka-python",
    "crc32c",
    "cramjam",
    "cryptography",
    "prometheus-client",
    "click",
    "rich",
)
LOG_BYTES: Final = 2_000_000
"""So much of the end of each log file."""

CLUSTER_GIVES_UP_S: Final = 10.0
JAVA_GIVES_UP_S: Final = 10.0

READ_ME: Final = """\
A support bundle of Twinlog.

configuration.txt  effective configuration; secrets are hidden
versions.json      Twinlog, Python, Java, Spark and the libraries
clusters.json      brokers with their API versions and features
status.json        what running mirrors of this configuration last reported on this machine
events.json        the last events of mirrors of this configuration, also of ended ones
log/               the ends of the log files that were named

It holds names of topics, clusters and hosts, and no records. Secrets are left out: nothing is
taken from keys that name one, and what they hold is removed wherever it stands.
"""


def collect(
    configs: Mapping[Path, MirrorConfig | TwinlogError], logs: Iterable[Path] = ()
) -> dict[str, str]:
    """The files of the bundle by name; in place of a configuration, why it cannot be read."""
    read = [one for one in configs.values() if not isinstance(one, TwinlogError)]
    scrubber = SecretScrubber(setting for config in read for setting in settings_of(config))
    # one mirror may run several of the files
    mirrors = {mirror.pid: mirror for path in configs for mirror in running_mirrors(path)}
    events = {process.pid: process for path in configs for process in last_events(path)}
    files = {
        "README.txt": READ_ME,
        "configuration.txt": "\n".join(map(_configuration, configs.values())),
        "versions.json": _json(_versions()),
        "clusters.json": _json(_clusters([flow for config in read for flow in config.flows])),
        "status.json": _json({"mirrors": [asdict(one) for one in mirrors.values()]}),
        "events.json": _json([asdict(one) for one in events.values()]),
    }
    for log in logs:
        for file in _with_old(log):
            files[f"log/{file.name}"] = _end_of(file)
    return {name: scrubber.clean(text) for name, text in files.items()}


def write_bundle(output: Path, files: Mapping[str, str]) -> None:
    """A .tar.gz that only its owner can read; never over a file that is there."""
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
        return f"{java} does not run: {error}"
    return (answer.stderr + answer.stdout).strip()


def _configuration(config: MirrorConfig | TwinlogError) -> str:
    return f"{config}\n" if isinstance(config, TwinlogError) else effective_config(config)


def _clusters(flows: Iterable[FlowConfig]) -> dict[str, Any]:
    """By alias; two that cannot be reached cost one wait."""
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


def _with_old(log: Path) -> list[Path]:
    """The file and those that rotation has renamed, the newest first."""
    return [log, *sorted(log.parent.glob(f"{log.name}.[0-9]"))]


def _end_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, io.SEEK_END)
            opened.seek(max(0, size - LOG_BYTES))
            return opened.read().decode("utf-8", errors="replace")
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}\n"
