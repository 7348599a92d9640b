"""What may change a target log besides the copy: late requests of an earlier lane, other clients,
and a new leader.

**Late requests**

Requests of a partition's previous lane may arrive after this copy's start has read the log.

Either that lane is dead, and its requests are still on their way. Or it only seems dead, and sends
until it stops by itself (`lane.late_requests`). All its requests contain records that this copy
would write, in the same order and under the same sequences. Of two such batches the target accepts
the first and rejects the second, as long as it still remembers the producer ID after the first. So
a batch after which the target would forget the producer ID must wait until all late requests have
arrived and the log has been checked again.

If the target has already forgotten the producer ID, a previous lane that is still alive is
dangerous as well. It could append the same batch as this copy, then an old batch, after which the
ID expires again. The target would then accept this copy's batch, which is a duplicate. A dead lane
cannot do that, because no lane sends an old batch while a fresh one is in flight
(`PartitionCopy._window`). So fresh batches wait until a living lane has stopped, and the log has
been checked again.

| next batch | the target remembers the ID | the target may have forgotten the ID |
| --- | --- | --- |
| fresh | is sent | waits until the lane has stopped |
| old: the ID may be forgotten after it | waits for late requests | waits for late requests |

**Leader epochs**

Leader epochs show under which leader a log was checked, and when it must be checked again.

Kafka counts the elections of a partition's leader in its *leader epoch*. Two observations of a log
belong together only if no election between them can have changed its end. The copy uses epochs in
four ways:

| epoch | known from | used for |
| --- | --- | --- |
| source record before the position | its batch | sent with each Fetch, to detect a truncation |
| leader of the target partition | metadata | this module: check the log again after an election |
| leader of the map's partition | metadata | write rows again (`lane.map_writer`) |
| leader of any partition | metadata | ignore stale metadata (`lane.sides.cluster_side`) |

**Source.** A position and the epoch of the record right before it are one fact, updated together
(`PartitionCopy.acked_epoch`, `StartPoint.last_fetched_epoch`). The source's leader compares the
epoch with its own history. If the epoch ended before the position, the log was truncated and
rewritten, and the copy stops with `SOURCE_DIVERGED`. The epoch of an older record must not be sent,
because after an election that epoch ends before the position even in a healthy log. If the epoch is
unknown, -1 is sent, which checks nothing.

**Target.** A new leader may lack the end of the log (unclean election). Sending one request at a
time does not help then, because a leader that lost the producer ID together with the records
accepts the next batch and leaves a hole. So after an election the log is checked again, before the
next batch. A copy with nothing to send is not checked, so that a rolling restart of the target
costs nothing for idle partitions.

A leader that crashed may have lost the end of its log, too. After its restart, it leads under its
old epoch for a moment, because it serves requests before the controller knows of the crash. Only a
connection that was opened before the check is certainly one to the process that was checked. So a
newer connection counts like a new leader (`may_have_restarted`).

| event | consequence |
| --- | --- |
| a new epoch, nothing to send | noted; the next batch causes the check |
| a new epoch, a batch to send | `TARGET_LEADER_CHANGED`: drain, then a cold start |
| a new epoch, batches in flight | their responses are errors, which cause the same |
| the check is already requested | `requested_epoch`: that check sees this epoch or a newer one |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.errors import Fate, PartitionError
from twinlog.mirror.findings import Span
from twinlog.model import TopicPartition


class EarlierLane:
    """What a copy must assume about the partition's previous lane."""

    def __init__(self, *, late_requests: bool, may_live: bool) -> None:
        self._late_requests, self._may_live = late_requests, may_live
        self._lived = may_live
        """Whether the previous lane may have been alive when this copy's start read the log."""
        self._waits_for_requests = False

    def holds_back(self, *, is_old: bool) -> bool:
        """Return True if the next batch must wait until the target's log is checked again.

        Must be called for unprotected batches only. `is_old`: the target forgets the producer ID
        after this batch.
        """
        self._waits_for_requests = is_old
        return is_old or self._lived

    @property
    def may_be_checked(self) -> bool:
        """Whether the log can be checked now, because the wait of the held-back batch is over. An
        old batch waits until late requests can no longer arrive, a fresh one until the previous
        lane has stopped.
        """
        return not (self._late_requests if self._waits_for_requests else self._may_live)

    def on_ended(self, *, is_over: bool) -> None:
        """Process the end of the previous lane: it sends nothing more. `is_over`: its late requests
        can no longer arrive either.
        """
        self._may_live = False
        self._late_requests &= not is_over


MARK_AFTER: Final = 10_000
"""If at least this many foreign records follow this flow's last record, a row is written to the
offset map whose mark (`offset_map.Mark`) is after them.
"""


@dataclass(slots=True)
class OtherWriters:
    """Other writers to the target partition of one copy, in a topic that several clients share."""

    has_other_flow: bool
    """Whether another Twinlog flow writes to the partition, so that K (target offset minus ordinal)
    grows all the time.
    """
    unknown: Span | None = None
    """Target offsets between this flow's records whose writer is unknown, or None. Nothing is sent
    until the writer is known.
    """
    ordinal: int = -1
    """Ordinal (count of this flow's records before it) of this flow's first record after the
    beginning of `unknown`.
    """
    passed: int = 0
    """Target offset up to which the writers are known."""
    reach: int = -1
    """The last check found only records of other clients between this flow's last record and this
    target offset; -1 before any such check.
    """

    def note_foreign(self, first: int, following: int, ordinal: int) -> None:
        """Add the target offsets [first, following) of foreign records to `unknown`, unless another
        Twinlog flow writes here. `ordinal`: that of this flow's batch right after them.
        """
        if self.has_other_flow:
            return
        if self.unknown is None:
            self.ordinal = ordinal
        self.unknown = Span(first if self.unknown is None else self.unknown.first, following)

    def mark_above(self, acked: int, *, moves: bool) -> int:
        """Return the target offset for a mark in the offset map. `acked`: the offset after this
        flow's last record.

        Normally that is `acked`. If `moves` (nothing is in flight) and many foreign records follow,
        it is the offset after them, so that a later start need not read them.
        """
        return self.reach if moves and self.reach - acked >= MARK_AFTER else acked


class TargetLeader:
    """What one copy knows about the leader of its target partition."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """The newest known leader epoch, or -1 if unknown."""
        self.checked_epoch = epoch
        """The epoch under which the log was checked and batches were acknowledged. It is reported
        to the driver and the next lane, which must not replace it by a newer epoch.
        """
        self.needs_check = False
        self._what = ""

    def on_metadata(self, epoch: int, *, requested_epoch: int) -> None:
        """Process the leader epoch from metadata.

        `requested_epoch`: the newest epoch for which this lane has already requested a check.
        """
        if self.checked_epoch < 0:
            self.checked_epoch = epoch
        known = max(self.epoch, requested_epoch)
        if 0 <= known < epoch:
            self.needs_check = True
            self._what = f"the partition has a new leader (epoch {epoch})"
        self.epoch = max(known, epoch)

    def may_have_restarted(self) -> None:
        """Require a check of the log before the next batch, because the connection to the leader is
        newer than the last check.
        """
        if not self.needs_check:
            self.needs_check = True
            self._what = "the leader may have restarted since the log was checked"

    def trouble(self, target: TopicPartition) -> PartitionError:
        """Return the error that stops the copy, so that the next start checks the target
        partition's log.
        """
        return PartitionError(
            f"{target}: {self._what}; checking the log",
            code="TARGET_LEADER_CHANGED",
            fate=Fate.RETRIABLE,
        )
