"""A standalone cluster of Spark with a master and workers. Its daemons and jobs share a secret."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.hosts import Host

HOME = Path(pyspark.__file__).parent
SPARK_CLASS = HOME / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
PORT = 7077
"""Port of a master that has its own host."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def address_of(host: Host | None) -> str:
    """Return the address at which the daemons of this host listen."""
    return "127.0.0.1" if host is None or host.address is None else host.address


def daemon(
    folder: Path, name: str, *arguments: str, host: Host | None = None, address: str = ""
) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*(host.enter if host else ()), str(SPARK_CLASS), *arguments],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={
                **os.environ,
                "SPARK_HOME": str(HOME),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_IP": address or address_of(host),
            },
        )


def spark_submit(*words: str, **environment: str) -> list[str]:
    """Run `spark-submit`. Return the output lines of the script and of Spark."""
    usual = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [str(HOME / "bin" / "spark-submit"), *words],
        env={**usual, **os.environ, "SPARK_HOME": str(HOME), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-6000:]
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def answer_of(url: str) -> Any:
    """Return the JSON at this address. Raises AssertionError while there is no response."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310
            return json.load(answer)
    except OSError as error:
        raise AssertionError(f"{url}: {error}") from error


class Cluster:
    """A master, and workers that tests add and remove. The daemons read $SPARK_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "spark"
        self._port = free_port()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self.url = f"spark://127.0.0.1:{self._port}"

    def start_master(self) -> None:
        where = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._master = daemon(self._folder, "master", f"{DEPLOY}.master.Master", *where)
        self._daemons.append(self._master)
        eventually(lambda: _listens(self._port))

    def start(self, workers: int = 1) -> str:
        """Start a master and workers. Return the master's address."""
        self.start_master()
        for _ in range(workers):
            self.add_worker()
        return self.url

    def add_worker(self, host: str = "127.0.0.1", cores: int = 2) -> subprocess.Popen[bytes]:
        name = f"worker-{len(self._daemons)}"
        location = ("--host", host, "--work-dir", str(self._folder / f"work-{name}"))
        size = ("--cores", str(cores), "--memory", "2g", "--webui-port", "0")
        words = (f"{DEPLOY}.worker.Worker", *size, *location, self.url)
        self._daemons.append(daemon(self._folder, name, *words, address=host))
        return self._daemons[-1]

    def applications(self) -> dict[str, int]:
        """Return the number of cores of each active application, by its name."""
        return {one["name"]: one["cores"] for one in self._page()["activeapps"]}

    def workers(self) -> int:
        """Return the number of living workers that the master knows."""
        return int(self._page()["aliveworkers"])

    def _page(self) -> Any:
        log = (self._folder / "master.log").read_text()
        found = re.search(r"MasterWebUI.* started at (http://\S+)", log)
        assert found is not None, log
        return answer_of(f"{found[1]}/json/")

    def end_master(self) -> None:
        assert self._master is not None
        end(self._master)

    def end(self) -> None:
        for process in reversed(self._daemons):
            end(process)


@contextmanager
def standalone(tmp_path: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """Run a master and one worker on each of `hosts` until the block ends. Yield the master's
    address. The daemons read $SPARK_CONF_DIR.
    """
    cluster = Cluster(tmp_path)
    try:
        cluster.start_master()
        for host in hosts:
            cluster.add_worker(host)
        yield cluster.url
    finally:
        cluster.end()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a daemon and its descendants."""
    if process.poll() is None:
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in below:
            with suppress(psutil.NoSuchProcess):
                child.kill()


@dataclass(frozen=True, slots=True)
class Spread:
    """A master on its own host, and a worker on each of several other hosts."""

    url: str
    master: subprocess.Popen[bytes]
    workers: tuple[subprocess.Popen[bytes], ...]


@contextmanager
def spread(folder: Path, master: Host, workers: Sequence[Host], cores: int) -> Iterator[Spread]:
    """Run a cluster as `standalone` does, but with each daemon on its own host."""
    url = f"spark://{address_of(master)}:{PORT}"
    web = ("--webui-port", "0")
    with ExitStack() as stack:
        here = ("--host", address_of(master), "--port", str(PORT))
        leading = daemon(folder, "master", f"{DEPLOY}.master.Master", *here, *web, host=master)
        stack.callback(end, leading)
        eventually(lambda: master.within(lambda: _listens(PORT, address_of(master))))
        started = []
        for host in workers:
            location = ("--host", address_of(host), "--work-dir", str(folder / host.name))
            size = ("--cores", str(cores), "--memory", "1g")
            entry = f"{DEPLOY}.worker.Worker"
            started.append(daemon(folder, host.name, entry, *web, *location, *size, url, host=host))
            stack.callback(end, started[-1])
        yield Spread(url, leading, tuple(started))


def _listens(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def executors() -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if is_executor(process)]


def is_executor(process: psutil.Process) -> bool:
    """Return True if the process is the JVM of an executor of any cluster."""
    try:
        return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline()
    except psutil.Error:
        return False
