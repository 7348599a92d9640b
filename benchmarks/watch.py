"""Observes a copy from outside: polls the target's log ends and the copier's processes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.copier import Copier, CopierFailed
from benchmarks.topics import Topics

__all__ = ["CopyNumbers", "RemoteTopic", "wait_for_first_record", "watch_copy"]

_POLL_S = 0.02
_LOOK_S = 0.1
_PSS_S = 0.5
_FIRST_RECORD_WITHIN_S = 120.0
_STALLED_AFTER_S = 60.0
_COPY_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTopic:
    """A remote topic on the target."""

    topics: Topics
    name: str
    partitions: int

    def records(self) -> int:
        """Return the number of records in the topic, or 0 while it has no leaders."""
        return self.topics.log_end_sum(self.name, self.partitions) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyNumbers:
    """The measurements between the first and the last record."""

    first_record_s: float
    topic_created_s: float
    copy_s: float
    records: int
    """Number of records that were copied in this time, without those at the first observation."""
    cpu_s: float
    cpu_records: int
    """Number of records that were copied while CPU was measured, that is, after the second query of
    the log ends.
    """
    peak_pss_bytes: int
    excess_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    """The time at which the target had its first records."""

    at: float
    topic_at: float
    records: int


def wait_for_first_record(copier: Copier, remote: RemoteTopic) -> FirstRecord:
    """Wait until the target's log ends show a record. Raises CopierFailed after a timeout."""
    observer = _Observer(copier)
    topic_at: float | None = None
    while time.monotonic() < copier.started + _FIRST_RECORD_WITHIN_S:
        if topic_at is None and remote.topics.has(remote.name):
            topic_at = time.monotonic()
        if topic_at is not None and (records := remote.records()) > 0:
            return FirstRecord(at=time.monotonic(), topic_at=topic_at, records=records)
        observer.turn()
    raise CopierFailed(
        f"no record on the target after {_FIRST_RECORD_WITHIN_S:.0f} s: {copier.last_words()}"
    )


def watch_copy(copier: Copier, remote: RemoteTopic, expected: int) -> CopyNumbers:
    """Wait until all records are on the target. The CPU is measured between the first and the last
    record.
    """
    first = wait_for_first_record(copier, remote)
    # the CPU is measured before the records, so that CPU in between counts for records that are
    # already there
    cpu_at_first = copier.tree.cpu_s()
    seen_at_cpu = max(remote.records(), first.records)
    observer = _Observer(copier)
    seen, grew_at = first.records, first.at
    while seen < expected:
        observer.turn()
        now_seen = remote.records()
        if now_seen > seen:
            seen, grew_at = now_seen, time.monotonic()
        elif time.monotonic() > grew_at + _STALLED_AFTER_S:
            raise CopierFailed(f"stands still at {seen} of {expected}: {copier.last_words()}")
        if time.monotonic() > first.at + _COPY_WITHIN_S:
            raise CopierFailed(f"only {seen} of {expected} records after {_COPY_WITHIN_S:.0f} s")
    cpu_s = copier.tree.cpu_s() - cpu_at_first
    copier.tree.pss_bytes()
    return CopyNumbers(
        first_record_s=first.at - copier.started,
        topic_created_s=first.topic_at - copier.started,
        copy_s=grew_at - first.at,
        records=seen - first.records,
        cpu_s=cpu_s,
        cpu_records=seen - seen_at_cpu,
        peak_pss_bytes=copier.tree.peak_pss_bytes,
        excess_records=seen - expected,
    )


class _Observer:
    """Observes the processes periodically, between two polls."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._next_look = 0.0
        self._next_pss = 0.0

    def turn(self) -> None:
        """Observe the processes if it is time, then pause. Raises CopierFailed if the copier has
        ended.
        """
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._copier.check()
            if now >= self._next_pss:
                self._next_pss = now + _PSS_S
                self._copier.tree.pss_bytes()
            else:
                self._copier.tree.look()
        time.sleep(_POLL_S)
