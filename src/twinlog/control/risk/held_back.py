"""Reports open transactions at the source that hold a `read_committed` copy back (KIP-664).

A coordinator aborts a transaction that is open for longer than its client's timeout, which is at
most the brokers' `transaction.max.timeout.ms`. A transaction that stays open longer may be hanging:
no coordinator knows it, and the copy would wait forever. Such a transaction is reported with its
producer. On a cluster that allows very long transactions it is reported after an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.config.values.times import in_iso
from twinlog.control.lanes.partitions import Failure
from twinlog.control.risk.running_flow import RunningFlow
from twinlog.flow_log import FlowLog
from twinlog.model import TopicPartition
from twinlog.survey.open_transactions import OpenTransaction

CODE: Final = "OPEN_TRANSACTION"
ASK_AFTER_S: float = 60.0
"""Delay before the source is queried, because nearly all transactions are short."""
ASK_EVERY_S: Final = 60.0
USUAL_LIMIT_S: Final = 900.0
"""Kafka's default of transaction.max.timeout.ms."""
LONGEST_S: float = 3600.0
GRACE_S: float = 60.0
"""A coordinator searches for expired transactions every ten seconds, and then writes markers."""

Offsets = Mapping[TopicPartition, int]


class OpenOnes(NamedTuple):
    """Open transactions of the source."""

    limit_s: float | None
    """The maximum duration that its brokers allow; None if they do not report it."""
    found: tuple[OpenTransaction, ...]


class _Held(NamedTuple):
    stable: int
    since: float
    """Monotonic time."""


@dataclass(slots=True, kw_only=True)
class HeldBackWatch:
    """Watches one run of a flow, in the supervisor's thread."""

    run: RunningFlow
    log: FlowLog
    _held: dict[TopicPartition, _Held] = field(default_factory=dict)
    _next_ask: float = 0.0

    def see(self, ends: Offsets, readable: Offsets) -> None:
        """Take high watermarks and last stable offsets of one moment."""
        now = self.run.clock.boot()
        for tp, stable in readable.items():
            if stable >= ends.get(tp, -1):
                self._over(tp)
            elif tp not in self._held or self._held[tp].stable != stable:
                self._over(tp)
                self._held[tp] = _Held(stable, now)
        for tp in self._held.keys() - self.run.partitions.keys():
            del self._held[tp]

    def due(self) -> list[TopicPartition]:
        """Return the partitions whose open transactions are to be queried now."""
        now = self.run.clock.boot()
        held = [tp for tp, one in self._held.items() if now - one.since >= ASK_AFTER_S]
        if not held or now < self._next_ask:
            return []
        self._next_ask = now + min(ASK_EVERY_S, ASK_AFTER_S)
        return held

    def found(self, asked: Iterable[TopicPartition], answer: OpenOnes) -> None:
        """Report the transactions in the source's answer that are open for too long."""
        limit_s = min(answer.limit_s or USUAL_LIMIT_S, LONGEST_S) + GRACE_S
        now = self.run.clock.boot()
        for tp in asked:
            held, one = self._held.get(tp), self.run.partitions.get(tp)
            if held is None or one is None or one.held_back or now - held.since < limit_s:
                continue
            # the oldest transaction determines the last stable offset
            some = (each for each in answer.found if each.tp == tp)
            oldest = min(some, key=lambda each: each.start_offset, default=None)
            since_ms = self.run.clock.wall_ms() - int((now - held.since) * 1000)
            if oldest is not None and oldest.since_ms >= 0:
                since_ms = min(since_ms, oldest.since_ms)
            text = _worded(tp, held.stable, oldest, since_ms)
            one.held_back = Failure(code=CODE, message=text, since_ms=since_ms, began=held.since)
            self.run.errors[CODE] += 1
            self.log.info("%s [%s]", text, CODE, partition=tp, code=CODE)

    def _over(self, tp: TopicPartition) -> None:
        self._held.pop(tp, None)
        one = self.run.partitions.get(tp)
        if one is not None and one.held_back is not None:
            one.held_back = None
            self.log.info("%s: no longer held back by an open transaction", tp, partition=tp)


def _worded(tp: TopicPartition, stable: int, oldest: OpenTransaction | None, since_ms: int) -> str:
    tool = "kafka-transactions.sh --bootstrap-server SOURCE"
    where = f"--topic {tp.topic} --partition {tp.partition}"
    who, start = "an open transaction", stable
    if oldest is not None:
        who, start = f"a transaction of producer id {oldest.producer_id}", oldest.start_offset
    return (
        f"{tp}: {who} is open since {in_iso(since_ms)}, from upstream offset {start} on, so no "
        f"record after the last stable offset {stable} can be copied. Find out whether its "
        f"producer is alive ({tool} describe-producers {where}). If no coordinator knows the "
        f"transaction ({tool} find-hanging {where}), abort it ({tool} abort {where} "
        f"--start-offset {start}): its records are rolled back for every consumer"
    )
