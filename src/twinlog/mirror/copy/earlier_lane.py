"""What the lane that had a partition before may have sent since this copy checked the log.

It is dead, and its requests are on their way; or it is only thought dead, and sends until it stops
by itself (`lane.late_requests`). All begin with the records that this copy would write, and in the
same order, under the same sequences: of two such batches the target takes the first and refuses the
second, as long as it knows us behind the first. So nothing may be sent that the target forgets us
by: not before all requests have arrived, and the log was checked again.

Where the target knows us no more, a lane that lives could write our batch, be forgotten by an old
one behind it, and ours would be taken as well. A dead one cannot: no old batch is on its way behind
a fresh one (`PartitionCopy`). So fresh batches wait for the end of such a lane, and a check.
"""

from __future__ import annotations


class EarlierLane:
    """As one copy has to reckon with it."""

    def __init__(self, *, late_requests: bool, may_live: bool) -> None:
        self._late_requests, self._may_live = late_requests, may_live
        self._lived = may_live
        """When this copy checked the log."""
        self._waits_for_requests = False

    def forbids(self, *, is_old: bool) -> bool:
        """Whether a batch by which the target does not surely know us needs another check first.
        `is_old`: the target forgets us behind it.
        """
        self._waits_for_requests = is_old
        return is_old or self._lived

    @property
    def may_be_checked(self) -> bool:
        """Whether such a check is worth it by now."""
        return not (self._late_requests if self._waits_for_requests else self._may_live)

    def ended(self, *, is_over: bool) -> None:
        """Its lane; `is_over`: nor can its requests arrive any more."""
        self._may_live = False
        self._late_requests &= not is_over
