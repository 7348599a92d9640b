"""Tracks under which leader a target partition's log was last checked, and whether the leader has
changed.

A new leader may lack the end of the log. One request in flight is no protection then: a leader that
lost the producer ID along with the records accepts the next batch and leaves a hole. So the log is
checked again, but only when there is something to send, so that a rolling restart of the target
costs nothing for idle partitions.

A leader that crashed may have lost the end of its log, too. When it comes back, it leads under its
old epoch for a moment, because it serves requests before the controller knows of the crash. Only a
connection that was opened before the check certainly leads to the process that was checked.
"""

from __future__ import annotations

from twinlog.errors import Fate, PartitionError
from twinlog.model import TopicPartition


class TargetLeader:
    """The leader of one target partition, as known to one copy."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """The newest known epoch; -1: none yet."""
        self.checked_epoch = epoch
        """The epoch under which the log was checked and batches were acknowledged. It is reported
        to the driver and the next lane, which must not substitute a newer epoch.
        """
        self.is_new = False
        self._what = ""

    def is_now(self, epoch: int, *, requested_epoch: int) -> None:
        """Process the leader epoch from metadata.

        `requested_epoch`: the newest epoch for which this lane has already requested a check.
        """
        if self.checked_epoch < 0:
            self.checked_epoch = epoch
        known = max(self.epoch, requested_epoch)
        if 0 <= known < epoch:
            self.is_new = True
            self._what = f"it has a new leader (epoch {epoch})"
        self.epoch = max(known, epoch)

    def may_have_restarted(self) -> None:
        """Note that the connection to the leader was opened after the check."""
        if not self.is_new:
            self.is_new = True
            self._what = "its leader may have restarted since its log was checked"

    def trouble(self, target: TopicPartition) -> PartitionError:
        """Return the reason for checking the partition."""
        return PartitionError(
            f"{target}: {self._what}; checking its log",
            code="TARGET_LEADER_CHANGED",
            fate=Fate.RETRIABLE,
        )
