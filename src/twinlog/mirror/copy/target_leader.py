"""Under which leader a target partition's log was last checked, and whether it has another now.

A new leader may lack the end of the log. One request in flight is not enough then: a leader that
lost our producer id with it takes the next batch, behind a hole. So the log is checked again, but
not before there is something to send: a rolling restart of the target costs idle partitions
nothing.

A leader that crashed may have lost the end of its log too, and leads under the old epoch for a
moment when it comes back: it serves before the controller knows of it. Only a connection that was
open before the check surely ends at the process that was checked.
"""

from __future__ import annotations

from twinlog.errors import Fate, PartitionError
from twinlog.model import TopicPartition


class TargetLeader:
    """The leader of one target partition, as one copy knows it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """The newest that is known; -1: none yet."""
        self.checked_epoch = epoch
        """Under which the log was checked, and so what was acknowledged: it is reported to the
        driver and to the next lane, who must not take a newer one for it.
        """
        self.is_new = False
        self._what = ""

    def is_now(self, epoch: int, *, requested_epoch: int) -> None:
        """Metadata says so; `requested_epoch`: the newest for which this lane has asked for a check
        already.
        """
        if self.checked_epoch < 0:
            self.checked_epoch = epoch
        known = max(self.epoch, requested_epoch)
        if 0 <= known < epoch:
            self.is_new = True
            self._what = f"it has a new leader (epoch {epoch})"
        self.epoch = max(known, epoch)

    def may_have_restarted(self) -> None:
        """The connection to it is younger than the check."""
        if not self.is_new:
            self.is_new = True
            self._what = "its leader may have restarted since its log was checked"

    def trouble(self, target: TopicPartition) -> PartitionError:
        """Why the partition is to be checked."""
        return PartitionError(
            f"{target}: {self._what}; looking what that one has",
            code="TARGET_LEADER_CHANGED",
            fate=Fate.RETRIABLE,
        )
