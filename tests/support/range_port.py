"""A lane's port whose ranges a test provides."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace

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
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.wire.record_batch import Codec, read_header, read_headers, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch


def batches_of(
    records: Sequence[Record], *, per: int | None = None, codec: Codec = Codec.LZ4
) -> bytes:
    """Return the records as fetched batches of at most `per` records each. A gap begins a new
    batch.
    """
    out, some = bytearray(), [*records[:1]]
    for one in records[1:]:
        if one.offset != some[-1].offset + 1 or len(some) == per:
            out += encode_batch(some, codec=codec, base_offset=some[0].offset)
            some = []
        some.append(one)
    return bytes(out + encode_batch(some, codec=codec, base_offset=some[0].offset))


def range_of(
    records: Sequence[Record],
    *,
    number: int = 0,
    partition: int = 3,
    first: int = 0,
    end: int | None = None,
    per: int | None = None,
    batches: bytes | None = None,
    transform: str = "d1",
) -> SourceRange:
    """Return the records as a range of the topic `orders`."""
    return SourceRange(
        number=number,
        topic="orders",
        partition=partition,
        transform=transform,
        first=first,
        end=records[-1].offset + 1 if end is None else end,
        batches=batches_of(records, per=per) if batches is None else batches,
    )


class StubPort:
    """Lends ranges, and stores the first answer to each range."""

    def __init__(self) -> None:
        self._ranges: dict[int, SourceRange] = {}
        self.answers: dict[int, RangeAnswer] = {}
        self.later: list[RangeAnswer] = []
        self._subscribed: set[Peer] = set()
        self._lock = threading.Lock()
        ticket = PortTicket()
        self._server = ChannelServer(LendingCodec(), self._deliver, admit=ticket.admit)
        self._server.start()
        self.address = replace(self._server.address, token=ticket.text)

    def close(self) -> None:
        self._server.close()

    def offer(self, ranges: Iterable[SourceRange]) -> None:
        given = list(ranges)
        with self._lock:
            self._ranges.update((one.number, one) for one in given)
            subscribed = list(self._subscribed)
        message = Offered(tuple(offer_of(one) for one in given))
        for peer in subscribed:
            peer.send(message)

    def forget(self, number: int) -> None:
        """Remove a range and its answer."""
        with self._lock:
            del self._ranges[number], self.answers[number]

    def _deliver(self, event: ChannelEvent) -> None:
        if isinstance(event, LaneGone):
            self._subscribed.discard(event.peer)
        if not isinstance(event, LaneMessage):
            return
        peer, message = event.peer, event.message
        if isinstance(message, Subscribe):
            with self._lock:
                self._subscribed.add(peer)
                waiting = [one for one in self._ranges.values() if one.number not in self.answers]
            peer.send(Offered(tuple(map(offer_of, waiting))))
        elif isinstance(message, RequestRange):
            is_open = message.number not in self.answers
            peer.send(Lent(self._ranges.get(message.number) if is_open else None))
        elif isinstance(message, Answered):
            number = message.answer.number
            if number in self.answers:
                self.later.append(message.answer)
            else:
                self.answers[number] = message.answer
            peer.send(AnswerAccepted(number))


def source_records(one: SourceRange) -> list[Record]:
    """Return the source records of a range."""
    view = memoryview(one.batches)
    return [
        record
        for header, at in read_headers(view)
        for record in decode_batch(view[at : at + header.length])
    ]


def records_of(answer: RangeAnswer) -> list[Record]:
    """Return the records of an answer, with the source's offsets. Check that each batch is
    complete.
    """
    offsets = array("q")
    offsets.frombytes(answer.offsets)
    found: list[Record] = []
    for batch in answer.batches:
        view = memoryview(batch)
        header = read_header(view)
        verify_crc(view, 0, header)
        assert (header.base_offset, header.length, header.producer_id) == (0, len(batch), -1)
        assert (header.producer_epoch, header.base_sequence, header.is_dense) == (-1, -1, True)
        found += decode_batch(view)
    return [one._replace(offset=at) for one, at in zip(found, offsets, strict=True)]


def offer_of(one: SourceRange) -> RangeOffer:
    return RangeOffer(
        number=one.number,
        topic=one.topic,
        partition=one.partition,
        transform=one.transform,
        first=one.first,
        end=one.end,
        size=len(one.batches),
    )
