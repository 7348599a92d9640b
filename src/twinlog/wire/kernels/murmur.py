"""The hash that Kafka's Java producer uses to partition by key."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_INT: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the same hash as `Utils.murmur2` of Kafka's clients, as an unsigned number."""
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & _INT
        part = (part ^ part >> _R) * _M & _INT
        value = value * _M & _INT ^ part
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _INT
    value = (value ^ value >> 13) * _M & _INT
    return value ^ value >> 15
