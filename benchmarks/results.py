"""The results of one run of one copier."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["MIRROR_MAKER", "TWINLOG", "WARM_UP", "Latency", "RunResult"]

MIRROR_MAKER = "MirrorMaker 2"
TWINLOG = "Twinlog"

WARM_UP = 0
"""The number of the warm-up round, which counts in no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency in milliseconds, from a record's timestamp to its arrival at a consumer of the
    target.
    """

    records: int
    expected: int
    p50: float
    p99: float
    p99_9: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The results of one run. A value is None if the case does not measure it, or if the run failed
    before.
    """

    round: int
    case: str
    system: str
    alias: str
    failure: str = ""
    first_record_s: float | None = None
    """Seconds from the start of the process until the target's log ends show the first record."""
    copy_s: float | None = None
    records_per_s: float | None = None
    cpu_s: float | None = None
    """User and system seconds of all processes, during the copy or the window."""
    cpu_s_per_gb: float | None = None
    peak_pss_bytes: int | None = None
    excess_records: int | None = None
    """Number of duplicates: the records that the target has in addition to the source's."""
    bytes_on_disk: int | None = None
    """Size of the remote topic, which shows if its batches are compressed."""
    latency: Latency | None = None
    """Latency of records, or in the groups case from a commit to its checkpoint."""
    checkpointed_s: float | None = None
    """Seconds from the last commit on the source until the checkpoints of all groups are on the
    target.
    """
    committed_s: float | None = None
    """Seconds from the last commit on the source until all groups' offsets are committed on the
    target.
    """
    processes_started_in_window: int | None = None
    """Number of processes that started in the window. Shows if a lease changed in it, because the
    lanes of the next lease are new processes.
    """
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds from the start of the process to the first observation of each step."""
    ballast_bytes: int | None = None
    """Memory that was reserved for the run, or 0 if the machine has too little."""
    used_by_others: float | None = None
    """Share of the machine's CPU that was spent outside the benchmark during the run."""
    stop_s: float | None = None
    exit_code: int | None = None
    warnings: list[str] = field(default_factory=list)
    """The first warnings and errors in the copier's output."""

    @property
    def is_warm_up(self) -> bool:
        """True for a warm-up run, which counts in no row."""
        return self.round == WARM_UP

    def as_json(self) -> dict[str, Any]:
        """Return the results as plain values, without those that were not measured."""
        return {
            key: value for key, value in asdict(self).items() if value not in (None, "", {}, [])
        }
