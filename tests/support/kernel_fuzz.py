"""Gives damaged batches to the kernels and to their Python twin. Both must return the same bytes,
or both must raise CorruptData.

    python -m tests.support.kernel_fuzz --inputs 1000000

An input is one or more batches of every codec and format. Some bytes are changed, removed or
inserted, or replaced by numbers that have broken decoders before. The CRC is corrected if it would
hide the damage.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import cramjam
from crc32c import crc32c
from msgspec import structs

from tests.support.records import NOW_MS, message
from twinlog.errors import CorruptData, TwinlogError
from twinlog.mirror.copy.intake import Intake
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.skips import Skip
from twinlog.model import SEQUENCE_MODULUS, Isolation
from twinlog.wire.compression import Recompression, compress
from twinlog.wire.fetch import AbortedTransaction
from twinlog.wire.joining import JoinedBatch, join_run
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.library import NAME, Library
from twinlog.wire.kernels.shapes import Kernels, Strings, Table
from twinlog.wire.kernels.twin import TWIN, scan_state
from twinlog.wire.primitives import encode_varint
from twinlog.wire.record_batch import CRC, HEADER_BYTES, Codec, read_headers
from twinlog.wire.records import Record, decode_batch, decode_legacy, encode_batch, encode_headers

LIMIT: Final = 1 << 20
K: Final = 100
FOREVER: Final = (1 << 63) - 1
NUMBERS: Final = [
    encode_varint(value)
    for value in (-1, -2, 0, 1, 63, 64, 8192, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63))
] + [
    b"\x80\x00",
    b"\xff" * 4 + b"\x0f",
    b"\x82" + b"\x80" * 3 + b"\x70",
    b"\xff" * 5,
    b"\xff" * 9 + b"\x01",
    b"\xff" * 11,
]
HEADERS: Final = [
    ("", None), ("trace", b""), ("k" * 70, b"v" * 9000), ("\udcff", b"no UTF-8"),
    ("\u00e9\u20ac\U0001f600\ud7ff\ue000\U0010ffff", b"of each length"),
]  # fmt: skip
TIMES: Final = [NOW_MS, NOW_MS + 3, NOW_MS + 2_200_000_000, -1, 0, 2**62, 2**63 - 1, -(2**63)]
NASTY: Final = [b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 8]


class Difference(Exception):
    """Raised if the kernel and the twin differ, or if one of them raised an unexpected error."""


@contextmanager
def use(kernels: Kernels) -> Iterator[None]:
    """Make this process use these kernels within the block."""
    before = CHOSEN.kernels, CHOSEN.not_compiled_reason
    CHOSEN.kernels, CHOSEN.not_compiled_reason = kernels, "a test" if kernels is TWIN else None
    try:
        yield
    finally:
        CHOSEN.kernels, CHOSEN.not_compiled_reason = before


@dataclass(frozen=True, slots=True)
class Seed:
    """A real batch to be damaged, with its uncompressed payload."""

    batch: bytes
    payload: bytes


class Fuzzer:
    """Generates inputs. The same seed generates the same inputs."""

    def __init__(self, seed: int, library: Kernels | None = None) -> None:
        self.random = random.Random(seed)
        self.library = CHOSEN.kernels if library is None else library
        self.accepted = self.refused = 0
        self._seeds = [self._seed(codec) for codec in Codec for _ in range(6)]
        self._small = [(n, self._plain(self._records(n))) for n in (1, 1, 2, 8, 9) * 4]
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (40, self.payloads),
            (25, self.joins),
            (5, self.packed_joins),
            (20, self.answers),
            (10, self.compressed),
            (5, self.legacy),
            (5, self.columns),
            (5, self.headers_read),
            (5, self.headers_written),
        ]

    def run(self, inputs: int) -> None:
        weights = [weight for weight, _ in self._kinds]
        steps = [step for _, step in self._kinds]
        for step in self.random.choices(steps, weights, k=inputs):
            step()

    # -- seeds

    def _records(self, count: int) -> list[Record]:
        draw = self.random
        parts = [None, b"", b"k", b"key-1234", b"x" * 63, b"y" * 64, b"z" * 300]
        headers = [(), (), (), (("trace", b"1"),), (("", None), ("\udcff", b"v" * 70))]
        return [
            Record(
                at, draw.choice(TIMES[:4]), draw.choice(parts), draw.choice(parts),
                draw.choice(headers),
            )
            for at in range(count)
        ]  # fmt: skip

    def _seed(self, codec: Codec) -> Seed:
        records = self._records(self.random.choice((1, 1, 2, 5, 12, 40)))
        plain = bytes(encode_batch(records, codec=Codec.NONE))
        payload = self._wide(records) if self.random.random() < 0.3 else plain[HEADER_BYTES:]
        return Seed(bytes(encode_batch(records, codec=codec)), payload)

    @staticmethod
    def _plain(records: list[Record]) -> Seed:
        plain = bytes(encode_batch(records, codec=Codec.NONE))
        return Seed(plain, plain[HEADER_BYTES:])

    def _wide(self, records: list[Record]) -> bytes:
        """Return records whose numbers no client writes but every reader accepts: with more bytes
        than necessary, and with bits above the 32nd.
        """
        out = bytearray()
        for delta, record in enumerate(records):
            body = bytearray(b"\x00") + encode_varint(3) + wide(delta)
            for part in (record.key, record.value):
                body += wide(-1 if part is None else len(part)) + (part or b"")
            body += wide(0)
            out += wide(len(body)) + body
        return bytes(out)

    # -- damage

    def damaged(self, data: bytes, most: int = 4) -> bytes:
        """Return `data` with at most `most` random faults, and sometimes without a fault."""
        draw, out = self.random, bytearray(data)
        for _ in range(draw.randrange(most + 1)):
            at = draw.randrange(len(out) + 1)
            match draw.randrange(6):
                case 0 if at < len(out):
                    out[at] ^= 1 << draw.randrange(8)
                case 1:
                    out[at : at + 1] = draw.choice(NUMBERS)
                case 2:
                    del out[at : at + draw.choice((1, 1, 2, 7, 100))]
                case 3:
                    out[at:at] = draw.choice(NUMBERS + NASTY)
                case 4:
                    nasty = draw.choice(NASTY)
                    out[at : at + len(nasty)] = nasty
                case _ if at < len(out):
                    out[at] = draw.randrange(256)
        return bytes(out)

    def header(self, batch: bytes, length: int) -> bytearray:
        """Return the batch's header for a payload of `length` bytes. Some other fields are changed
        at random.
        """
        draw, head = self.random, bytearray(batch[:HEADER_BYTES])
        struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + length)
        if draw.random() < 0.3:
            struct.pack_into(">q", head, 27, draw.choice(TIMES))
            struct.pack_into(">q", head, 35, draw.choice(TIMES))
        if draw.random() < 0.2:
            head[22] ^= draw.choice((0x08, 0x10, 0x20, 0x40))
        if draw.random() < 0.2:
            (count,) = struct.unpack_from(">i", head, 57)
            count += draw.choice((-1, 1, 3, 1 << 30))
            struct.pack_into(">i", head, 57, count)
            struct.pack_into(">i", head, 23, count - 1 + draw.choice((0, 0, 5)))
        return head

    def batch(self, seed: Seed, codec: Codec, most: int = 4) -> bytes:
        """Return a batch with a damaged payload. Its CRC is usually right."""
        payload = bytes(compress(codec, self.damaged(seed.payload, most)))
        head = self.header(seed.batch, len(payload))
        head[22] = head[22] & 0xF8 | codec
        out = head + payload
        return bytes(sealed(out) if self.random.random() < 0.95 else out)

    # -- operations that are tried

    def payloads(self) -> None:
        """Decode a damaged payload to a table, and encode some of its rows."""
        seed, draw = self.random.choice(self._seeds), self.random
        data = self.damaged(seed.payload)
        head = bytes(self.header(seed.batch, len(data)))
        try:
            ((header, _),) = read_headers(memoryview(head + data))
        except (CorruptData, ValueError):
            return
        if header.last_offset > FOREVER:
            return
        most = draw.choice((header.count, header.count, 1, 3))
        ours, theirs = scan_state(header), scan_state(header)
        table = self.library.scan(data, ours, most)
        try:
            other = TWIN.scan(data, theirs, most)
        except CorruptData:
            same(table, None, "the twin refuses", data)
            self.refused += 1
            return
        if table is None:
            raise Difference(f"the kernel refuses {data.hex()} of {header}")
        self.accepted += 1
        same(ours, theirs, "state", data)
        for column in range(shapes.COLUMNS):
            same(table.column(column), other.column(column), f"column {column}", data)
        if table.rows:
            self._rows(table, other)

    def _rows(self, table: Table, other: Table) -> None:
        draw = self.random
        picked = array("q", (row for row in range(table.rows) if draw.random() < 0.7))
        if not picked:
            return
        number = draw.choice((0, 63, 64, 9000))
        base = table.cells[shapes.TIMESTAMP * table.stride + picked[0]]
        measured = self.library.measure(table, picked, number, base)
        same(measured, TWIN.measure(other, picked, number, base), "measure", table.data)
        room = measured[0] + draw.choice((0, 0, -1, 5))
        outs = [bytearray(max(0, room) + 3) for _ in range(2)]
        written = [
            one.rebuild(rows, picked, number, base, out, 3)
            for one, rows, out in ((self.library, table, outs[0]), (TWIN, other, outs[1]))
        ]
        same(written[0], written[1], "rebuild", table.data)
        if written[0] >= 0:
            same(outs[0], outs[1], "rebuilt bytes", table.data)
        same(self.library.breaks(table, picked), TWIN.breaks(other, picked), "breaks", table.data)
        shares = self.library.partition(table, picked, 6), TWIN.partition(other, picked, 6)
        same(*shares, "place", table.data)
        for column in (shapes.KEY, shapes.VALUE):
            found = [
                one.gather(rows, column, 0, rows.rows)
                for one, rows in ((self.library, table), (TWIN, other))
            ]
            same(found[0], found[1], "gather", table.data)

    def _answer(self) -> tuple[bytes, int]:
        """Return a Fetch response of small, mostly intact batches, and the offset at which it was
        damaged last.
        """
        draw, out, offset = self.random, bytearray(), draw_offset(self.random)
        first = offset
        if draw.random() < 0.3:
            return self._plain_answer(first), first
        for _ in range(draw.randrange(1, 8)):
            count, seed = draw.choice(self._small)
            codec = draw.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.SNAPPY))
            one = bytearray(self.batch(seed, codec, draw.choice((0, 0, 0, 1))))
            struct.pack_into(">q", one, 0, min(offset, FOREVER))
            struct.pack_into(">i", one, 12, 3 + (draw.random() < 0.1))
            if draw.random() < 0.03:
                one[22] = one[22] & 0xF8 | draw.choice((Codec.NONE, Codec.LZ4, 7))
                sealed(one)  # the codec in the header is not that of the payload
            out += one
            offset += count + draw.choice((0, 0, 0, 2))
        return (self.damaged(bytes(out), 2) if draw.random() < 0.3 else bytes(out)), first

    def _plain_answer(self, offset: int) -> bytes:
        """Return consecutive intact batches. Most of them can be joined."""
        draw, out = self.random, bytearray()
        for _ in range(draw.randrange(1, 8)):
            count, seed = draw.choice(self._small)
            one = bytearray(seed.batch)
            struct.pack_into(">q", one, 0, min(offset, FOREVER))
            if draw.random() < 0.1:
                one[22] |= draw.choice((0x10, 0x20, 0x30))
                sealed(one)
            out += one
            offset += count
        return bytes(out)

    def joins(self) -> None:
        """Join small batches to one payload, with the kernel and with its Python twin."""
        data, first = self._answer()
        draw = self.random
        end, most = draw.choice((FOREVER, first + 3)), draw.choice((2**31, 5))
        begin = (0, first, end, 8, most, draw.random() < 0.2, Codec.NONE)
        room = draw.choice((4096, 200, 70))
        states = [
            array("q", (*begin, *[0] * (shapes.JOIN_NUMBERS - shapes.BATCHES))) for _ in range(2)
        ]
        outs = [bytearray(room) for _ in range(2)]
        sizes = [
            one.join(memoryview(bytearray(data)), state, out, 7)
            for one, state, out in zip((self.library, TWIN), states, outs, strict=True)
        ]
        same((sizes[0], list(states[0])), (sizes[1], list(states[1])), "join", data)
        same(outs[0][7 : 7 + sizes[0]], outs[1][7 : 7 + sizes[1]], "joined bytes", data)
        self.accepted += states[0][shapes.BATCHES] > 1
        self.refused += states[0][shapes.BATCHES] < 1

    def packed_joins(self) -> None:
        """Join small batches in lz4. Their frames are as written by several clients, and some are
        damaged.

        The kernel may stop before a damaged frame that the twin's library accepts, such as one with
        a match of distance 0.
        """
        draw, data, offset, is_intact = self.random, bytearray(), 0, True
        for _ in range(draw.randrange(2, 7)):
            count, seed = draw.choice(self._small)
            frame = foreign(Codec.LZ4, seed.payload, draw.randrange(6))
            sent = self.damaged(frame, 1) if draw.random() < 0.3 else frame
            is_intact &= sent == frame
            one = bytearray(seed.batch[:HEADER_BYTES]) + sent
            struct.pack_into(">q", one, 0, offset)
            struct.pack_into(">i", one, 8, len(one) - 12)
            one[22] = Codec.LZ4
            data += sealed(one)
            offset += count
        records, most = memoryview(data), draw.choice((70, 200, 2000, 1 << 16))
        ((first, _), *_) = read_headers(records)

        def joined(kernels: Kernels, end: int = FOREVER) -> JoinedBatch | None:
            with use(kernels):
                return join_run(
                    records, 0, first, end=end, most_bytes=most, most_records=2**31,
                    codec=Codec.NONE,
                )  # fmt: skip

        ours, theirs = joined(self.library), joined(TWIN)
        if not is_intact and theirs is not None and (not ours or ours.batches < theirs.batches):
            theirs = joined(TWIN, ours.next_offset) if ours else None
        same(ours, theirs, "joined lz4", bytes(data))
        self.accepted += ours is not None
        self.refused += ours is None

    def answers(self) -> None:
        """Run the whole input side of a copy, with the kernels and with their Python twin. Compare
        the resulting batches or errors.
        """
        data, first = self._answer()
        if self.random.random() < 0.5:
            seed = self.random.choice(self._seeds)
            data = self.batch(seed, self.random.choice(list(Codec)), 1) + data
            first = 0
        way = self._way(first)
        taken = []
        for kernels in (self.library, TWIN):
            with use(kernels):
                taken.append(take(data, way))
        same(taken[0], taken[1], repr(way), data)
        self.accepted += not isinstance(taken[0], str)
        self.refused += isinstance(taken[0], str)

    def _way(self, first: int) -> Way:
        draw = self.random
        codecs = [Recompression(codec=codec) for codec in (Codec.NONE, Codec.LZ4)]
        codecs += [replace(one, every=True) for one in codecs]
        transaction = AbortedTransaction(draw.choice((-1, 7)), first + draw.choice((0, 2)))
        skip = Skip(first=first + 2, next=first + draw.choice((3, 5)), is_batch=draw.random() < 0.5)
        return Way(
            position=first + draw.choice((0, 0, 0, 1)),
            end=draw.choice((FOREVER, FOREVER, first + 3)),
            ordinal=draw.choice((7, 7, SEQUENCE_MODULUS - 3)),
            limit=draw.choice((LIMIT, LIMIT, 300)),
            join=draw.choice((0, 0, 1000)),
            continues=draw.random() < 0.7,
            recompression=draw.choice(codecs) if draw.random() < 0.2 else None,
            aborted=(transaction,) if draw.random() < 0.1 else (),
            skips=(skip,) if draw.random() < 0.1 else (),
        )

    def compressed(self) -> None:
        """Decompress damaged frames as written by this library and by other clients."""
        seed, draw = self.random.choice(self._seeds), self.random
        codec = draw.choice(list(Codec)[1:])
        packed = self.damaged(foreign(codec, seed.payload, draw.randrange(4)))
        head = bytearray(seed.batch[:HEADER_BYTES])
        struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(packed))
        head[22] = codec
        self._both(lambda: decode_batch(memoryview(bytes(head + packed)), LIMIT), packed)

    def legacy(self) -> None:
        """Decode message formats 0 and 1, which have no kernel. No error other than CorruptData may
        be raised.
        """
        draw = self.random
        magic, codec = draw.choice((0, 1)), draw.choice(list(Codec)[:4])
        inner = b"".join(
            message(
                magic=magic,
                offset=at + draw_offset(draw) // 2,
                key=b"k",
                value=b"v" * at,
                timestamp=draw.choice(TIMES),
            )
            for at in range(draw.randrange(1, 5))
        )
        if codec is not Codec.NONE:
            packed = bytes(compress(codec, self.damaged(inner, 1)))
            inner = message(
                magic=magic, offset=9, key=None, value=packed, attributes=codec, timestamp=NOW_MS
            )
        data = self.damaged(inner, 1)
        self._both(lambda: decode_legacy(memoryview(data), LIMIT), data)
        take(data, Way())  # must raise nothing but TwinlogError

    def columns(self) -> None:
        """Build a table from columns. Some of their positions are outside of the data."""
        draw, count = self.random, self.random.randrange(5)
        key, value, headers = (self._strings(count, least) for least in (-1, -1, 0))
        times = array("q", draw.choices(TIMES, k=count))
        found: list[Table | None] = []
        for kernels in (self.library, TWIN):
            try:
                found.append(kernels.pack(key, value, headers, times))
            except ValueError:
                found.append(None)
        ours, theirs = found
        if ours is None or theirs is None:
            same(ours, theirs, "pack refuses", b"")
            self.refused += 1
            return
        same((ours.data, ours.cells), (theirs.data, theirs.cells), "pack", ours.data)
        self.accepted += 1

    def headers_read(self) -> None:
        """Read damaged headers to columns. Some positions are outside of the data."""
        draw, data = self.random, bytearray()
        starts, ends = array("q"), array("q")
        for _ in range(draw.randrange(5)):
            starts.append(len(data))
            one = encode_headers(draw.choices(HEADERS, k=draw.choice((0, 0, 1, 2, 70))))
            data += self.damaged(one, 2) if draw.random() < 0.2 else one
            ends.append(len(data))
        if starts and draw.random() < 0.1:
            at, moved = draw.randrange(len(starts)), draw.choice((starts, ends))
            moved[at] = draw.choice((-1, 0, len(data) + 1, FOREVER, -FOREVER))
        raw = bytes(data)
        ours = self.library.unpack_headers(raw, starts, ends)
        try:
            theirs = TWIN.unpack_headers(raw, starts, ends)
        except CorruptData:
            same(ours, None, "the twin refuses headers", raw)
            self.refused += 1
            return
        if ours is None and "\ufffd".encode() in theirs.keys:
            return  # only the twin has replaced bytes that are not UTF-8
        same(ours, theirs, "headers", raw)
        self.accepted += 1

    def headers_written(self) -> None:
        """Encode columns of headers. The result must equal that of encoding record objects."""
        draw, count = self.random, self.random.randrange(9)
        key, value = self._strings(count, draw.choice((0, 0, 0, -1))), self._strings(count, -1)
        counts = array("q", (draw.randrange(4) for _ in range(draw.randrange(4))))
        counts.append(count - sum(counts))
        found: list[Strings | None] = []
        for kernels in (self.library, TWIN):
            try:
                found.append(kernels.pack_headers(counts, key, value))
            except ValueError:
                found.append(None)
        same(found[0], found[1], "headers written", key.data)
        self.accepted += found[0] is not None
        self.refused += found[0] is None

    def _strings(self, count: int, least: int) -> Strings:
        draw = self.random
        data = draw.randbytes(draw.choice((0, 70, 9000)))
        sizes = array("q", (draw.choice((least, 0, 1, 64, len(data))) for _ in range(count)))
        fits = [draw.randrange(max(1, len(data) - size + 1)) for size in sizes]
        if count and draw.random() < 0.1:
            sizes[0], fits[0] = draw.choice(((len(data) + 1, 0), (1, len(data)), (1, -1)))
        return Strings(data, array("q", fits), sizes)

    def _both(self, decode: Callable[[], list[Record]], data: bytes) -> None:
        verdicts: list[tuple[list[Record], str | None]] = []
        for kernels in (self.library, TWIN):
            with use(kernels):
                try:
                    verdicts.append((decode(), None))
                except CorruptData as error:
                    verdicts.append(([], error.message))
        same(verdicts[0], verdicts[1], "records", data)
        self.accepted += verdicts[0][1] is None
        self.refused += verdicts[0][1] is not None


def wide(value: int) -> bytes:
    """Return a zigzag integer of 32 bits in five bytes. Its unused bits are set, which readers
    drop.
    """
    raw = (value << 1) ^ (value >> 63)
    low = bytes(raw >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21))
    return low + bytes((raw >> 28 & 0x0F | 0x70,))


def draw_offset(draw: random.Random) -> int:
    return draw.choice((0, 0, 5, 2**40, FOREVER - 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The initial state and the settings of a copy's input."""

    position: int = 0
    end: int = FOREVER
    ordinal: int = 7
    limit: int = LIMIT
    join: int = 0
    continues: bool = False
    """True if the first record directly follows the record that was copied last."""
    recompression: Recompression | None = None
    aborted: tuple[AbortedTransaction, ...] = ()
    skips: tuple[Skip, ...] = ()


