"""Spark's settings: from options of `spark-submit`, Spark's own files, and Twinlog's defaults.

A setting of the user is used unless lanes cannot work with it. In this case it is replaced, and a
log line names it. As in `spark-submit`, `--conf` has precedence over `--properties-file`, which
replaces `spark-defaults.conf`. For lanes on this machine, only `--conf` and `--properties-file` are
read.
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
    "spark.ui.killEnabled": "false",  # otherwise users of Spark's page could end a lease
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.python.worker.faulthandler.enabled": "false",
    DRIVER_MEMORY: "512m",
    # an executor's JVM only starts lanes; without the C2 compiler, it needs half the CPU to start
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # otherwise YARN and Kubernetes end an application after it has lost a few executors, even if it
    # has run for a year
    "spark.executor.maxNumFailures": "1000",
    "spark.executor.failuresValidityInterval": "1h",
}
"""Twinlog's default settings for Spark. The user's settings have precedence."""

_FORMER: Final = {
    "spark.executor.maxNumFailures": "spark.yarn.max.executor.failures",
    "spark.executor.failuresValidityInterval": "spark.yarn.executor.failuresValidityInterval",
}
"""Older names of settings. Spark still reads them, so a user may have set them."""

NEEDED: Final = {
    # a speculative copy of a slow lane's task would be a second writer
    "spark.speculation": "false",
    "spark.python.daemon.module": "twinlog.spark.daemon",
}
"""Settings that lanes need. The user's settings cannot change them."""

CLIENT: Final = "client"

_OTHERS: Final = re.compile(r"yarn|(?:spark|k8s)://.+|local-cluster\[.+\]")
LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*(\*|\d+))?\])?")
"""Matches `local[SLOTS,FAILURES]`: task slots or `*`, and permitted failures of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The user's options for Spark, from the command line or from the caller's session."""

    master: str | None = None
    """The URL of the Spark master. None: lanes run on this machine."""
    archive: Path | None = None
    """The archive to send to executors (`pack`), or None if they have Twinlog installed."""
    may_be_open: bool = False
    """If True, a Spark master without a secret is accepted."""
    name: str | None = None
    """The name of Spark's application, or None for a default name that lists the flows."""
    properties_file: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    user_settings: Mapping[str, str] = field(default_factory=dict)
    """All settings of the user, from `--conf` and from files."""
    context: Any = None
    """The SparkContext of the caller's session, or None if Twinlog starts Spark itself."""

    @property
    def is_yarns_driver(self) -> bool:
        """Return True if YARN runs this driver (cluster mode). YARN ends such a driver unless it
        creates its SparkContext within `spark.yarn.am.waitTime` (100 s).
        """
        return (
            self.master == "yarn" and self.user_settings.get("spark.submit.deployMode") == "cluster"
        )

    @property
    def usual(self) -> dict[str, str]:
        """Return Twinlog's default settings without those that the user has set."""
        conf = self.user_settings
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
    """Return the options, with the settings in Spark's files. Raises UsageError if an option is
    wrong, and EnvironmentMissing if lanes cannot run in this environment (Spark Connect).
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
            "--archive is for executors of a Spark cluster: pass the cluster's --master as well, "
            "or omit --archive"
        )
    for key in NEEDED.keys() & requested.keys():
        if requested[key] != NEEDED[key]:
            raise UsageError(f"--conf {key}={requested[key]}: lanes need {key}={NEEDED[key]}")
    if os.environ.get("SPARK_REMOTE") or "spark.remote" in properties:
        raise EnvironmentMissing(
            "SPARK_REMOTE or spark.remote is set, but lanes do not run over Spark Connect: unset "
            "both, and pass the cluster's own master with --master"
        )
    if properties_file is None and not is_local(master):
        properties = {**_defaults(), **requested}
    mode = deploy_mode or properties.get("spark.submit.deployMode", CLIENT)
    if mode != CLIENT:
        raise UsageError(
            f"deploy mode {mode}: `twinlog` is the driver itself, so only the mode client is "
            "possible: omit --deploy-mode and spark.submit.deployMode, or start "
            "twinlog/__main__.py with `spark-submit --deploy-mode cluster`"
        )
    return SparkOptions(
        master=master,
        archive=archive,
        may_be_open=may_be_open,
        name=name or properties.get("spark.app.name"),
        properties_file=properties_file,
        conf=requested,
        user_settings=properties,
    )


def is_local(master: str | None) -> bool:
    """Return True if lanes run in processes of this machine. False for `local-cluster[...]`."""
    return master is None or LOCAL.fullmatch(master) is not None


def is_submitted() -> bool:
    """Return True if a JVM of `spark-submit` has started this process as its driver. False for a
    child process of the driver, although it has the same variables.
    """
    parent = Path(f"/proc/{os.getppid()}/cmdline")
    return (
        "PYSPARK_GATEWAY_PORT" in os.environ and b"org.apache.spark.deploy." in parent.read_bytes()
    )


def spark_home() -> Path:
    """Return the folder of Spark's scripts and files: SPARK_HOME, or else PySpark's package."""
    home, package = os.environ.get("SPARK_HOME"), find_spec("pyspark")
    return Path(home) if home else Path((package and package.origin) or "/").parent


def log_replaced_settings(conf: Mapping[str, str], needed: Mapping[str, str]) -> None:
    """Log one line with the user's settings that are replaced by `needed`, if there are any."""
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
    settings = parse_properties(text, file=str(file)).settings
    return {key: one.value.strip() for key, one in settings.items() if key.startswith("spark.")}
