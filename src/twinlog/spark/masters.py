"""Properties of a Spark master: its kind, and its task slots for leases (Spark jobs of lanes)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

from twinlog.errors import Disconnected
from twinlog.flow_log import NEWS
from twinlog.quantities import plural
from twinlog.spark.options import LOCAL, is_local

log = logging.getLogger(__name__)

TASK_FAILURES: Final = 1000
"""Number of failures of a task after which its job fails. With a low number, one killed worker
would fail every lane of its lease.
"""

CORES_MAX: Final = "spark.cores.max"
OVERHEAD: Final = "spark.executor.minMemoryOverhead"
HEAP_OVERHEAD_MIB: Final = 384
"""Spark's default memory overhead in MiB, which is only for the JVM."""
SETTLED_S: Final = 3.0
"""Seconds without a new executor after which no more are expected to register."""


def local_master(
    master: str | None, lanes: int, cores: int, failures_allowed: int = TASK_FAILURES
) -> str:
    """Return the master URL to start, like `local[6,1000]`. By default, it has a task slot for each
    lane of a lease and of the next lease, and two more. The user's number of slots is not changed.
    The second number is added if it is missing, because a local master repeats failed tasks only if
    it is set (`spark.task.maxFailures` is for clusters).
    """
    match = None if master is None else LOCAL.fullmatch(master)
    if match is None:
        return f"local[{2 * lanes + 2},{failures_allowed}]"
    slots, failures = match.groups()
    return f"local[{cores if slots == '*' else slots or 1},{failures or failures_allowed}]"


def slots_for(lanes: int, flows: int) -> int:
    """Return the number of task slots for all flows: one for each lane, and one more for each flow.
    A flow needs the additional slot because its next lease (Spark job) replaces lanes one by one.
    """
    return lanes + flows


def cores_setting(url: str, slots: int, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that limits a standalone cluster's application to the cores for these task
    slots. The result is empty for other masters, if the user has set a limit, or if `slots` is 0.
    """
    if not url.startswith("spark://") or not slots or CORES_MAX in conf:
        return {}
    each = _number(conf, "spark.executor.cores")
    cores = slots * _number(conf, "spark.task.cpus")
    cores = -(-cores // each) * each  # whole executors, because a part of one is not started
    log.info(
        "%s: %d cores for %s; each flow keeps one slot for its next lease; %s sets another "
        "number of cores",
        url,
        cores,
        plural(slots, "task slot"),
        CORES_MAX,
        extra=NEWS,
    )
    return {CORES_MAX: str(cores)}


def standby_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which an idle application keeps one executor, and requests more for
    its leases (Spark jobs). Settings that the user has set are left out.
    """
    held = {"enabled": "true", "shuffleTracking.enabled": "true", "minExecutors": "1"}
    usual = {f"spark.dynamicAllocation.{key}": value for key, value in held.items()}
    return {key: value for key, value in usual.items() if key not in conf}


def memory_setting(url: str, lane_bytes: int, conf: Mapping[str, str]) -> dict[str, str]:
    """Return `spark.executor.minMemoryOverhead` for YARN and Kubernetes, so that executors'
    containers have memory for lanes besides the heap. The result is empty for other masters, or if
    the user has set it.

    `spark.executor.memoryOverhead`, if set, overrides this setting.
    """
    if not lane_bytes or not (url == "yarn" or url.startswith("k8s://")) or OVERHEAD in conf:
        return {}
    lanes = _number(conf, "spark.executor.cores") // _number(conf, "spark.task.cpus")
    return {OVERHEAD: f"{HEAP_OVERHEAD_MIB + -(-lanes * lane_bytes >> 20)}m"}


def _number(conf: Mapping[str, str], key: str) -> int:
    """Return a setting's number, or 1, which is its default. If the value is no positive number,
    the result is also 1, and Spark reports the error.
    """
    text = conf.get(key, "1")
    return max(1, int(text)) if text.isdecimal() else 1


def task_slots(
    context: SparkContext, wanted_slots: int, keeps_waiting: Callable[[], bool] = lambda: True
) -> int:
    """Wait until executors have registered, and return how many tasks can run at the same time.
    Returns 0 if `keeps_waiting` returns False before an executor has registered.

    With dynamic allocation, the result is `wanted_slots`, because executors start when tasks need
    them.
    """
    if is_dynamic(context):
        return wanted_slots
    slots, changed = 0, time.monotonic()
    while slots < wanted_slots and keeps_waiting():
        now, last = time.monotonic(), slots_now(context)
        if last != slots:
            slots, changed = last, now
        if slots and (is_local(context.master) or now - changed > SETTLED_S):
            break
        time.sleep(0.1)
    if 0 < slots < wanted_slots:
        log.warning(
            "%s offers %d task slots, but lanes and the next lease need %d, so fewer lanes are "
            "used; add cores, or lower tasks.max or --lanes",
            context.master,
            slots,
            wanted_slots,
        )
    return slots


def is_dynamic(context: SparkContext) -> bool:
    """Return True if Spark's dynamic allocation is enabled."""
    return context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"


def slots_now(context: SparkContext) -> int:
    """Return the number of task slots of all registered executors. Raises Disconnected if Spark's
    cluster has ended the application, or if the JVM does not respond.
    """
    java: Any = context._jsc
    try:
        if java is None or java.sc().isStopped():
            raise Disconnected("Spark has ended the application")
        scala = java.sc()
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return int(scala.maxNumConcurrentTasks(profile))
    except Py4JError as error:
        raise Disconnected("Spark's JVM does not respond") from error
