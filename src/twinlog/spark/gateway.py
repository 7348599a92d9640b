"""Starts the JVM that Spark's driver runs in, and ends it whatever happens.

What `pyspark.java_gateway.launch_gateway` does, with three differences. Here Spark's launcher
scripts and their second JVM are left out: the class that they end up with (`PythonGatewayServer`)
is started with our own flags. For a cluster they are used, since they read its configuration
(`spark-defaults.conf`, Hadoop's, Kubernetes'). PySpark gets port and secret in both cases.

The JVM gets a session of its own and ignores SIGTERM, SIGINT and SIGHUP: a Ctrl-C or a `kill` of
the whole group must reach the lanes as an orderly stop through the driver, not as a JVM that is
gone. It ends when its standard input closes, so it never outlives the driver, however that died;
the shell that has waited for it then removes its folder.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import pyspark

from twinlog.errors import EnvironmentMissing
from twinlog.folders import temporary_folder
from twinlog.java import archive_flags, class_archive, java_command
from twinlog.shown import shown_lines

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
    "-Xms32m",
    "-Xmx512m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xlog:disable",  # it would write to our standard output
    "-Xlog:all=error:stderr",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=unpooled",
    "-Djdk.reflect.useDirectMethodHandle=false",
)
"""A driver that only places a few tasks: small and quick to start.

With Spark's own flags the first task ran after 12.5 CPU seconds in a JVM of 380 MB; with C1 alone
and SerialGC after 7.2 in the same, and with a heap that starts small after 6.8 in 295 MB. Spark
refuses a heap below 471 MB. With the classes mapped from an archive (`spark_archive`) it is 3.8 in
place of 6.1.
"""

_WRAPPER: Final = 'trap "" TERM INT HUP; folder=$0; "$@"; rm -rf "$folder"'
"""What a shell ignores, the program that it starts ignores too; a preexec_fn would run Python
between fork and exec, which is not safe beside other threads."""

_ADDRESSES: Final = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS")

_NOISE: Final = b"Using incubator modules"


def spark_archive() -> Path:
    """Where the archive of Spark's classes lies, beside the installed packages; `preparation` makes
    it.
    """
    home = Path(pyspark.__file__).parent
    return class_archive(
        Path(sys.prefix) / "share" / "twinlog", str(home), pyspark.__version__, *JVM_FLAGS
    )


def start_jvm(options: Sequence[str]) -> Gateway:
    """A JVM for lanes on this machine; nothing but these flags and options configures it."""
    ensure_open_files()
    java = java_command()
    home = Path(pyspark.__file__).parent
    folder = _make_folder()
    command = [
        str(java),
        "-cp",
        f"{home}/jars/*",
        *JVM_FLAGS,
        *archive_flags(spark_archive()),
        *options,
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN_PACKAGES),
        f"-Djava.io.tmpdir={folder}",
        f"-Dspark.sql.warehouse.dir={folder}/warehouse",
        "org.apache.spark.api.python.PythonGatewayServer",
    ]
    # on the loopback whatever the environment says for other work
    environment = {k: v for k, v in os.environ.items() if k not in _ADDRESSES}
    return Gateway(command, folder, home, {**environment, "SPARK_LOCAL_IP": "127.0.0.1"})


def submit_jvm(options: Sequence[str], settings: Mapping[str, str]) -> Gateway:
    """A JVM for a cluster's driver, by the `spark-submit` of SPARK_HOME or else of PySpark."""
    ensure_open_files()
    java_command()
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    folder = _make_folder()
    every = {
        **settings,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(
            (*(f for f in JVM_FLAGS if not f.startswith("-Xm")), *options)
        ),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    command = [str(home / "bin" / "spark-submit")]
    for key, value in every.items():
        command += ["--conf", f"{key}={value}"]
    return Gateway([*command, "pyspark-shell"], folder, home, os.environ)


class Gateway:
    """The JVM of this process's Spark."""

    def __init__(
        self, command: Sequence[str], folder: Path, home: Path, environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._before: dict[str, str | None] = {}
        info = folder / "gateway"
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", _WRAPPER, str(folder), *command],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **environment,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "SPARK_LOCAL_DIRS": str(folder),
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
            },
            start_new_session=True,
        )
        threading.Thread(
            target=_pass_on, args=(self.process.stderr,), name="twinlog-jvm-output", daemon=True
        ).start()
        port, secret = self._read(info)
        variables = {
            "SPARK_HOME": str(home),
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": secret,
        }
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def restore_environment(self) -> None:
        """PySpark has read it: a child would take this JVM, and this Spark, for its own."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}

    def _read(self, info: Path) -> tuple[int, str]:
        deadline = time.monotonic() + START_WITHIN_S
        while not info.is_file():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise EnvironmentMissing(
                    "Spark's JVM did not start; run `java -version` (17 or newer is needed) and "
                    "look at the free memory"
                )
            time.sleep(0.01)
        raw = info.read_bytes()
        port, length = struct.unpack_from(">ii", raw)
        return port, raw[8 : 8 + length].decode()

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """Close its input, which ends it; kill it when that takes too long."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # the shell and the JVM below it
            self.process.wait()
        self.restore_environment()
        shutil.rmtree(self._folder, ignore_errors=True)


def _make_folder() -> Path:
    return temporary_folder("twinlog-spark-")


def _pass_on(stream: IO[bytes]) -> None:
    """What the JVM and its workers say goes to our standard error, but for the JVM's own banner."""
    with stream:
        for line in stream:
            if _NOISE not in line:
                # lanes say what brokers say
                text = line.decode(errors="backslashreplace").rstrip("\r\n")
                with suppress(OSError):  # read on: a JVM whose output is full has stopped
                    os.write(2, f"{shown_lines(text)}\n".encode())


# The limit of open files is checked before Spark's JVM starts. Spark's jars are 280 files, and a
# JVM with one task has 380 open; under a lower limit it fails with a missing class or an internal
# trace.

NEEDED: Final = 512
"""What the JVM has open, and some connections."""
WANTED: Final = 4096
"""A soft limit below what is needed is raised to this, or as far as the hard one goes."""


def ensure_open_files() -> None:
    """Raise the soft limit where it is too low; an error where the hard one is, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= NEEDED:
        return
    if hard == unlimited or hard >= NEEDED:
        more = WANTED if hard == unlimited else min(hard, WANTED)
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then the low limit is said
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            return
    raise EnvironmentMissing(
        f"too few open files: {soft} are allowed (ulimit -n), and Spark's JVM needs {NEEDED}: "
        f"run `ulimit -n {WANTED}` before, or set LimitNOFILE={WANTED} in the systemd unit"
    )
