"""The sizes of the full and of the quick benchmark, and the list of cases."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["CASES", "FULL", "QUICK", "STEADY_CASES", "Scale", "positive"]

CASES: Final = {
    "backlog": "copy a topic that is full: records/s, CPU, memory",
    "unprotected": "the same with records older than a day, where nothing is protected",
    "small": "a topic whose batches have one record each: records/s, CPU",
    "tls": "the backlog with TLS on both clusters: records/s, CPU",
    "latency": "a steady 1,000 records a second: time from record timestamp to arrival, CPU",
    "lowest": "the same with settings for the lowest latency",
    "busy": "the same with 10,000 records a second",
    "groups": "1,000 groups synced, and the time from a commit to its checkpoint",
    "startup": "time from the start of the process to the first record on the target",
}

STEADY_CASES: Final = ("latency", "lowest", "busy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes and durations of one benchmark."""

    rounds: int
    backlog_records: int
    old_records: int
    small_records: int
    warm_up_s: float
    """Time from the first record to the window in the latency case, in which a JVM also compiles
    its code.
    """
    window_s: float
    """Duration of the window of record timestamps in which latency is measured, in seconds."""
    groups: int = 1000
    """Number of groups in the groups case, each with an offset in `group_partitions` partitions."""
    group_partitions: int = 100
    groups_warm_up_s: float = 3
    groups_window_s: float = 15
    """Time in which one group commits, and its checkpoints are measured, in seconds."""
    partitions: int = 4
    rate: int = 1000
    """Records per second in the latency case."""
    seed: int = 20240229
    warms_up: bool = True
    """If True, each copier first copies the backlog once without a measurement."""

    def at_rate_of(self, case: str) -> Scale:
        """Return this scale with the rate of a steady case."""
        return replace(self, rate=self.rate * 10) if case == "busy" else self

    def ballast_bytes(self, case: str) -> int:
        """Return the memory that a run will need, for heaps and for the copied backlog in the page
        cache.
        """
        records = {
            "backlog": self.backlog_records,
            "tls": self.backlog_records,
            "unprotected": self.old_records,
            "small": self.small_records,
        }.get(case, 0)
        return 2000 * 2**20 + records * 600

    @property
    def lease_s(self) -> float:
        """The duration of Twinlog's lease in the latency case, so that the lease changes in the
        middle of the window.

        The first lease begins approximately when the first record arrives. The next lease has the
        same duration, so it ends after the window.
        """
        return self.warm_up_s + self.window_s / 2


FULL: Final = Scale(
    rounds=3,
    backlog_records=2_000_000,
    old_records=1_000_000,
    small_records=500_000,
    warm_up_s=75,  # MirrorMaker 2's JVM compiles code for more than a minute, with half a core
    window_s=60,
)
QUICK: Final = Scale(
    warms_up=False,
    rounds=1,
    backlog_records=500_000,
    old_records=200_000,
    small_records=100_000,
    warm_up_s=8,
    window_s=20,
    groups=200,
    group_partitions=20,
    groups_window_s=5,
)


def positive(text: str) -> int:
    """Parse a positive number of the command line, which may have `,` and `_` as separators."""
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