def take(data: bytes, way: Way) -> object:
    """Return what a copy's input produces from a Fetch response, or the text of its error."""
    run = Run(way.ordinal, way.position, K + way.ordinal) if way.continues else None
    intake = Intake(
        position=way.position, ordinal=way.ordinal, k=K, last_run=run, producer_id=9,
        limit_bytes=way.limit, join_bytes=way.join, isolation=Isolation.READ_COMMITTED,
        recompression=way.recompression, skips=way.skips,
    )  # fmt: skip
    try:
        out = intake.take(memoryview(bytearray(data)), way.aborted, way.end)
    except TwinlogError as error:
        return error.message
    return [structs.replace(one, data=memoryview(bytes(one.data))) for one in out], (
        intake.position,
        intake.ordinal,
        intake.last_fetched_epoch,
        intake.batches,
        intake.deep_batches,
        intake.packed_batches,
        intake.jumps,
        intake.applied_skips,
    )


def sealed(batch: bytearray) -> bytearray:
    """Set the right CRC in the batch, and return it."""
    CRC.pack_into(batch, 17, crc32c(bytes(batch[21:])))
    return batch


def foreign(codec: Codec, data: bytes, kind: int) -> bytes:
    """Compress the data as other clients do: raw snappy, linked lz4 blocks, or several gzip or zstd
    members.
    """
    half = len(data) // 2
    match codec:
        case Codec.SNAPPY if kind:
            return bytes(cramjam.snappy.compress_raw(data))
        case Codec.LZ4 if kind > 3:
            return packed_in_blocks(data, sums=kind > 4)
        case Codec.LZ4 if kind:
            return bytes(cramjam.lz4.compress(data, level=kind))
        case Codec.GZIP if kind:
            return gzip.compress(data[:half], 1) + gzip.compress(data[half:], 9)
        case Codec.ZSTD if kind:
            return bytes(cramjam.zstd.compress(data[:half], level=1)) + bytes(
                cramjam.zstd.compress(data[half:], level=kind)
            )
    return bytes(compress(codec, data))


