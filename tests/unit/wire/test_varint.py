"""Zigzag varints. Encoder and decoder are compared with the table of their definition, and with
each other.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import CorruptData
from twinlog.wire.primitives import encode_varint, read_varint, read_varlong

KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
KNOWN_LONG = [
    (2**31, "8080808010"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "text"), [*KNOWN, *KNOWN_LONG])
def test_known_bytes(value: int, text: str) -> None:
    raw = bytes.fromhex(text)
    assert encode_varint(value) == raw
    assert read_varlong(b"\xff" + raw + b"\xff", 1) == (value, 1 + len(raw))


@pytest.mark.parametrize(("value", "text"), KNOWN)
def test_known_bytes_of_32_bits(value: int, text: str) -> None:
    assert read_varint(bytes.fromhex(text), 0) == (value, len(text) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip(value: int) -> None:
    raw = encode_varint(value)
    assert read_varlong(raw, 0) == (value, len(raw))


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_prefix_ends_too_early(value: int) -> None:
    raw = encode_varint(value)
    for length in range(len(raw)):
        with pytest.raises(IndexError):
            read_varlong(raw[:length], 0)


def test_endless_integers_are_corrupt() -> None:
    with pytest.raises(CorruptData, match="longer than 5 bytes"):
        read_varint(b"\x80" * 20, 0)
    with pytest.raises(CorruptData, match="longer than 10 bytes"):
        read_varlong(b"\xff" * 20, 0)
