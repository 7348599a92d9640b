"""Public interface of the deep path: record batches of every format to records, and back."""

from __future__ import annotations

from twinlog.wire.decoding import control_type, decode_batch, decode_rows, first_record
from twinlog.wire.encoding import Encoded, TimestampType, encode_batch, encode_rows, encode_sized
from twinlog.wire.legacy import decode_legacy
from twinlog.wire.record import ControlType, Headers, Record, fingerprint
from twinlog.wire.rows import Rows, rows_of

__all__ = [
    "ControlType",
    "Encoded",
    "Headers",
    "Record",
    "Rows",
    "TimestampType",
    "control_type",
    "decode_batch",
    "decode_legacy",
    "decode_rows",
    "encode_batch",
    "encode_rows",
    "encode_sized",
    "fingerprint",
    "first_record",
    "rows_of",
]
