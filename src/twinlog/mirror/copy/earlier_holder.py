"""What the lane that had a partition before may have sent since this copy looked at the log.

It is dead, and its requests are on their way; or it is only thought dead, and sends until it stops
by itself (`lane.late_requests`). All begin with the records that this copy would write, and in the
same order, under the same sequences: of two such batches the target takes the first and refuses the
second, as long as it knows us behind the first. So nothing may be sent that the target forgets us
by: not before all requests have arrived, and the log was looked at again.

Where the target knows us no more, a lane that lives could write our batch, be forgotten by an old
one behind it, and ours would be taken as well. A dead one cannot: no old batch is on its way behind
a fresh one (`PartitionCopy`). So fresh batches wait for the end of such a lane, and for a look.
"""

from __future__ import annotations


class EarlierHolder:
    """As one copy has to reckon with it."""

    def __init__(self, *, late_requests: bool, may_live: bool) -> None:
        self._late_requests, self._may_live = late_requests, may_live
        self._lived = may_live
        """When this copy looked."""
        self._waits_for_requests = False

    def forbids(self, *, is_old: bool) -> bool:
        """Whether a batch by which the target does not surely know us needs another look first.
        `is_old`: the target forgets us behind it.
        """
        self._waits_for_requests = is_old
        return is_old or self._lived

    @property
    def may_be_looked_for(self) -> bool:
        """Whether such a look is worth it by now."""
        return not (self._late_requests if self._waits_for_requests else self._may_live)

    def has_stopped(self) -> None:
        """Its requests may still arrive."""
        self._may_live = False

    def is_over(self) -> None:
        """Nor can they."""
        self._late_requests = self._may_live = False
