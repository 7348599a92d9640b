"""Primitive types of Kafka's flexible message versions (KIP-482), as Fetch and Produce need them.

Only these two requests are frequent enough to be encoded here. All others use the classes that the
client library generates.
"""

from __future__ import annotations

import struct
from typing import Final

from twinlog.errors import CorruptData

EMPTY_TAGS: Final = b"\x00"
_INT16 = struct.Struct(">h")
_SMALL: Final = tuple(bytes((value,)) for value in range(0x80))


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: at most 5 bytes for 32 bits."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """Encode a non-null COMPACT_STRING: length + 1 as uvarint, then UTF-8."""
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


class Reader:
    """Reads primitives from one response. Raises CorruptData at its end."""

    __slots__ = ("pos", "view")

    def __init__(self, view: memoryview, pos: int = 0) -> None:
        self.view = view
        self.pos = pos

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
        if pos < len(view) and (byte := view[pos]) < 0x80:  # usually: one byte
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
                f"a response of {len(self.view)} bytes announces {size} bytes at byte {self.pos}"
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

    def array_length(self) -> int:
        """Return the number of elements of a compact array, or 0 for a null array."""
        return max(0, self.uvarint() - 1)

    def tags(self) -> dict[int, memoryview] | None:
        """Return the tagged fields, or None for an empty section, which is usual."""
        count = self.uvarint()
        if not count:
            return None
        out: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            out[tag] = self.take(self.uvarint())
        return out
