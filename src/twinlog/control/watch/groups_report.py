"""Measurements of a flow's groups: latency of checkpoints, and groups whose offsets are not set.

Written by the duty's thread, read by the supervisor's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.control.watch.timing_window import TimingView, TimingWindow
from twinlog.mirror.copy.timings import TimingSum
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTiming:
    """Latency of checkpoints of one group and partition, measured from the read of its commit."""

    group: str
    topic: str
    partition: int
    latency: TimingView


@dataclass(slots=True)
class GroupsReport:
    """The groups of one led flow."""

    skipped: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets on the target are not changed, with the reason."""
    untranslated: Mapping[str, str] = field(default_factory=dict)
    """Groups with offsets that cannot be translated to the target, with the reason."""
    without_checkpoint: Mapping[str, str] = field(default_factory=dict)
    """Selected groups none of whose offsets can be translated, with the reason."""
    _windows: dict[tuple[str, TopicPartition], TimingWindow] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def left_alone(self) -> dict[str, str]:
        """Return the groups whose offsets are not set, with the reason: skipped and untranslated
        ones. A group may be both, in different topics.
        """
        out = {**self.untranslated}
        for group, reason in self.skipped.items():
            out[group] = f"{reason}; {out[group]}" if group in out else reason
        return out

    def wrote(self, checkpoints: Iterable[Checkpoint], *, read_ms: int) -> None:
        """Record that checkpoints were written; their groups' offsets were read at `read_ms`."""
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        taken = TimingSum()
        taken.add(now_ms, read_ms)
        timings = taken.take()
        with self._lock:
            for checkpoint in checkpoints:
                key = (checkpoint.group, checkpoint.topic_partition)
                self._windows.setdefault(key, TimingWindow()).add(now, timings)

    def timings(self) -> tuple[CheckpointTiming, ...]:
        """Return the timing of every group and partition that has had a checkpoint."""
        now = time.monotonic()
        with self._lock:
            views = [(key, window.view(now)) for key, window in self._windows.items()]
        return tuple(
            CheckpointTiming(group=group, topic=tp.topic, partition=tp.partition, latency=view)
            for (group, tp), view in views
            if view is not None
        )
