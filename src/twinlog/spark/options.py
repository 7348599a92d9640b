"""How Spark is used: the options of `spark-submit`, Spark's own files, and settings of Twinlog.

A setting of the user always counts, unless a lane cannot work with it: then one line names it. The
order is that of `spark-submit`: `--conf`, then `--properties-file` or else `spark-defaults.conf`.
For lanes on this machine only the two options are read.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from twinlog.config.files.properties import parse_properties
from twinlog.errors import EnvironmentMissing, UsageError

log = logging.getLogger(__name__)

DRIVER_MEMORY: Final = "spark.driver.memory"
DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"

USUAL: Final = {
    "spark.ui.killEnabled": "false",  # otherwise users who may read the page could end a lease
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.python.worker.faulthandler.enabled": "false",
    DRIVER_MEMORY: "512m",
    # an executor's JVM only starts lanes, and with C1 alone it starts with half the CPU
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # otherwise YARN and Kubernetes end an application after a few lost executors, even in a year
    "spark.executor.maxNumFailures": "1000",
    "spark.executor.failuresValidityInterval": "1h",
}
"""Settings that a user may change."""

_FORMER: Final = {
    "spark.executor.maxNumFailures": "spark.yarn.max.executor.failures",
    "spark.executor.failuresValidityInterval": "spark.yarn.executor.failuresValidityInterval",
}
"""Older names of settings that Spark still reads."""

NEEDED: Final = {
    # a speculative copy of a slow lane would be a second writer
    "spark.speculation": "false",
    "spark.python.daemon.module": "twinlog.spark.daemon",
}
"""Settings without which lanes do not work."""

CLIENT: Final = "client"

_OTHERS: Final = re.compile(r"yarn|(?:spark|k8s)://.+|local-cluster\[.+\]")
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*(\*|\d+))?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Spark options of the command line."""

    master: str | None = None
    """The Spark master, or None for this machine."""
    archive: Path | None = None
    """The archive that is sent to the master's executors, or None if Twinlog is installed there."""
    may_be_open: bool = False
    """Whether a Spark master without a secret is accepted."""
    name: str | None = None
    """The application's name, or None for one with the flows."""
    properties_file: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    """All settings of the user: those of `--conf` and of files."""
    context: Any = None
    """The SparkContext of the caller's session, or None: Twinlog starts its own."""

    @property
    def is_yarns_driver(self) -> bool:
        """Return True if YARN has started this driver. YARN ends such a driver if it has not
        created its SparkContext within `spark.yarn.am.waitTime` (100 s).
        """
        return self.master == "yarn" and self.given.get("spark.submit.deployMode") == "cluster"

    @property
    def usual(self) -> dict[str, str]:
        """Return Twinlog's settings that the user has not set."""
        conf = self.given
        return {k: v for k, v in USUAL.items() if k not in conf and _FORMER.get(k) not in conf}


def spark_options(
    *,
    master: str | None = None,
    archive: Path | None = None,
    may_be_open: bool = False,
    name: str | None = None,
    properties_file: Path | None = None,
    conf: Iterable[str] = (),
    deploy_mode: str | None = None,
) -> SparkOptions:
    """Return the options with the settings of Spark's files. Raises UsageError for a wrong option,
    and EnvironmentMissing for an environment in which no lane can run.
    """
    requested = dict(_key_and_value(key) for key in conf)
    properties = requested if properties_file is None else {**_read(properties_file), **requested}
    master = properties.get("spark.master") if master is None else master
    if not is_local(master) and _OTHERS.fullmatch(str(master)) is None:
        raise UsageError(
            f'--master: "{master}" is not a Spark master: write local[4], spark://host:7077, '
            "k8s://https://host:443 or yarn"
        )
    if archive is not None and master is None:
        raise UsageError(
            "--archive is for executors of a Spark cluster: give its --master as well, or leave "
            "--archive out"
        )
    for key in NEEDED.keys() & requested.keys():
        if requested[key] != NEEDED[key]:
            raise UsageError(f"--conf {key}={requested[key]}: lanes need {key}={NEEDED[key]}")
    if os.environ.get("SPARK_REMOTE") or "spark.remote" in properties:
        raise EnvironmentMissing(
            "SPARK_REMOTE or spark.remote is set, but lanes do not run over Spark Connect: unset "
            "it, and name the cluster's own master with --master"
        )
    if properties_file is None and not is_local(master):
        properties = {**_defaults(), **requested}
    mode = deploy_mode or properties.get("spark.submit.deployMode", CLIENT)
    if mode != CLIENT:
        raise UsageError(
            f"deploy mode {mode}: `twinlog` is the driver itself, so only the mode client is "
            "possible: leave --deploy-mode and spark.submit.deployMode out, or start "
            "twinlog/__main__.py by `spark-submit --deploy-mode cluster`"
        )
    return SparkOptions(
        master=master,
        archive=archive,
        may_be_open=may_be_open,
        name=name or properties.get("spark.app.name"),
        properties_file=properties_file,
        conf=requested,
        given=properties,
    )


def is_local(master: str | None) -> bool:
    """Return whether lanes run in processes of this machine. `local-cluster[...]` has executors."""
    return master is None or _LOCAL.fullmatch(master) is not None


def is_submitted() -> bool:
    """Return True if a JVM of `spark-submit` has started this process, to be its driver. A process
    that the driver has started only has the same variables.
    """
    parent = Path(f"/proc/{os.getppid()}/cmdline")
    return (
        "PYSPARK_GATEWAY_PORT" in os.environ and b"org.apache.spark.deploy." in parent.read_bytes()
    )


def local_slots(master: str) -> tuple[str | None, str | None]:
    """Return the slots of a local master, and how often a task may fail. Each is None if the
    master's text does not have it.
    """
    match = _LOCAL.fullmatch(master)
    return (match[1], match[2]) if match else (None, None)


def spark_home() -> Path:
    """Return the folder of the Spark whose scripts and files are used; PySpark is not imported."""
    home, package = os.environ.get("SPARK_HOME"), find_spec("pyspark")
    return Path(home) if home else Path((package and package.origin) or "/").parent


def name_replaced(conf: Mapping[str, str], needed: Mapping[str, str]) -> None:
    """Log in one line which settings of the user were replaced, because lanes do not allow them."""
    other = [key for key, value in needed.items() if conf.get(key, value) != value]
    if other:
        replaced = ", ".join(f"{key} {conf[key]} (lanes need {needed[key]})" for key in other)
        log.warning("settings of Spark that are replaced: %s", replaced)


def _key_and_value(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip().startswith("spark."):
        raise UsageError(f"--conf {setting}: write spark.KEY=VALUE")
    return key.strip(), value.strip()


def _defaults() -> dict[str, str]:
    folder = os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf"
    file = Path(folder) / "spark-defaults.conf"
    return _read(file) if file.is_file() else {}


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    entries = parse_properties(text, file=str(file)).entries
    return {entry.key: entry.value.strip() for entry in entries if entry.key.startswith("spark.")}
