"""The results of `twinlog check` as values, for its output and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.errors import TwinlogError


class Plan(StrEnum):
    """What `mirror` would do with a remote topic."""

    CREATE = "create"
    GROW = "grow"
    EXISTS = "exists"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem that stops a topic or a flow; the message contains the remedy."""

    code: str
    message: str
    topic: str | None = None
    partition: str | None = None
    """The source or target partition, if the problem concerns one."""

    @classmethod
    def of(cls, error: TwinlogError, topic: str | None = None) -> Problem:
        partition = None if error.partition is None else str(error.partition)
        return cls(code=error.code, message=error.message, topic=topic, partition=partition)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """One cluster of the file, as it responds to the credentials of one client."""

    alias: str
    addresses: str
    cluster_id: str = ""
    brokers: int = 0
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic that would be mirrored."""

    topic: str
    remote_topic: str
    partitions: int
    plan: Plan
    remote_partitions: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    """Configs with which the remote topic would be created."""
    start: str = ""
    """Where the copies of the partitions would begin, as text; `begins` has the offsets."""
    begins: Mapping[int, int] = field(default_factory=dict)
    """Source offsets at which partitions would begin. Partitions that resume are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """The memory that a flow's lanes need; all sizes are bytes."""

    lanes: int
    lane_bytes: int
    """Memory of one lane and its successor. On a Spark cluster, an executor's heap comes on top."""
    process_bytes: int
    """Memory of driver and JVM."""
    transforms_bytes: int = 0
    """Maximum memory of the application of the flow's transforms, or 0 without transforms."""
    limit_bytes: int | None = None
    """The memory limit of this process's cgroup for all flows, or None without a limit."""


@dataclass(slots=True, kw_only=True)
class FlowReport:
    """The results for one flow; filled during the check."""

    flow: str
    topics: list[TopicReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Information that needs no action."""
    transforms: list[str] = field(default_factory=list)
    """The columns that each transform returns. Transforms that failed their check are left out."""
    changes: list[str] = field(default_factory=list)
    """What the syncs of configs and ACLs would change on existing topics."""
    guarantee: str | None = None
    """The guarantee of the flow, or None if the target was not probed."""
    missing_capabilities: tuple[str, ...] = ()
    memory: LaneMemory | None = None
    """The memory of the lanes, or None if the topics are unknown."""

    @property
    def partitions(self) -> int:
        return sum(topic.partitions for topic in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The results of the whole check."""

    file: str
    warnings: tuple[str, ...]
    clusters: tuple[ClusterReport, ...]
    flows: tuple[FlowReport, ...]
    certificates: tuple[Problem, ...] = ()
    """Expired certificates, each listed once."""
    refused: tuple[Problem, ...] = ()
    """Lines of the file that `twinlog mirror` refuses."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        clusters = [c.problem for c in self.clusters if c.problem is not None]
        of_flows = (problem for flow in self.flows for problem in flow.problems)
        return (*self.refused, *self.certificates, *clusters, *of_flows)
