"""Receipts as Arrow rows: the columns are the fields of `Receipt`."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

import pyarrow as pa

from twinlog.lane.messages import Receipt

_HINTS: Final = {
    name: hint
    for name, hint in typing.get_type_hints(Receipt).items()
    if name in {field.name for field in fields(Receipt)}
}
_ARROW_TYPES: Final = {int: pa.int64(), str: pa.string()}
_SPARK_TYPES: Final = {int: "long", str: "string"}

ARROW_SCHEMA: Final = pa.schema([(name, _ARROW_TYPES[hint]) for name, hint in _HINTS.items()])
SPARK_SCHEMA: Final = ", ".join(f"{name} {_SPARK_TYPES[hint]}" for name, hint in _HINTS.items())


def to_arrow(receipts: Iterable[Receipt]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([asdict(each) for each in receipts], schema=ARROW_SCHEMA)


def from_rows(rows: Sequence[Any]) -> tuple[Receipt, ...]:
    """What Spark collected, as receipts again."""
    return tuple(Receipt(**row.asDict()) for row in rows)
