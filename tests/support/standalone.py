"""A standalone master of Spark and two workers, whose daemons and jobs share a secret."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from tests.support.eventually import eventually

HOME = Path(pyspark.__file__).parent
SPARK_CLASS = HOME / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an operator sets for the master, the workers and the mirror."""
    folder = tmp_path / "conf"
    folder.mkdir()
    lines = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
    }
    text = "".join(f"{key} {value}\n" for key, value in lines.items())
    (folder / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    return folder


def daemon(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(SPARK_CLASS), *arguments],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={
                **os.environ,
                "SPARK_HOME": str(HOME),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )


@contextmanager
def standalone(tmp_path: Path) -> Iterator[str]:
    """Its address; the daemons are as $SPARK_CONF_DIR says."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    folder = tmp_path / "spark"
    web = ("--webui-port", "0")
    started = [
        daemon(
            folder,
            "master",
            f"{DEPLOY}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            *web,
        )
    ]
    try:
        eventually(lambda: _listens(port))
        for number in range(2):
            place = ("--host", "127.0.0.1", "--work-dir", str(folder / f"work-{number}"))
            size = ("--cores", "2", "--memory", "1g")
            entry = f"{DEPLOY}.worker.Worker"
            started.append(daemon(folder, f"worker-{number}", entry, *web, *place, *size, url))
        yield url
    finally:
        for process in reversed(started):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def executors() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in line:
            found.append(process)
    return found
