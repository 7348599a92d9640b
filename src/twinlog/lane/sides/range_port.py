"""The port at which the application of the transforms takes ranges from a lane (`channel.lending`).

**Problem.** The application runs user code. It may be slow, answer twice, or die at any moment, and
Spark may run its tasks again at any time. A lane must still get exactly one answer for each range.

    the application ends      its unanswered ranges are offered to the next one that subscribes
    a task hangs, or is lost  the range is offered again after OFFERED_AGAIN_S
    a task runs twice         the first answer is used, and both are confirmed
    the partition has left    the range is withdrawn; tasks get none, and their answer is dropped
    no answer for a while     `unanswered`: the partition goes back to the driver with an error
    a part of the answer      the lane offers the remaining records as another range

Connections have a thread of their own (`ChannelServer`), so a large answer does not delay the loop.
The ticket is valid for this port only. It gives access to ranges, which user code gets anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lending import (
    AnswerAccepted,
    Answered,
    LendingCodec,
    Lent,
    Offered,
    PortTicket,
    RangeOffer,
    RequestRange,
    Subscribe,
)
from twinlog.channel.server import ChannelEvent, ChannelServer, LaneGone, LaneMessage, Peer
from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange

OFFERED_AGAIN_S: Final = 90.0
"""Time in seconds without an answer after which a range is offered again. It is longer than the
application permits a job to run (`transforms.rounds.Rounds.limit_s`).
"""
NOTED_EVERY_S: Final = 1.0
"""Seconds between two updates of `_WaitingRange.since`, which is exact only to that extent."""


@dataclass(slots=True)
class _WaitingRange:
    """A range without an answer."""

    range: SourceRange
    offered_at: float
    """Monotonic time of the last offer."""
    since: float
    """Monotonic time at which the wait for the answer began. It is the latest of: the first offer,
    the last answer to an earlier range, and the first answer to a later range.
    """
    is_overtaken: bool = False
    """True if a later range was answered."""


class RangePort:
    """Offers ranges, lends them to tasks, and keeps the first answer to each until it is read.

    `offer`, `withdraw`, `answers` and `unanswered` are for the lane's thread. `wake` is called from
    the server's thread as soon as there are answers.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None], *, host: str = "127.0.0.1") -> None:
        """`wake`: called when an answer has arrived. `host`: the address to listen at; unless it is
        a loopback address, connections use TLS.
        """
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: dict[int, _WaitingRange] = {}
        self._answers: list[RangeAnswer] = []
        self._answered: list[int] = []
        """Numbers of ranges that were answered since `_note_answers` last ran."""
        self._answered_at = 0.0  # the monotonic time of the last answer
        self._subscribed: set[Peer] = set()
        self._next_check = 0.0
        ticket = PortTicket()
        self._server = ChannelServer(LendingCodec(), self._on_event, host=host, admit=ticket.admit)
        self._server.start()
        self.address: ChannelAddress = replace(self._server.address, token=ticket.text)
        """The address of the port, with its ticket."""

    def close(self) -> None:
        self._server.close(linger_s=0.0)

    # -- the lane's thread

    def offer(self, source_range: SourceRange) -> None:
        now = self._clock.monotonic()
        with self._lock:
            self._waiting[source_range.number] = _WaitingRange(
                source_range, offered_at=now, since=now
            )
        self._send_offers([source_range])

    def withdraw(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)
            self._answers = [answer for answer in self._answers if answer.number != number]

    def answers(self) -> list[RangeAnswer]:
        """Return the answers that arrived since the last call. Ranges whose last offer is
        OFFERED_AGAIN_S ago are offered again.

        Raises TwinlogError if the server's thread has ended.
        """
        if not self._server.is_alive:
            raise TwinlogError(
                "the thread that exchanges records with the transforms has ended",
                code="THREAD_DIED",
            )
        now = self._clock.monotonic()
        with self._lock:
            collected, self._answers = self._answers, []
            late = self._late(now) if now >= self._next_check else []
        self._send_offers([entry.range for entry in late])
        return collected

    def _late(self, now: float) -> list[_WaitingRange]:
        """Return the ranges whose last offer was at least OFFERED_AGAIN_S ago, and set the time of
        their last offer to `now`.
        """
        self._next_check = now + NOTED_EVERY_S
        self._note_answers()
        late = [
            entry for entry in self._waiting.values() if now - entry.offered_at >= OFFERED_AGAIN_S
        ]
        for entry in late:
            entry.offered_at = now
        return late

    def unanswered(self, after_s: float) -> list[SourceRange]:
        """Return the ranges whose wait for an answer began at least `after_s` seconds ago
        (`_WaitingRange.since`).
        """
        until = self._clock.monotonic() - after_s
        with self._lock:
            self._note_answers()
            return [entry.range for entry in self._waiting.values() if entry.since <= until]

    def _send_offers(self, ranges: list[SourceRange]) -> None:
        if not ranges:
            return
        with self._lock:
            peers = list(self._subscribed)
        for peer in peers:
            peer.send(Offered(tuple(map(_offer_of, ranges))))

    # -- the server's thread

    def _on_event(self, event: ChannelEvent) -> None:
        if isinstance(event, LaneGone):
            with self._lock:
                self._subscribed.discard(event.peer)
        elif isinstance(event, LaneMessage):
            self._on_message(event.peer, event.message)

    def _on_message(self, peer: Peer, message: object) -> None:
        match message:
            case Subscribe():
                with self._lock:
                    self._subscribed.add(peer)
                    waiting = [entry.range for entry in self._waiting.values()]
                peer.send(Offered(tuple(map(_offer_of, waiting))))
            case RequestRange(number):
                with self._lock:
                    requested = self._waiting.get(number)
                peer.send(Lent(None if requested is None else requested.range))
            case Answered(answer):
                self._accept(answer)
                peer.send(AnswerAccepted(answer.number))
            case _:
                peer.close("the client sent a message that is not for a lane's port")

    def _accept(self, answer: RangeAnswer) -> None:
        with self._lock:
            if self._waiting.pop(answer.number, None) is None:
                return  # ignore a second answer, or an answer to a withdrawn range
            now = self._clock.monotonic()
            if now - self._answered_at > NOTED_EVERY_S:
                self._note_answers()
            self._answers.append(answer)
            self._answered.append(answer.number)
            self._answered_at = now
        self._wake()

    def _note_answers(self) -> None:
        """Update `_WaitingRange.since` after answers. Called about once a second and not for each
        answer, because thousands of ranges may wait.
        """
        if not self._answered:
            return
        first, last = min(self._answered), max(self._answered)
        self._answered.clear()
        for number, entry in self._waiting.items():
            if number > first or not entry.is_overtaken:
                entry.since = max(entry.since, self._answered_at)
            entry.is_overtaken |= number < last


def _offer_of(source_range: SourceRange) -> RangeOffer:
    return RangeOffer(
        number=source_range.number,
        topic=source_range.topic,
        partition=source_range.partition,
        transform=source_range.transform,
        first=source_range.first,
        end=source_range.end,
        size=len(source_range.batches),
    )
