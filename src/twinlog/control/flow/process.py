"""What a flow needs of the process around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from twinlog.clock import Clock
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.lanes.lanes import Job
from twinlog.control.risk.background import InBackground
from twinlog.control.running.flow_run import FlowRun
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.state.published_events import PublishedEvents
from twinlog.survey.map_reader import Maps

T = TypeVar("T")


class Process(Protocol):
    """It has Spark, a thread that decides, and threads for what may block."""

    clock: Clock
    once: bool
    background: InBackground
    synced: SyncedOffsets
    events: Callable[[str], PublishedEvents | None]
    """What happened to a flow here, for other hosts; None where that is not kept."""

    @property
    def can_lead(self) -> bool:
        """Spark is up."""

    def start_lease(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        """Start a Spark job of so many lanes; its number is unique in this process."""

    def lane_count(self, setup: FlowSetup, partitions: int) -> int:
        """How many lanes a flow gets."""

    def lease_s(self, setup: FlowSetup) -> tuple[float, float]:
        """How long a lease of the flow lasts, and its first one."""

    def call(self, action: Callable[[], object]) -> None:
        """Do it soon in the thread that decides; from any thread."""

    def ask(self, question: Callable[[], T]) -> T:
        """Its answer from the thread that decides. Raises Disconnected."""


@dataclass(frozen=True, slots=True)
class RunHost:
    """The process, for one run."""

    process: Process
    reads: Callable[[], Maps]

    def start_lease(self, flow: FlowRun, lanes: int) -> tuple[int, Job]:
        return self.process.start_lease(flow, lanes)

    def read_map(self, flow: FlowRun, then: Callable[[Maps], None]) -> None:
        self.process.background(self.reads, then, flow.map_failed)
