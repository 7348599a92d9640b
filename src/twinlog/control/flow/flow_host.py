"""What a flow that runs needs of the process around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from twinlog.control.lanes.lanes import Job
from twinlog.survey.map_reader import Maps

if TYPE_CHECKING:
    from twinlog.control.flow.flow_run import FlowRun


class Host(Protocol):
    """The process: it has Spark, and threads for what may block."""

    def start_lease(self, flow: FlowRun, lanes: int) -> tuple[int, Job]:
        """Start a Spark job of so many lanes; its number is unique in this process."""

    def read_map(self, flow: FlowRun, then: Callable[[Maps], None]) -> None:
        """Read the offset map to its end, then call back in the supervisor's thread."""
