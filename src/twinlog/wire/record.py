"""One record as values, without the batch it came in."""

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
    """What a consumer sees of a record; a tuple, because the deep path makes one for each.

    `timestamp` is the effective one, in milliseconds: the broker's if the topic says LogAppendTime.
    Header keys are UTF-8; bytes that are not become lone surrogates and back again (PEP 383), so
    that nothing of a copied record changes.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(StrEnum):
    """What a control batch says about its producer's transaction."""

    ABORT = "abort"
    COMMIT = "commit"
    OTHER = "other"


def fingerprint(record: Record) -> int:
    """CRC32C over timestamp, key and value; null and empty differ, and so do shifted borders."""
    key, value = record.key, record.value
    crc = crc32c(
        _TIMESTAMP_AND_KEY.pack(record.timestamp, _NULL if key is None else len(key)) + (key or b"")
    )
    return crc32c((_VALUE.pack(_NULL if value is None else len(value))) + (value or b""), crc)
