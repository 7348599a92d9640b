"""Starts, lists and stops the clusters of `twinlog sandbox`, which outlive the command that starts
them.

A cluster's folder has its state, which later commands read. `down` ends a process only if its ID is
in the folder and its command line belongs to the cluster.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twinlog.errors import UsageError
from twinlog.folders import cache_folder, usable
from twinlog.quantities import plural
from twinlog.sandbox.brokers import LocalCluster
from twinlog.sandbox.layout import STATE_FILE

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCluster:
    """The state of a sandbox cluster, as commands print it."""

    FIELDS = "name bootstrap folder brokers pids running"

    name: str
    bootstrap: str
    folder: Path
    brokers: int
    pids: Mapping[int, int]
    """Process IDs by node ID, without nodes that are down."""

    @property
    def running(self) -> bool:
        return len(self.pids) == self.brokers


def default_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder in TWINLOG_SANDBOX, or else `sandbox` in this user's cache folder."""
    chosen = environment.get("TWINLOG_SANDBOX")
    return Path(chosen) if chosen else cache_folder(environment) / "sandbox"


def up(names: Sequence[str], brokers: int = 1, folder: Path | None = None) -> list[SandboxCluster]:
    """Start clusters by name. Running ones are not changed, stopped ones keep their data."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name a cluster; use letters, digits, dots, dashes, underscores"
            )
    with _locked(folder) as home:
        return [_start_or_attach(name, brokers, home / name) for name in dict.fromkeys(names)]


def status(folder: Path | None = None) -> list[SandboxCluster]:
    """Return all clusters that were started and not removed, also those that are not running."""
    home = _home(folder)
    return [_report(LocalCluster.attach(file.parent)) for file in sorted(home.glob(_STATES))]


def down(names: Sequence[str] = (), folder: Path | None = None) -> list[SandboxCluster]:
    """Stop clusters (all if `names` is empty), and remove their data. Returns their last states."""
    ended = []
    with _locked(folder) as home:
        known = {file.parent.name: file.parent for file in sorted(home.glob(_STATES))}
        for name in names:
            if name not in known:
                raise UsageError(
                    f"no cluster {name!r} in {home}; known: {', '.join(known) or 'none'}"
                )
        for name in dict.fromkeys(names or known):
            cluster = LocalCluster.attach(known[name])
            ended.append(_report(cluster))
            cluster.stop()
            shutil.rmtree(known[name])
    return ended


_STATES = f"*/{STATE_FILE}"


def _home(folder: Path | None) -> Path:
    return (folder or default_folder(os.environ)).absolute()


@contextmanager
def _locked(folder: Path | None) -> Iterator[Path]:
    home = _home(folder)
    with usable(home, "set TWINLOG_SANDBOX to a folder that can be written"):
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "lock").open("w")
    with lock as file:  # other commands wait until this block ends
        fcntl.flock(file, fcntl.LOCK_EX)
        yield home


def _start_or_attach(name: str, brokers: int, folder: Path) -> SandboxCluster:
    if (folder / STATE_FILE).exists():
        known = _report(LocalCluster.attach(folder))
        if known.brokers != brokers:
            raise UsageError(
                f"the cluster {name!r} exists with {plural(known.brokers, 'broker')}, not "
                f"{brokers}; remove it first, with its data: twinlog sandbox down --cluster {name}"
            )
        if known.running:
            return known
        LocalCluster.attach(folder).stop()  # end the nodes that are left of the cluster
    cluster = LocalCluster(name, folder, brokers, owner=None)
    cluster.start()
    return _report(cluster)


def _report(cluster: LocalCluster) -> SandboxCluster:
    return SandboxCluster(
        name=cluster.name,
        bootstrap=cluster.bootstrap,
        folder=cluster.home,
        brokers=cluster.brokers,
        pids=cluster.broker_pids,
    )
