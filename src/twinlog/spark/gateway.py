"""Starts the JVM that Spark runs in: directly, without the launcher scripts and their second JVM.

What `pyspark.java_gateway.launch_gateway` does through `spark-submit`, in one step less: the class
that the scripts end up with (`PythonGatewayServer`) is started with our own flags, and PySpark is
told port and secret.

The JVM gets a session of its own and ignores SIGTERM, SIGINT and SIGHUP: a Ctrl-C or a `kill` of
the whole group must reach the lanes as an orderly stop through the driver, not as a JVM that is
gone. It ends when its standard input closes, so it never outlives the driver, however that died.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark

from twinlog.errors import EnvironmentMissing

START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 5.0

_OPEN_PACKAGES: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Spark's own list (`JavaModuleOptions`) of what it opens by reflection."""

JVM_FLAGS: Final = (
    "-Xms96m",
    "-Xmx512m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=unpooled",
    "-Djdk.reflect.useDirectMethodHandle=false",
)
"""A driver that only places a few tasks: small and quick to start."""


class Gateway:
    """The JVM of this process's Spark."""

    def __init__(self, flags: Sequence[str], environment: dict[str, str]) -> None:
        java = shutil.which("java")
        if java is None:
            raise EnvironmentMissing(
                "Java 17 or newer is missing; install it, for example: "
                "sudo apt install openjdk-17-jre-headless"
            )
        home = Path(pyspark.__file__).parent
        self._folder = Path(tempfile.mkdtemp(prefix="twinlog-spark-"))
        info = self._folder / "gateway"
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN_PACKAGES]
        self.process = subprocess.Popen(
            [
                # what a shell ignores, the program that replaces it ignores too; a preexec_fn would
                # run Python between fork and exec, which is not safe beside other threads
                "/bin/sh",
                "-c",
                'trap "" TERM INT HUP; exec "$0" "$@"',
                java,
                "-cp",
                f"{home}/jars/*",
                *JVM_FLAGS,
                *flags,
                *opens,
                f"-Djava.io.tmpdir={self._folder}",
                f"-Dspark.sql.warehouse.dir={self._folder}/warehouse",
                "org.apache.spark.api.python.PythonGatewayServer",
            ],
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                **environment,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "SPARK_LOCAL_DIRS": str(self._folder),
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
            },
            start_new_session=True,
        )
        os.environ["SPARK_HOME"] = str(home)
        port, secret = self._read(info)
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = secret

    def _read(self, info: Path) -> tuple[int, str]:
        deadline = time.monotonic() + START_WITHIN_S
        while not info.is_file():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise EnvironmentMissing(
                    "Spark's JVM did not start; run `java -version` (17 or newer is needed) and "
                    "look at "
                    "the free memory"
                )
            time.sleep(0.01)
        raw = info.read_bytes()
        port, length = struct.unpack_from(">ii", raw)
        return port, raw[8 : 8 + length].decode()

    def stop(self) -> None:
        """Close its input, which ends it; kill it when that takes too long."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
        shutil.rmtree(self._folder, ignore_errors=True)
