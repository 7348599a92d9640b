"""What one run of one copier measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["MIRROR_MAKER", "TWINLOG", "WARM_UP", "Latency", "RunResult"]

MIRROR_MAKER = "MirrorMaker 2"
TWINLOG = "Twinlog"

WARM_UP = 0
"""The number of the round that counts in no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from a record's timestamp to its arrival at a consumer of the target."""

    records: int
    expected: int
    p50: float
    p99: float
    p99_9: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run; None where the case does not measure it or the run failed before."""

    round: int
    case: str
    system: str
    alias: str
    failure: str = ""
    first_record_s: float | None = None
    """From the start of the process to the first record seen at the target's log ends."""
    copy_s: float | None = None
    records_per_s: float | None = None
    cpu_s: float | None = None
    """User and system time of all processes, during the copy or the window."""
    cpu_s_per_gb: float | None = None
    peak_pss_bytes: int | None = None
    excess_records: int | None = None
    """How many more records the target has than the source: duplicates."""
    bytes_on_disk: int | None = None
    """Of the remote topic: shows whether compression arrived."""
    latency: Latency | None = None
    """Of records; in the groups case from a commit to its checkpoint."""
    checkpointed_s: float | None = None
    """From the last commit on the source until all groups' checkpoints are on the target."""
    committed_s: float | None = None
    """Until their offsets are committed there."""
    processes_started_in_window: int | None = None
    """The lanes of the next lease are new processes: shows that a lease change was inside."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds after the start of the process at which something was first seen."""
    ballast_bytes: int | None = None
    """Memory held for the run until it needed it; 0 where the machine has too little."""
    used_by_others: float | None = None
    """Share of the machine's CPU that was spent outside the benchmark during the run."""
    stop_s: float | None = None
    exit_code: int | None = None
    warnings: list[str] = field(default_factory=list)
    """The first lines of the copier's output that are warnings or worse."""

    @property
    def is_warm_up(self) -> bool:
        """Whether it counts in no row."""
        return self.round == WARM_UP

    def as_json(self) -> dict[str, Any]:
        """Plain values, without what was not measured."""
        return {
            key: value for key, value in asdict(self).items() if value not in (None, "", {}, [])
        }
