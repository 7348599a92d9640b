"""One record as values, without its batch."""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import NamedTuple

from crc32c import crc32c

Headers = tuple[tuple[str, bytes | None], ...]

_TIMESTAMP_AND_KEY = struct.Struct(">qi")
_VALUE = struct.Struct(">i")
_NULL = -1


class Record(NamedTuple):
    """A record as a consumer sees it. It is a tuple because the deep path creates one per record.

    `timestamp` is the effective one in milliseconds: the broker's if the topic uses LogAppendTime.
    Header keys are UTF-8. Bytes that are not become lone surrogates, and encoding restores them
    (PEP 383), so that a copied record is unchanged.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(StrEnum):
    """The outcome of a transaction, as its marker states it."""

    ABORT = "abort"
    COMMIT = "commit"
    OTHER = "other"


def fingerprint(record: Record) -> int:
    """Return a CRC32C over timestamp, key and value.

    Their lengths are included. So null differs from empty, and bytes at the end of the key differ
    from the same bytes at the beginning of the value.
    """
    key, value = record.key, record.value
    crc = crc32c(
        _TIMESTAMP_AND_KEY.pack(record.timestamp, _NULL if key is None else len(key)) + (key or b"")
    )
    return crc32c((_VALUE.pack(_NULL if value is None else len(value))) + (value or b""), crc)
