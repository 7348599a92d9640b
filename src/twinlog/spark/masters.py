"""Properties of a Spark master: its kind, and its task slots for leases."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any, Final

from pyspark import SparkContext

from twinlog.errors import EnvironmentMissing

log = logging.getLogger(__name__)

TASK_FAILURES: Final = 1000
"""How often a task may fail. Otherwise one killed worker would fail every lane of its lease."""

REGISTER_WITHIN_S: Final = 60.0
SETTLED_S: Final = 3.0
"""Executors register one by one. After this time without a new one, no more are expected."""

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*(\*|\d+))?\])?")

_OTHERS = re.compile(r"yarn|(?:spark|k8s)://.+|local-cluster\[.+\]")


def is_local(master: str | None) -> bool:
    """Return whether lanes run in processes of this machine. `local-cluster[...]` has executors."""
    return master is None or _LOCAL.fullmatch(master) is not None


def require_known(master: str) -> None:
    """Raise EnvironmentMissing if Spark would reject the master, with a stack trace of its own."""
    if not is_local(master) and _OTHERS.fullmatch(master) is None:
        raise EnvironmentMissing(
            f"--master: {master} is not a Spark master: write local[4], spark://host:7077, "
            "k8s://https://host:443 or yarn"
        )


def local_master(
    master: str | None, lanes: int, cores: int, failures_allowed: int = TASK_FAILURES
) -> str:
    """Return the local master to start: slots for a lease and its successor, and two spare ones.

    A given number of slots is kept. Only the second number in the brackets makes Spark repeat a
    failed task here (`spark.task.maxFailures` is for clusters), so it is added if missing.
    """
    if master is None:
        return f"local[{2 * lanes + 2},{failures_allowed}]"
    found = _LOCAL.fullmatch(master)
    slots, failures = found.groups() if found else (None, None)
    slots = cores if slots == "*" else slots or 1
    return f"local[{slots},{failures or failures_allowed}]"


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def task_slots(context: SparkContext, wanted: int) -> int:
    """Return how many tasks can run at the same time, after executors have registered.

    With dynamic allocation executors start when they are needed, so the result is `wanted`.
    """
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return wanted
    began = time.monotonic()
    slots, changed = 0, began
    while slots < wanted:
        now, found = time.monotonic(), _slots_now(context)
        if found != slots:
            slots, changed = found, now
        if slots and (is_local(context.master) or now - changed > SETTLED_S):
            break
        if not slots and now - began > REGISTER_WITHIN_S:
            raise EnvironmentMissing(
                f"no executor of {context.master} has registered within "
                f"{REGISTER_WITHIN_S:.0f} s; {wanted} task slots are needed: check the master's "
                "free cores, and whether executors can reach this machine"
            )
        time.sleep(0.1)
    if slots < wanted:
        log.warning(
            "%s offers %d task slots, but lanes and their successors need %d: fewer lanes are "
            "used; add cores, or set tasks.max or --lanes lower",
            context.master,
            slots,
            wanted,
        )
    return slots


def _slots_now(context: SparkContext) -> int:
    scala: Any = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return int(scala.maxNumConcurrentTasks(profile))
