"""Starts the JVM of Spark's driver, and ensures that it ends.

This module replaces `pyspark.java_gateway.launch_gateway`. For lanes on this machine, it does not
run Spark's launcher scripts, which would start a second JVM. Instead, it starts their class
`PythonGatewayServer` directly, with Twinlog's own flags. For a cluster it runs the scripts, because
they read the cluster's configuration (`spark-defaults.conf`, Hadoop's, Kubernetes'). In both cases,
PySpark gets the JVM's port and secret.

The JVM has its own session and ignores SIGTERM, SIGINT and SIGHUP. So after a Ctrl-C, or a `kill`
of the whole process group, the driver shuts lanes down cleanly while the JVM is still alive. The
JVM ends when its standard input closes, so it never outlives the driver, even if the driver is
killed. The shell that waits for the JVM then removes its temporary folder.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

from twinlog.errors import EnvironmentMissing
from twinlog.folders import temporary_folder
from twinlog.java import archive_flags, class_archive, java_command
from twinlog.shown import shown_lines
from twinlog.spark.jvm_use import OPENED
from twinlog.spark.options import DRIVER_MEMORY, DRIVER_OPTIONS, SparkOptions, spark_home

START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 5.0

_OPEN_PACKAGES: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""Packages of java.base that Spark accesses by reflection: Spark's list `JavaModuleOptions`."""

_BEANS: Final = tuple(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED)

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
    "-Xlog:disable",  # otherwise it would write to standard output
    "-Xlog:all=error:stderr",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=unpooled",
    "-Djdk.reflect.useDirectMethodHandle=false",
)
"""JVM flags for a driver that only schedules a few tasks, and so needs little memory and a quick
start.

With Spark's own flags, the first task ran after 12.5 CPU seconds, and the JVM had 380 MB. With only
the C1 compiler and SerialGC, it ran after 7.2 s, with the same memory. With a small initial heap in
addition, it ran after 6.8 s, with 295 MB. Spark rejects a maximum heap below 471 MB. An archive of
classes (`spark_archive`) reduced the time from 6.1 s to 3.8 s.
"""

_WRAPPER: Final = 'trap "" TERM INT HUP; folder=$0; "$@"; rm -rf "$folder"'
"""Shell program that starts the JVM with ignored signals, and then removes its folder. A preexec_fn
would run Python between fork and exec, which is unsafe if other threads exist.
"""

_ADDRESSES: Final = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS")

_NOISE: Final = b"Using incubator modules"
_WARNING: Final = re.compile(r" (?:WARNING|ERROR) spark\.\S* (.+)")
"""Matches warnings and errors in the format of `log4j2.properties`."""


def spark_archive() -> Path:
    """Return the path of the archive of Spark's classes, in share/twinlog of the Python
    environment. `preparation` creates it.
    """
    home = Path(pyspark.__file__).parent
    return class_archive(
        Path(sys.prefix) / "share" / "twinlog", str(home), pyspark.__version__, *JVM_FLAGS
    )


def start_jvm(spark: SparkOptions, options: Sequence[str]) -> Gateway:
    """Start a JVM for lanes on this machine. Ignores Spark's configuration files."""
    ensure_open_files()
    java = java_command()
    home = Path(pyspark.__file__).parent
    folder = temporary_folder("twinlog-spark-")
    memory = spark.user_settings.get(DRIVER_MEMORY)
    command = [
        str(java),
        "-cp",
        f"{home}/jars/*",
        *JVM_FLAGS,
        *archive_flags(spark_archive()),
        *([] if memory is None else [f"-Xmx{memory}"]),
        *options,
        *shlex.split(spark.user_settings.get(DRIVER_OPTIONS, "")),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN_PACKAGES),
        *_BEANS,
        f"-Djava.io.tmpdir={folder}",
        f"-Dspark.sql.warehouse.dir={folder}/warehouse",
        "org.apache.spark.api.python.PythonGatewayServer",
    ]
    # bind to the loopback interface, even if the environment has another address
    environment = {k: v for k, v in os.environ.items() if k not in _ADDRESSES}
    return Gateway(command, folder, home, {**environment, "SPARK_LOCAL_IP": "127.0.0.1"})


