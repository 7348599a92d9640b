"""How much is done: the full run, the quick one, and the cases there are."""

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
    """Sizes and times of one benchmark."""

    rounds: int
    backlog_records: int
    old_records: int
    small_records: int
    warm_up_s: float
    """Of the latency case, from the first record on: also what a JVM gets to compile its code."""
    window_s: float
    """Over how many seconds of record timestamps latency is taken."""
    groups: int = 1000
    """In the groups case, with an offset in each of so many partitions:"""
    group_partitions: int = 100
    groups_warm_up_s: float = 3
    groups_window_s: float = 15
    """Over how many seconds one group commits and its checkpoints are timed."""
    partitions: int = 4
    rate: int = 1000
    """Records per second of the latency case."""
    seed: int = 20240229
    warms_up: bool = True
    """Whether each copier first copies the backlog once for nothing."""

    def at_rate_of(self, case: str) -> Scale:
        """The same with the rate of a steady case."""
        return replace(self, rate=self.rate * 10) if case == "busy" else self

    def ballast_bytes(self, case: str) -> int:
        """What a run will need: heaps, and the copy of a backlog in the page cache."""
        records = {
            "backlog": self.backlog_records,
            "tls": self.backlog_records,
            "unprotected": self.old_records,
            "small": self.small_records,
        }.get(case, 0)
        return 2000 * 2**20 + records * 600

    @property
    def lease_s(self) -> float:
        """Twinlog's lease in the latency case: its change falls into the middle of the window.

        The first lease begins about when the first record arrives, and lasts as long as the next
        one, so the second change comes after the window.
        """
        return self.warm_up_s + self.window_s / 2


FULL: Final = Scale(
    rounds=3,
    backlog_records=2_000_000,
    old_records=1_000_000,
    small_records=500_000,
    warm_up_s=75,  # MirrorMaker 2's JVM compiles for more than a minute, with half of a core
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
    """A number of a command line, with separators where somebody likes them."""
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
