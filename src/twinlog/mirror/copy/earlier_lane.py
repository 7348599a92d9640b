"""Requests that the previous lane of a partition may have sent after this copy's start read the
log.

That lane is dead, but its requests may still be on their way. Or it only seems dead, and sends
until it stops by itself (`lane.late_requests`). All its requests begin with the records that this
copy would write, in the same order and under the same sequences. Of two such batches the target
accepts the first and rejects the second, as long as it still remembers the producer ID after the
first. So a batch after which the target would forget the producer ID must wait until all late
requests have arrived and the log has been checked again.

If the target has already forgotten the producer ID, a lane that is still alive is dangerous as
well. It could append this copy's batch, then an old batch of its own, after which the ID expires
again. The target would then accept this copy's duplicate. A dead lane cannot do that, because no
lane sends an old batch while a fresh one is in flight (`PartitionCopy._window`). So fresh batches
wait until a living lane has stopped, and the log has been checked again.

| next batch | the target remembers the ID | the target may have forgotten the ID |
| --- | --- | --- |
| fresh | is sent | waits until the lane has stopped |
| old: the ID may be forgotten after it | waits for late requests | waits for late requests |
"""

from __future__ import annotations


class EarlierLane:
    """What a copy must assume about the lane before it."""

    def __init__(self, *, late_requests: bool, may_live: bool) -> None:
        self._late_requests, self._may_live = late_requests, may_live
        self._lived = may_live
        """Whether that lane may have been alive when this copy's start read the log."""
        self._waits_for_requests = False

    def forbids(self, *, is_old: bool) -> bool:
        """Return whether a batch must wait for another check of the log.

        Call it for batches after which the target may not know the producer ID. `is_old`: the
        target forgets the ID after this batch.
        """
        self._waits_for_requests = is_old
        return is_old or self._lived

    @property
    def may_be_checked(self) -> bool:
        """Whether the reason for waiting is gone, so that the log can be checked now."""
        return not (self._late_requests if self._waits_for_requests else self._may_live)

    def ended(self, *, is_over: bool) -> None:
        """Note that the lane has stopped. `is_over`: its requests can no longer arrive either."""
        self._may_live = False
        self._late_requests &= not is_over