def packed_in_blocks(data: bytes, *, sums: bool) -> bytes:
    """Return an lz4 frame of several blocks with its content size. If `sums`, it has all
    checksums.
    """
    flags = bytes((0x68 | 0x14 * sums, 0x50)) + struct.pack("<q", len(data))
    out = bytearray(b"\x04\x22\x4d\x18") + flags + bytes((xxh32(flags) >> 8 & 0xFF,))
    for at in range(0, len(data), 40):
        part = data[at : at + 40]
        block = bytes(cramjam.lz4.compress_block(part, store_size=False))
        stored = len(block) >= len(part)
        block = part if stored else block
        out += struct.pack("<I", len(block) | stored << 31) + block
        if sums:
            out += struct.pack("<I", xxh32(block))
    return bytes(out + bytes(4) + (struct.pack("<I", xxh32(data)) if sums else b""))


def xxh32(data: bytes) -> int:
    """Return the xxHash32 of the data with seed 0."""
    mask, primes = 0xFFFFFFFF, (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    one, two, three, four, five = primes

    def turned(value: int, bits: int) -> int:
        return (value << bits | (value & mask) >> (32 - bits)) & mask

    lanes, value, at = [one + two & mask, two, 0, -one & mask], five, 0
    for at in range(0, len(data) // 16 * 16, 16):
        for n, word in enumerate(struct.unpack_from("<4I", data, at)):
            lanes[n] = turned(lanes[n] + word * two & mask, 13) * one & mask
    if len(data) >= 16:
        at += 16
        value = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    value = value + len(data) & mask
    words = at + (len(data) - at) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[at:words]):
        value = turned(value + word * three & mask, 17) * four & mask
    for byte in data[words:]:
        value = turned(value + byte * five & mask, 11) * one & mask
    value = (value ^ value >> 15) * two & mask
    value = (value ^ value >> 13) * three & mask
    return value ^ value >> 16


def same(ours: Any, theirs: Any, what: str, data: bytes) -> None:
    if ours != theirs:
        raise Difference(f"{what}: {ours!r} is not {theirs!r}, for {data.hex()}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="how many (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, help="other inputs (default: 1)")
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="with the compiler's checks of addresses and undefined behaviour (gcc, Linux)",
    )
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sanitize and given.library is None:
        return sanitized()
    library = CHOSEN.kernels if given.library is None else Library(given.library)
    if library is TWIN:
        sys.exit(
            f"fuzz: the kernels are not loaded: {CHOSEN.not_compiled_reason}; run scripts/setup"
        )
    began, step, done = time.monotonic(), 10_000, 0
    accepted = refused = 0
    while done < given.inputs:
        fuzzer = Fuzzer(given.seed * 1_000_003 + done, library)
        count = min(step, given.inputs - done)
        fuzzer.run(count)
        done, accepted, refused = done + count, accepted + fuzzer.accepted, refused + fuzzer.refused
        sys.stdout.write(
            f"fuzz: {done} inputs, {accepted} taken, {refused} refused, "
            f"{time.monotonic() - began:.0f} s\n"
        )
        sys.stdout.flush()
    return 0


def sanitized() -> int:
    """Run the fuzzer in a process with sanitized kernels and a checked allocator. Return its exit
    code.
    """
    source = Path(sys.modules[Library.__module__].__file__ or "").with_name("kernels.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, NAME)
        flags = ["-O1", "-g", "-std=c11", "-shared", "-fPIC", "-fsanitize=address,undefined"]
        stop = "-fno-sanitize-recover=all"
        subprocess.run(["gcc", *flags, stop, "-o", str(library), str(source)], check=True)
        asan = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        watched = {
            "LD_PRELOAD": asan,
            "ASAN_OPTIONS": "detect_leaks=0",
            # a separate allocation for each object, so that the sanitizer detects accesses beyond
            # its end
            "PYTHONMALLOC": "malloc",
        }
        arguments = [one for one in sys.argv[1:] if one != "--sanitize"]
        command = [sys.executable, "-m", "tests.support.kernel_fuzz", *arguments]
        return subprocess.run(
            [*command, "--library", str(library)], env={**os.environ, **watched}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
