"""The lanes of a run: leases start, warm up, become current, and retire; lanes connect and get
lost.

A lane is a task of a Spark job, and a lease is that job. Spark decides on which executors its tasks
run, and starts a task again if it dies. A lease lasts for `twinlog.lease.seconds` (300), then the
next one replaces it. So the number of lanes follows the executors that Spark has, and lost lanes
are replaced on other hosts. Changed settings take effect, because a lease with outdated settings is
replaced immediately.

    lease 1   WARMING | CURRENT ----------------------------- | RETIRING: drains, ends
    lease 2                           WARMING: lanes connect  | CURRENT -----------------
    partition          in a lane of lease 1                   | Release, Released, Take: in lease 2

**Invariant.** At most one lease is warming, and at most one is current. Only lanes of the current
lease get partitions (`giving`). A new lease warms up beside the current one, which costs two task
slots per lane for a moment. Before its lanes get a partition, they connect to the driver and to
both clusters. So the copy pauses only for a message in each direction.

**What may fail**

- *The job ends by itself*: its lanes are lost, and the next lease starts after a pause of 4 to 30
  s, which grows until a lane is ready.
- *One task dies*: its partitions go to the other lanes; Spark starts the task again, and its new
  attempt joins as the same lane.
- *The new attempt connects while the old one is still connected*: it waits and gets nothing,
  because its hello may come from a client that has read the lane's secret (`channel.lane_secrets`).
- *A lane is silent for 10 s*: it is given up. Spark does not start its task again, because the
  process may still run, so the lease continues with one lane less.
- *All lanes were given up, or none says hello within 300 s*: the lease is deserted, and the next
  one starts immediately.
- *Some lanes of a new lease do not become ready within 30 s*: the lease becomes current without
  them.
- *The flow is paused*: all leases retire.

With `--once` a lease is not renewed, and after three leases that failed, or to which no lane has
connected, the pending partitions fail.

**Rejected:** structured streaming. A micro-batch costs some hundred milliseconds and keeps a
checkpoint, while a running lane needs neither. Also rejected: DataFrame jobs, because Spark's SQL
engine and Arrow use memory and CPU that a lane does not need (ADR 8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twinlog.channel.server import Peer
from twinlog.clock import Attempts
from twinlog.control.lanes.lanes import (
    HELLO_WITHIN_S,
    WARM_UP_TIMEOUT_S,
    Job,
    Lane,
    Lease,
    LeaseState,
)
from twinlog.control.lanes.partitions import LaneKey, Placement
from twinlog.control.running.run_state import RunState
from twinlog.errors import TwinlogError
from twinlog.lane import late_requests
from twinlog.lane.messages import EndLane

LEASE_RETRY_S: Final = 4.0
MAX_LEASE_RETRY_S: Final = 30.0
ONCE_LEASE_TRIES: Final = 3
"""With `--once`: attempts to start a lease before the partitions fail."""


StartLease = Callable[[int], tuple[int, Job]]
"""Starts a Spark job with this number of lanes. Returns the lease's number in this process, and the
job.
"""


class RunLeases:
    def __init__(
        self,
        run: RunState,
        start: StartLease,
        has_spark: Callable[[], bool],
        lane_count: Callable[[int, bool], int],
        *,
        lease_s: float,
        first_change_s: float,
    ) -> None:
        """`start` is not called while `has_spark` returns False. `lane_count` gets the number of
        partitions and whether their traffic is light, and returns a number of lanes.
        """
        self._run = run
        self._start = start
        self._has_spark = has_spark
        self._lane_count = lane_count
        self._lease_s = lease_s
        self._next_change = run.clock.monotonic()
        self._change_s = first_change_s
        """Seconds from the start of a lease to the start of the next lease. The first time differs
        by flow, so that flows do not renew their leases at the same moment.
        """
        # a Spark job without a ready lane is likely to fail again, so the pause grows
        self.attempts = Attempts(clock=run.clock, first_s=LEASE_RETRY_S, most_s=MAX_LEASE_RETRY_S)

    def tick(self, now: float) -> None:
        """Do what is due: start the next lease, make it current, or retire the previous lease."""
        run = self._run
        warming = next((le for le in run.leases if le.state is LeaseState.WARMING), None)
        if warming is not None and warming.is_deserted:
            if not warming.was_heard:  # if it was heard, its lanes froze before they were ready
                self._on_unheard(warming)
            warming.state, warming = LeaseState.RETIRING, None
        if run.intents.pause is not None:
            for lease in run.leases:
                lease.state = LeaseState.RETIRING
        elif warming is None:
            self._begin(now)
        elif warming.is_warm:
            self._promote(warming)
        elif run.current is not None:
            self._replace_lanes(warming, run.current)
        for lease in run.leases:
            lease.tick()

    def _begin(self, now: float) -> None:
        run, current = self._run, self._run.current
        # outdated settings, or a single lane that has become busy, start the next lease immediately
        lasts = (
            current is not None
            and not current.is_deserted
            and current.work is run.work
            and (run.uses_one_lane or not current.is_light)
        )
        if lasts and (now < self._next_change or run.once):
            return
        if self.attempts.is_due and run.partitions and self._has_spark():
            size = max(1, self._lane_count(len(run.partitions), run.uses_one_lane))
            number, job = self._start(size)
            lease = Lease(
                number=number,
                size=size,
                job=job,
                work=run.work,
                is_light=run.uses_one_lane and size == 1,
                clock=run.clock,
            )
            run.leases.append(lease)
            self._next_change, self._change_s = now + self._change_s, self._lease_s

    def _promote(self, warm: Lease) -> None:
        run, before = self._run, self._run.current
        warm.state = LeaseState.CURRENT
        if run.pacer is not None and not (warm.work.has_budget or run.work.has_budget):
            run.pacer = None  # no lane of this or the next lease obeys a limit
        if before is not None:
            before.state = LeaseState.RETIRING
            for lane in before.lanes.values():
                run.release(lane.partitions.values())

    def _replace_lanes(self, warm: Lease, before: Lease) -> None:
        """Replace lanes of the previous lease by ready lanes with the same number. Then the slots
        of the replaced lanes are free for more lanes of the next lease.

        If Spark has no free slot, for example because the cluster has lost a worker, no lane of the
        next lease starts until one ends. So after a while, end one lane of the previous lease, even
        its last one. If the next lease has started a lane that does not connect, none is ended.
        """
        for lane in warm.ready_lanes if warm.is_partly_warm else ():
            old = before.lanes.get(lane.key.lane)
            if old is not None and old.partitions:
                self._run.release(old.partitions.values())
            elif old is not None:
                old.stop()
        waits_since = max(warm.started, before.changed)
        is_late = self._run.clock.monotonic() - waits_since > WARM_UP_TIMEOUT_S
        if is_late and not warm.lanes and before.ready_lanes and warm.job.awaits_slot:
            max(before.ready_lanes, key=lambda lane: lane.key).stop()
            before.changed = self._run.clock.monotonic()

    def reap(self) -> None:
        """Remove leases whose jobs have ended."""
        run = self._run
        for lease in [le for le in run.leases if le.job.is_done]:
            if lease.lanes and lease.job.error is None:
                continue  # the last messages of its lanes may still arrive
            run.leases.remove(lease)
            for lane in (*lease.lanes.values(), *lease.waiting.values()):
                run.give_up(lane)
            copied = (
                partition.copied.pop(lease.number, None) for partition in run.partitions.values()
            )
            lease.job.note([topic for topic in copied if topic is not None])
            if lease.job.error is not None and not run.is_stopping:
                self._on_job_failed(lease.job.error)

    def _on_job_failed(self, error: TwinlogError) -> None:
        """Handle a Spark job that ended by itself. If none of its lanes was ready, the next job is
        likely to fail as well.
        """
        run = self._run
        run.log.warning("a lease ended early: %s", error)
        self.attempts.on_failure()
        run.errors[error.code] += 1
        if run.once and self.attempts.failures >= ONCE_LEASE_TRIES:
            for partition in run.partitions.values():
                if partition.placement is Placement.PENDING:
                    partition.note_failure(error.code, error.message, retriable=False)

    def _on_unheard(self, lease: Lease) -> None:
        """Report a lease to which no lane has connected. With `--once` it counts as a failure."""
        run = self._run
        error = TwinlogError(
            f"no lane of lease {lease.number} has connected within {HELLO_WITHIN_S:.0f} s: Spark "
            "needs a free task slot for it, and executors must be able to connect to this process",
            code="LEASE",
        )
        if run.once:
            self._on_job_failed(error)
        else:
            run.log.warning("%s; starting another lease", error)
            run.errors[error.code] += 1

    def stop(self) -> None:
        """Stop all lanes, which drain first. Cancel jobs that do not end after their last lane."""
        for lane in self._run.lanes():
            lane.stop()
        for lease in self._run.leases:
            if lease.is_over:
                lease.job.cancel()

    def on_connected(self, peer: Peer) -> Lane | None:
        """Add a connected lane. Return None if its lease has ended, or the run is stopping."""
        identity, run = peer.identity, self._run
        lease = next((le for le in run.leases if le.number == identity.lease), None)
        if lease is None or run.is_stopping:
            peer.send(EndLane())
            return None
        key = LaneKey(identity.lease, identity.lane, identity.attempt)
        lane = Lane(key=key, peer=peer, work=lease.work)
        if lease.join(lane):
            lane.begin()
        return lane

    def on_gone(self, lane: Lane) -> None:
        """Handle the end of a lane's connection."""
        for lease in self._run.leases:
            if (next_attempt := lease.leave(lane)) is not None:
                is_retiring = lease.state is LeaseState.RETIRING
                is_over = self._run.is_stopping or lane.stop_sent or is_retiring
                (next_attempt.stop if is_over else next_attempt.begin)()
        self._run.give_up(lane)

    def drop_silent(self) -> None:
        """Give up lanes that have been silent for so long that they have stopped by themselves.

        A frozen process or a network failure closes no connection, so only the silence shows it.
        """
        oldest = self._run.clock.boot() - late_requests.SILENCE_MS / 1000
        for lease in self._run.leases:
            for lane in list(lease.lanes.values()):
                if lane.peer.last_heard < oldest:
                    self._run.log.warning(
                        "lane %s has been silent for too long; its partitions get another lane",
                        lane.key,
                    )
                    lease.fell_silent = True
                    self.on_gone(lane)
