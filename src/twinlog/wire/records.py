"""The deep path's door: record batches of every format to records, and records to batches."""

from __future__ import annotations

from twinlog.wire.decoding import control_type, decode_batch, first_record
from twinlog.wire.encoding import TimestampType, encode_batch, encode_sized
from twinlog.wire.legacy import decode_legacy
from twinlog.wire.record import ControlType, Headers, Record, fingerprint

__all__ = [
    "ControlType",
    "Headers",
    "Record",
    "TimestampType",
    "control_type",
    "decode_batch",
    "decode_legacy",
    "encode_batch",
    "encode_sized",
    "fingerprint",
    "first_record",
]
