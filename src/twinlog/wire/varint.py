"""Zigzag variable-length integers, as used in the fields of a record (KIP-98)."""

from __future__ import annotations

from twinlog.errors import CorruptData

VARINT_MOST_BYTES = 5
VARLONG_MOST_BYTES = 10

_UINT32 = (1 << 32) - 1
_UINT64 = (1 << 64) - 1
_TABLE_SIZE = 1 << 14


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a 32-bit value and the position after it. Raises IndexError if `data` ends before."""
    return _read(data, position, VARINT_MOST_BYTES, _UINT32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return a 64-bit value and the position after it. Raises IndexError if `data` ends before."""
    return _read(data, position, VARLONG_MOST_BYTES, _UINT64)


def encode_varint(value: int) -> bytes:
    """Encode a signed value of up to 64 bits. Varint and varlong are encoded in the same way."""
    raw = (value << 1) ^ (value >> 63)
    if raw < _TABLE_SIZE:
        return _TABLE[raw]
    return _encode_unsigned(raw)


def append_sized(data: bytearray, value: bytes | None) -> int:
    """Append the length and the bytes, and return the position of the bytes."""
    data += encode_varint(-1 if value is None else len(value))
    at = len(data)
    data += value or b""
    return at


def _read(data: bytes, position: int, most_bytes: int, mask: int) -> tuple[int, int]:
    raw = shift = 0
    for at in range(position, position + most_bytes):
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask  # bits beyond the width are dropped, as in Java's shifts
            return (raw >> 1) ^ -(raw & 1), at + 1
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
