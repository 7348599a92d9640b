"""Primitive types of Kafka's formats: zigzag variable-length integers, as in the fields of a record
(KIP-98), and the types of flexible message versions (KIP-482) in Fetch and Produce.

Only Fetch and Produce are frequent enough to be encoded here. All other requests use the classes
that the client library generates.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from twinlog.errors import CorruptData

VARINT_MOST_BYTES = 5
VARLONG_MOST_BYTES = 10

_UINT32 = (1 << 32) - 1
_UINT64 = (1 << 64) - 1
_TABLE_SIZE = 1 << 14


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (32-bit value, position after it). Raises IndexError if `data` is too short."""
    return _read(data, position, VARINT_MOST_BYTES, _UINT32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return (64-bit value, position after it). Raises IndexError if `data` is too short."""
    return _read(data, position, VARLONG_MOST_BYTES, _UINT64)


def encode_varint(value: int) -> bytes:
    """Encode a signed value of up to 64 bits. Varint and varlong are encoded in the same way."""
    raw = (value << 1) ^ (value >> 63)
    if raw < _TABLE_SIZE:
        return _TABLE[raw]
    return _encode_unsigned(raw)


def append_sized(data: bytearray, value: bytes | None) -> int:
    """Append the length (-1 for None) and the bytes, and return the position of the bytes."""
    data += encode_varint(-1 if value is None else len(value))
    at = len(data)
    data += value or b""
    return at


def _read(data: bytes, position: int, most_bytes: int, mask: int) -> tuple[int, int]:
    raw = shift = 0
    for index in range(position, position + most_bytes):
        byte = data[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask  # bits beyond the width are dropped, as in Java's shifts
            return (raw >> 1) ^ -(raw & 1), index + 1
        shift += 7
    raise CorruptData(f"an integer at byte {position} is longer than {most_bytes} bytes")


def _encode_unsigned(raw: int) -> bytes:
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# lengths and deltas are nearly always small, and a lookup is three times as fast as the loop
_TABLE = tuple(_encode_unsigned(raw) for raw in range(_TABLE_SIZE))


EMPTY_TAGS: Final = b"\x00"


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: at most 5 bytes for 32 bits."""
    return _TABLE[value] if value < _TABLE_SIZE else _encode_unsigned(value)


def compact_string(text: str) -> bytes:
    """Encode a non-null COMPACT_STRING: length + 1 as uvarint, then UTF-8."""
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


class Reader:
    """Reads primitives from one response. Raises CorruptData if the response ends too early."""

    __slots__ = ("pos", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.pos = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self.view, self.pos)
        except struct.error as error:
            raise CorruptData(
                f"a response of {len(self.view)} bytes ends at byte {self.pos}: {error}"
            ) from error
        self.pos += layout.size
        return values

    def uvarint(self) -> int:
        value = shift = 0
        view, pos = self.view, self.pos
        if pos < len(view) and (byte := view[pos]) < 0x80:  # usually a single byte
            self.pos = pos + 1
            return byte
        while True:
            if pos >= len(view) or shift > 63:
                raise CorruptData(f"a varint at byte {self.pos} of a response does not end")
            byte = view[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.pos = pos
                return value
            shift += 7

    def take(self, size: int) -> memoryview:
        if size < 0 or self.pos + size > len(self.view):
            raise CorruptData(
                f"a response of {len(self.view)} bytes has a field of {size} bytes at byte "
                f"{self.pos}"
            )
        part = self.view[self.pos : self.pos + size]
        self.pos += size
        return part

    def compact_bytes(self) -> memoryview | None:
        size = self.uvarint()
        return None if size == 0 else self.take(size - 1)

    def compact_text(self) -> str | None:
        raw = self.compact_bytes()
        return None if raw is None else bytes(raw).decode("utf-8", "replace")

    def topic(self, names: Mapping[bytes, str] | None) -> str:
        """Return a topic's name. `names`: names by topic ID, or None if the response has names. A
        topic with an unknown ID is named by this ID.
        """
        if names is None:
            return self.compact_text() or ""
        raw = bytes(self.take(16))
        return names.get(raw, raw.hex())

    def array_length(self) -> int:
        """Return the number of elements of a compact array, or 0 for a null array."""
        return max(0, self.uvarint() - 1)

    def tags(self) -> dict[int, memoryview] | None:
        """Return the tagged fields by tag, or None if there are none, which is usual."""
        count = self.uvarint()
        if not count:
            return None
        out: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            out[tag] = self.take(self.uvarint())
        return out
