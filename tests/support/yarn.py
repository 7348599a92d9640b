"""YARN on this machine: a ResourceManager and a NodeManager in two processes. Their classes are in
the jar of Hadoop's minicluster and in PySpark's jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tests.support.eventually import eventually
from tests.support.standalone import HOME, answer_of, end, free_port
from twinlog.java import find_java
from twinlog.sandbox.kafka_jars import default_cache

VERSION: Final = "3.5.0"
"""Version of the Hadoop jars in PySpark."""
MINICLUSTER: Final = ("org.apache.hadoop", "hadoop-client-minicluster", VERSION)
BOUNCY_CASTLE: Final = ("org.bouncycastle", "bcpkix-jdk18on", "1.80")
"""A library that the ResourceManager needs in addition."""
SHA_256: Final = {
    "bcpkix-jdk18on-1.80.jar": "4f4ba6a92617ea19dc183f0fa5db492eee426fdde2a0a2d6c94777ffd1af6413",
    "bcprov-jdk18on-1.80.2.jar": "b33227f07dce264daf1aac2e798ef109a4901f31abedac53635746dd93679d3b",
    "bcutil-jdk18on-1.80.2.jar": "bc78d32d7ffb141ee27e4fb77df04259d842c899e7e8eaf912f990d7253bd3b4",
    f"hadoop-client-minicluster-{VERSION}.jar": (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
}
SERVERS: Final = "org.apache.hadoop.yarn.server"
ADDRESSES: Final = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
FLAGS: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def hadoop_jars() -> Path:
    """Return the folder with the jars of Hadoop's servers. PySpark's Ivy downloads them the first
    time.
    """
    folder = default_cache(os.environ).absolute() / f"hadoop-{VERSION}"
    if any(not (folder / name).exists() for name in SHA_256):
        fetch(folder, *MINICLUSTER, "-notransitive")
        fetch(folder, *BOUNCY_CASTLE)
    for name, known in SHA_256.items():
        with (folder / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == known, name
    return folder


def fetch(folder: Path, organisation: str, name: str, version: str, *more: str) -> None:
    (ivy,) = (HOME / "jars").glob("ivy-*.jar")
    names = f"{folder}/[artifact]-[revision].[ext]"
    words = ("-dependency", organisation, name, version, *more, "-types", "jar", "bundle")
    cache = ("-cache", str(folder / "ivy"), "-retrieve", names)
    command = [str(find_java()), "-jar", str(ivy), *words, *cache]
    subprocess.run(command, check=True, capture_output=True, timeout=600)


class Yarn:
    """A cluster of one node with 8 GB and 8 cores. `conf`: its HADOOP_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.conf = folder, folder / "conf"
        self.conf.mkdir(parents=True)
        self._web = f"127.0.0.1:{free_port()}"
        local = {f"nodemanager.{one}": "127.0.0.1:0" for one in ("address", "localizer.address")}
        yarn = {
            **{f"resourcemanager.{one}": f"127.0.0.1:{free_port()}" for one in ADDRESSES},
            "resourcemanager.webapp.address": self._web,
            **local,
            "nodemanager.webapp.address": "127.0.0.1:0",
            "nodemanager.resource.memory-mb": "8192",
            "nodemanager.resource.cpu-vcores": "8",
            "nodemanager.vmem-check-enabled": "false",
            "nodemanager.local-dirs": f"{folder}/local",
            "nodemanager.log-dirs": f"{folder}/logs",
            "nodemanager.disk-health-checker.enable": "false",
            "scheduler.minimum-allocation-mb": "128",
        }
        self._write("yarn-site", {f"yarn.{key}": value for key, value in yarn.items()})
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{folder}/hadoop"})
        scheduler = {"root.queues": "default", "root.default.capacity": "100"}
        scheduler["maximum-am-resource-percent"] = "1"
        found = {f"yarn.scheduler.capacity.{key}": value for key, value in scheduler.items()}
        self._write("capacity-scheduler", found)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both servers, and wait for the node to register."""
        for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            self._daemons.append(self._daemon(name))
        eventually(lambda: self._ask("metrics")["clusterMetrics"]["activeNodes"] == 1)

    def applications(self) -> list[dict[str, Any]]:
        """Return all applications that were submitted to the cluster."""
        return [*((self._ask("apps")["apps"] or {}).get("app", []))]

    def end(self) -> None:
        for process in reversed(self._daemons):
            end(process)

    def _daemon(self, name: str) -> subprocess.Popen[bytes]:
        java = find_java().resolve()
        paths = f"{self.conf}:{hadoop_jars()}/*:{HOME}/jars/*"
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(java), *FLAGS, "-cp", paths, f"{SERVERS}.{name}"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "JAVA_HOME": str(java.parents[1])},
            )

    def _ask(self, what: str) -> Any:
        return answer_of(f"http://{self._web}/ws/v1/cluster/{what}")

    def _write(self, name: str, properties: dict[str, str]) -> None:
        rows = (
            f"<property><name>{key}</name><value>{escape(value)}</value></property>"
            for key, value in properties.items()
        )
        (self.conf / f"{name}.xml").write_text(f"<configuration>{''.join(rows)}</configuration>")
