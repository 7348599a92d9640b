"""Lends ranges of partitions to the application of transforms, over the channel's frames (ADR 40).
An answer contains the transformed records of a range (`mirror.copy.ranges`).

    application                         lane's port
      | -- Subscribe ------------------->|
      | <- Offered ----------------------|   each range without an answer, now and later
    task
      | -- RequestRange ---------------->|
      | <- Lent -------------------------|   the range, or none if it needs no answer
      | -- Answered -------------------->|
      | <- AnswerAccepted ---------------|   the lane has this or an earlier answer

Frames and authentication are the same as between driver and lanes. The content is MessagePack and
not JSON, because most of it is batches. The lane offers a range again if the application's
connection ends, or if no answer arrives in time. The end of a task's connection has no effect,
because workers use one connection for several tasks.
"""

from __future__ import annotations

import hmac
import os
import secrets
import select
import time
from typing import Any, Final, Self

from msgspec import MsgspecError, Struct, msgpack

from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import MessageCodec
from twinlog.channel.frames import (
    HELLO,
    ChannelAddress,
    Frame,
    LaneIdentity,
    hello_proof,
    read_hello,
)
from twinlog.channel.lane_secrets import SECRET_BYTES
from twinlog.errors import AuthenticationFailed, CorruptData, Disconnected
from twinlog.mirror.copy.ranges import RangeAnswer, RangeBounds, SourceRange

REPLY_WITHIN_S: Final = 30.0
_TICK_S: Final = 0.25


class _Tagged(Struct, frozen=True, tag=True):
    """Base class of the messages between application and lane."""


class Subscribe(_Tagged, frozen=True):
    """Requests offers of all ranges without an answer, now and later."""


class RangeOffer(RangeBounds, frozen=True, kw_only=True):
    """The description of a range, without the range's batches."""

    transform: str
    size: int
    """Total bytes of the range's batches."""


class Offered(_Tagged, frozen=True):
    """Ranges that need an answer."""

    offers: tuple[RangeOffer, ...]


class RequestRange(_Tagged, frozen=True):
    """Requests the range with this number."""

    number: int


class Lent(_Tagged, frozen=True):
    """The requested range, or None if the lane needs no answer to it any more."""

    range: SourceRange | None


class Answered(_Tagged, frozen=True):
    """The answer to a range."""

    answer: RangeAnswer


class AnswerAccepted(_Tagged, frozen=True):
    """The lane has an answer to the range with this number."""

    number: int


LendingMessage = Subscribe | Offered | RequestRange | Lent | Answered | AnswerAccepted


class LendingCodec(MessageCodec):
    """Encodes and decodes messages between application and lane (`LendingMessage`) as
    MessagePack.
    """

    def __init__(self) -> None:
        self._encoder = msgpack.Encoder()
        self._decoder = msgpack.Decoder(LendingMessage)

    def encode(self, message: Any) -> bytes:
        return self._encoder.encode(message)

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        try:
            return self._decoder.decode(data)
        except MsgspecError:  # the error's text may contain data of records
            raise CorruptData(
                f"a message of {len(data)} bytes is not valid; both ends must run the same Twinlog "
                "version",
                code="CORRUPT_MESSAGE",
            ) from None


class PortTicket:
    """Admits every connection that has the ticket of a lane's port, any number of times.

    Spark starts and ends workers as needed, so a ticket is valid for any number of connections. A
    ticket gives access to no cluster, only to the ranges of one lane, which user code gets anyway.
    """

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(SECRET_BYTES)

    def admit(self, first: Frame) -> LaneIdentity:
        """Return the identity in a hello. Raises AuthenticationFailed unless the sender has the
        ticket.
        """
        identity, shown = read_hello(first)
        proof = hello_proof(self.text, identity)
        if first.kind != HELLO or not hmac.compare_digest(shown, proof):
            raise AuthenticationFailed("wrong ticket", code="CHANNEL_TOKEN")
        return identity


class LendingClient:
    """One connection to the port of a lane."""

    def __init__(self, address: ChannelAddress) -> None:
        """Connect to the port. Raises TwinlogError if that fails."""
        identity = LaneIdentity(lease=0, lane=0, attempt=secrets.randbits(31), pid=os.getpid())
        self._channel = ChannelClient.connect(address, identity, LendingCodec())
        self._messages: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def subscribe(self) -> None:
        """Request offers of all ranges without an answer, now and later. `offers` returns them.
        Raises TwinlogError.
        """
        self._channel.send(Subscribe())

    def offers(self, within_s: float) -> tuple[RangeOffer, ...]:
        """Return the next offers of ranges, or () if none arrive within `within_s` seconds. Raises
        TwinlogError.
        """
        message = self._next(within_s)
        return message.offers if isinstance(message, Offered) else ()

    def request_range(self, number: int) -> SourceRange | None:
        """Return the range with this number, or None if the lane needs no answer to that range now.
        Raises TwinlogError.
        """
        self._channel.send(RequestRange(number))
        lent = self._receive_reply(Lent)
        taken: SourceRange | None = lent.range
        return taken

    def send_answer(self, answer: RangeAnswer) -> None:
        """Send an answer, and wait until the lane has accepted it. Raises TwinlogError."""
        self._channel.send(Answered(answer))
        self._receive_reply(AnswerAccepted)

    def _receive_reply(self, kind: type[LendingMessage]) -> Any:
        message = self._next(REPLY_WITHIN_S)
        if not isinstance(message, kind):
            raise Disconnected("the lane did not respond in time", code="CHANNEL_LOST")
        return message

    def _next(self, within_s: float) -> LendingMessage | None:
        """Return the next message, or None if none arrives within `within_s` seconds."""
        channel, deadline = self._channel, time.monotonic() + within_s
        while not self._messages:
            self._messages = channel.receive()
            left = deadline - time.monotonic()
            if self._messages or left <= 0:
                break
            wants = [channel] if channel.wants_write else []
            select.select([channel], wants, [], min(left, _TICK_S))
        message: LendingMessage | None = self._messages.pop(0) if self._messages else None
        return message