def submit_jvm(
    spark: SparkOptions, options: Sequence[str], settings: Mapping[str, str], name: str
) -> Gateway:
    """Start the JVM of a cluster's driver by `spark-submit` in SPARK_HOME, or else in PySpark."""
    ensure_open_files()
    java_command()
    home = spark_home()
    folder = temporary_folder("twinlog-spark-")
    own = spark.user_settings.get(DRIVER_OPTIONS)
    flags = [own] if own else [f for f in JVM_FLAGS if not f.startswith("-Xm")]
    properties = {
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        **spark.usual,
        **spark.conf,
        **settings,
        DRIVER_OPTIONS: " ".join((*options, *_BEANS, *flags)),
    }
    command = [str(home / "bin" / "spark-submit"), "--name", name]
    if spark.properties_file is not None:
        command += ["--properties-file", str(spark.properties_file)]
    for key, value in properties.items():
        command += ["--conf", f"{key}={value}"]
    return Gateway([*command, "pyspark-shell"], folder, home, os.environ)


SOCKET_NAME: Final = f".{uuid.UUID(int=0)}.sock"
"""A name as Spark gives it to its Unix sockets."""
SOCKET_PATH_BYTES: Final = 103
"""Maximum length of the path of a Unix socket (macOS; Linux permits four bytes more)."""


class Gateway:
    """The JVM of this process's Spark. Creating a Gateway starts the JVM."""

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
        self.last_warning = ""
        """The last warning or error that Spark has logged, or an empty text."""
        threading.Thread(target=self._pass_on, name="twinlog-jvm-output", daemon=True).start()
        port, secret = self._read(info)
        variables = {
            "SPARK_HOME": str(home),
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": secret,
        }
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def restore_environment(self) -> None:
        """Restore the environment after PySpark has read its variables. Otherwise child processes
        would use this JVM and its Spark.
        """
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
                    "check the free memory"
                )
            time.sleep(0.01)
        raw = info.read_bytes()
        port, length = struct.unpack_from(">ii", raw)
        return port, raw[8 : 8 + length].decode()

    @property
    def has_room_for_sockets(self) -> bool:
        """Return True if the path of a Unix socket in the temporary folder is short enough."""
        return len(bytes(self._folder / SOCKET_NAME)) <= SOCKET_PATH_BYTES

    @property
    def is_killed(self) -> bool:
        """Return True if the ended JVM was killed or failed (its exit code is not 0)."""
        return self.process.returncode != 0

    @property
    def has_ended(self) -> bool:
        """Return True if the JVM has ended."""
        return self.process.poll() is not None

    def _pass_on(self) -> None:
        """Copy the output of the JVM and its workers to standard error. The JVM's banner and
        repeated warnings are left out.
        """
        stream = self.process.stderr
        assert stream is not None  # noqa: S101 (it is a pipe)
        with stream:
            for line in stream:
                # escape the line, because lanes print text that comes from brokers
                text = line.decode(errors="backslashreplace").rstrip("\r\n")
                match = _WARNING.search(text)
                if _NOISE in line or (match and match.group(1) == self.last_warning):
                    continue
                if match:
                    self.last_warning = match.group(1)
                # ignore errors and continue to read, because the JVM blocks if its output pipe is
                # full
                with suppress(OSError):
                    os.write(2, f"{shown_lines(text)}\n".encode())

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """End the JVM by closing its standard input, or kill it if it takes too long."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # the shell and its child, the JVM
            self.process.wait()
        self.restore_environment()
        shutil.rmtree(self._folder, ignore_errors=True)


class SubmittedGateway(Gateway):
    """The JVM of the `spark-submit` that has started this process. It ends after this process."""

    def __init__(self) -> None:
        self.last_warning = ""
        self._parent = os.getppid()

    def restore_environment(self) -> None:
        """Do nothing, because PySpark must find this JVM also for a later session."""

    @property
    def has_ended(self) -> bool:
        """Return True if the JVM has ended."""
        return os.getppid() != self._parent

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """Do nothing, because the JVM ends after this process."""


# The limit of open files is checked before Spark's JVM starts. Spark has 280 jars, and its JVM with
# one task has 380 open files. With a lower limit, the JVM would fail with a missing class or an
# internal trace.

NEEDED: Final = 512
"""Minimum limit of open files: enough for the JVM and some connections."""
WANTED: Final = 4096
"""If the soft limit is below NEEDED, it is raised to this number, or to a lower hard limit."""


def ensure_open_files() -> None:
    """Increase the soft limit if it is below NEEDED. Raises EnvironmentMissing if that fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= NEEDED:
        return
    if hard == unlimited or hard >= NEEDED:
        more = WANTED if hard == unlimited else min(hard, WANTED)
        # if a sandbox forbids the change, the error below reports the low limit
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            return
    raise EnvironmentMissing(
        f"too few open files: {soft} are allowed (ulimit -n), but Spark's JVM needs {NEEDED}: "
        f"run `ulimit -n {WANTED}` first, or set LimitNOFILE={WANTED} in the systemd unit"
    )
