"""Leader epochs: under which leader a log was checked, and when it must be checked again.

Kafka counts the elections of a partition's leader in its *leader epoch*. Two statements about a log
are about the same log only if no election in between can have changed its end. The copy uses epochs
in four ways:

| epoch | known from | used for |
| --- | --- | --- |
| source record before the position | its batch | sent with each Fetch, to detect a truncation |
| leader of the target partition | metadata | this module: check the log again after an election |
| leader of the map's partition | metadata | write rows again (`lane.map_writer`) |
| leader of any partition | metadata | ignore stale metadata (`lane.sides.cluster_side`) |

**Source.** A position and the epoch of the record right before it are one fact, updated together
(`PartitionCopy.acked_epoch`, `StartPoint.last_fetched_epoch`). The source's leader compares the
epoch with its own history. If the epoch ended before the position, the log was truncated and
rewritten, and the copy stops with `SOURCE_DIVERGED`. The epoch of an older record would not do:
after an election it ends before the position in a healthy log. If the epoch is unknown, -1 is sent,
which checks nothing.

**Target.** A new leader may lack the end of the log (unclean election). One request in flight is no
protection then: a leader that lost the producer ID together with the records accepts the next batch
and leaves a hole. So after an election the log is checked again, before the next batch. A copy with
nothing to send is not checked, so that a rolling restart of the target costs nothing for idle
partitions.

A leader that crashed may have lost the end of its log, too. When it comes back, it leads under its
old epoch for a moment, because it serves requests before the controller knows of the crash. Only a
connection that was opened before the check certainly leads to the process that was checked. So a
newer connection counts like a new leader (`may_have_restarted`).

| event | consequence |
| --- | --- |
| a new epoch, nothing to send | noted; the next batch causes the check |
| a new epoch, a batch to send | `TARGET_LEADER_CHANGED`: drain, then a cold start |
| a new epoch, batches in flight | their responses are errors, which cause the same |
| the check is already requested | `requested_epoch`: that check sees this epoch or a newer one |
"""

from __future__ import annotations

from twinlog.errors import Fate, PartitionError
from twinlog.model import TopicPartition


class TargetLeader:
    """What one copy knows of its target partition's leader."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """The newest known epoch; -1: unknown."""
        self.checked_epoch = epoch
        """The epoch under which the log was checked and batches were acknowledged. It is reported
        to the driver and the next lane, which must not replace it by a newer epoch.
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
        """Note that the connection to the leader was opened after the log was checked."""
        if not self.is_new:
            self.is_new = True
            self._what = "its leader may have restarted since its log was checked"

    def trouble(self, target: TopicPartition) -> PartitionError:
        """Return the error that causes a check of the partition's log."""
        return PartitionError(
            f"{target}: {self._what}; checking its log",
            code="TARGET_LEADER_CHANGED",
            fate=Fate.RETRIABLE,
        )
