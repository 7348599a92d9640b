"""The data of one flow and its two clusters, collected within a few seconds. All findings follow
from it without further queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from shlex import quote
from typing import Final

from twinlog.cluster.topics.quotas import Quota
from twinlog.config.flow.tuning import Tuning
from twinlog.control.watch.snapshot import FlowStatus, PartitionStatus
from twinlog.model import TopicPartition
from twinlog.quantities import largest, total

# One reason why a flow is slow or has stopped, and the remedy.


class Likelihood(IntEnum):
    """How certain it is that this holds the flow back, the most certain first."""

    CERTAIN = 1
    """Observed: its subject has stopped, or will lose records."""
    LIKELY = 2
    """A measurement indicates it."""
    POSSIBLE = 3
    """It has a cost of unknown size."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line with the observation and its number, and one with the remedy."""

    likelihood: Likelihood
    cause: str
    """A stable identifier for programs, such as `quota`."""
    what: str
    todo: str
    """A key to change, or a command."""

    FIELDS = "likelihood=likelihood.name.lower cause what todo"


SLOW_MS: Final = 10_000
"""A copy with a shorter lag is not regarded as slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One cluster, as seen from this host now."""

    alias: str
    problem: str = ""
    """Why it does not respond; then nothing else is known about it."""
    round_trips_ms: Mapping[int, float] = field(default_factory=dict)
    """Round-trip time of a small request, by broker."""
    leaderless: tuple[TopicPartition, ...] = ()
    """Partitions without a leader, among those that the flow reads or writes."""
    under_min_isr: tuple[TopicPartition, ...] = ()
    quotas: tuple[Quota, ...] | None = ()
    """Quotas that may apply to the flow's clients; None if they are not readable."""

    @property
    def round_trip_ms(self) -> float | None:
        """Round-trip time of the slowest broker; None if unknown."""
        return max(self.round_trips_ms.values(), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A configured or requested rate limit of the flow."""

    bytes_per_second: int
    who: str
    """The user who set it, or the configuration key."""
    is_key: bool


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The data of one flow now."""

    snapshot: FlowStatus
    file: str
    """The configuration file, as given to the commands."""
    source: ClusterView
    target: ClusterView
    pause: str = ""
    """Who paused the whole flow and why, as text; empty if it is not paused."""
    limit: Limit | None = None
    tuning: Tuning = field(default_factory=Tuning)
    tasks_max: int | None = None
    cores: int | None = None
    """Cores of this host; None if the flow's process runs on another host."""
    silent_ms: int = 0
    """How long the report of its process, which is alive, is overdue; 0 if it is not, or unknown.
    """
    rates: Mapping[TopicPartition, float] | None = None
    """Bytes per second of each partition, measured now; None if unknown."""
    reported_rate: float | None = None
    """Bytes per second of the whole flow, from the rows of a leader on another host."""
    decoded: Mapping[str, str] = field(default_factory=dict)
    """Source topics with a lag whose batches must be decoded, and why."""
    notes: tuple[str, ...] = ()
    """Failed queries, and why."""

    @property
    def flow(self) -> str:
        return self.snapshot.flow

    @cached_property
    def behind(self) -> tuple[PartitionStatus, ...]:
        """Partitions with a lag, without those that an open transaction holds back."""
        parts = self.snapshot.partitions
        return tuple(one for one in parts if one.lag and not one.is_held_back)

    @cached_property
    def lag(self) -> int:
        """Records that wait, over partitions where that is known."""
        return total(one.lag for one in self.behind) or 0

    @cached_property
    def lag_ms(self) -> int:
        return largest(one.lag_ms for one in self.behind) or 0

    @cached_property
    def batches(self) -> tuple[int, int]:
        """For partitions with a lag: the number of batches that their lanes have read, and how many
        of these were decoded or compressed again.
        """
        return sum(one.batches for one in self.behind), sum(one.recoded for one in self.behind)

    @property
    def is_slow(self) -> bool:
        """A record has waited for longer than a healthy copy takes."""
        return self.lag_ms > SLOW_MS

    @property
    def round_trips(self) -> str:
        """The known round-trip times as text; empty if none is known."""
        return ", ".join(
            f"{one.alias} {one.round_trip_ms:.1f} ms"
            for one in (self.source, self.target)
            if one.round_trip_ms is not None
        )

    @property
    def rate(self) -> float | None:
        """Bytes per second of the whole flow; None if unknown."""
        return self.reported_rate if self.rates is None else sum(self.rates.values())

    def command(self, words: str) -> str:
        """Return a command for this flow, as it is typed."""
        return f"twinlog {words} {quote(self.file)} --flow '{self.flow}'"
