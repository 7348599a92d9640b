"""What was seen of one flow and its two clusters within a few seconds: values, from which all
findings follow without another question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote
from typing import Final

from twinlog.cluster.topics.quotas import Quota
from twinlog.config.flow.tuning import Tuning
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.model import TopicPartition

SLOW_MS: Final = 10_000
"""A copy that is less far behind is not slow: it merely runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One cluster, as this host sees it now."""

    alias: str
    problem: str = ""
    """Why it does not answer; nothing else is known of it then."""
    round_trips_ms: Mapping[int, float] = field(default_factory=dict)
    """By broker, of a small request."""
    leaderless: tuple[TopicPartition, ...] = ()
    """Of those that the flow reads or writes."""
    under_min_isr: tuple[TopicPartition, ...] = ()
    quotas: tuple[Quota, ...] | None = ()
    """Those that may hold the flow's clients back; None: they may not be read."""

    @property
    def round_trip_ms(self) -> float:
        """Of the slowest broker; -1: not known."""
        return max(self.round_trips_ms.values(), default=-1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What holds the flow back because somebody wanted it."""

    bytes_per_second: int
    who: str
    """Whoever set it, or the key of the configuration."""
    is_key: bool


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One flow now."""

    snapshot: FlowSnapshot
    file: str
    """As the commands get it."""
    source: ClusterView
    target: ClusterView
    pause: str = ""
    """Who paused the whole flow, and why, in words; empty: nobody."""
    limit: Limit | None = None
    tuning: Tuning = field(default_factory=Tuning)
    tasks_max: int | None = None
    cores: int | None = None
    """Of this host; None where the flow's process runs on another one."""
    silent_ms: int = 0
    """For how long its process, which lives, should have said something; 0: it did, or not known.
    """
    rates: Mapping[TopicPartition, float] | None = None
    """Bytes a second of each partition, measured now; None: not known."""
    told_rate: float | None = None
    """Bytes a second of the whole flow, by the rows that its leader wrote on another host."""
    decoded: Mapping[str, str] = field(default_factory=dict)
    """Topics of the source that are behind and whose batches must be decoded, and why."""
    notes: tuple[str, ...] = ()
    """What could not be asked, and why."""

    @property
    def flow(self) -> str:
        return self.snapshot.flow

    @cached_property
    def behind(self) -> tuple[PartitionSnapshot, ...]:
        """Partitions that records wait for."""
        parts = self.snapshot.partitions
        return tuple(one for one in parts if one.lag > 0 and not one.is_held_back)

    @cached_property
    def lag(self) -> int:
        """Records that wait, of partitions where that is known."""
        return sum(one.lag for one in self.behind)

    @cached_property
    def lag_ms(self) -> int:
        return max((one.lag_ms for one in self.behind), default=0)

    @cached_property
    def batches(self) -> tuple[int, int]:
        """Of partitions that are behind: what their lanes have read, and how many of those batches
        were decoded or packed again.
        """
        return sum(one.batches for one in self.behind), sum(one.recoded for one in self.behind)

    @property
    def is_slow(self) -> bool:
        """Something has waited for longer than a copy that runs takes."""
        return self.lag_ms > SLOW_MS

    @property
    def rate(self) -> float | None:
        """Bytes a second of the whole flow; None: not known."""
        return self.told_rate if self.rates is None else sum(self.rates.values())

    def command(self, words: str) -> str:
        """A command about this flow, as it is typed."""
        return f"twinlog {words} {quote(self.file)} --flow '{self.flow}'"
