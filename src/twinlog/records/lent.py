"""Computes answers to ranges in Spark tasks: the first and the last stage of a transform's plan.

    take a range from the lane's port, decode | the user's transform | encode, answer

Both stages run in the same task, one range each, in different Python workers. They find their range
in a local property of the job, by the number of their task. So one plan serves all jobs with the
same number of tasks, and its code has nothing of a single range.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from msgspec import Struct, json, structs
from pyspark import TaskContext

from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lending import LendingClient
from twinlog.errors import EnvironmentMissing, TwinlogError
from twinlog.mirror.copy.ranges import RangeFailure, SourceRange
from twinlog.records.connections import task_begins
from twinlog.records.ranges import RangeEncoder, rows_of_range
from twinlog.wire.record_batch import Codec

PARTS: Final = "twinlog.transforms.parts"
"""The local property with the part of each task."""
DONE: Final = "number bigint"
"""The columns that the last stage returns: a row for each answered range."""
NOT_NEEDED: Final = "RANGE_NOT_NEEDED"
"""The code of the error if the lane has an answer to the range."""
MOST_KEPT: Final = 8


class RangePart(Struct, frozen=True, kw_only=True):
    """The part of a range that one task computes."""

    port: int
    """Index of the lane's address."""
    number: int
    topic: str
    partition: int
    first: int
    end: int
    left_out: tuple[int, ...] = ()
    """Offsets of records that are left out."""
    answers: bool = True
    """False for a trial, whose result is dropped."""
    failure: RangeFailure | None = None
    """The failure at the end of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LentRanges:
    """What the two stages have in common."""

    ports: tuple[ChannelAddress, ...]
    codec: Codec
    max_bytes: int

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the task's range, and yield its rows."""
        task_begins()
        for _ in given:  # Spark does not reuse a worker that has not read its input
            pass
        part = own_part()
        with _connected(self.ports[part.port]) as port:
            taken = port.take(part.number)
        if taken is None:  # an answer without rows would be a wrong one
            raise TwinlogError(f"range {part.number} needs no answer", code=NOT_NEEDED)
        wanted = structs.replace(taken, first=part.first, end=part.end)
        yield from rows_of_range(wanted, part.left_out)

    def answered(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encode the rows that the transform returns, and answer the range."""
        task_begins()
        part = own_part()
        now_ms = time.time_ns() // 1_000_000
        encoder = RangeEncoder(
            _without_batches(part), codec=self.codec, max_bytes=self.max_bytes, now_ms=now_ms
        )
        for rows in given:
            encoder.add(rows)
        if part.answers:
            answer = structs.replace(encoder.answer(), failure=part.failure)
            with _connected(self.ports[part.port]) as port:
                port.give(answer)
        yield pa.RecordBatch.from_arrays([pa.array([part.number], pa.int64())], ["number"])


def own_part() -> RangePart:
    """Return the part of this task."""
    context = TaskContext.get()
    given = None if context is None else context.getLocalProperty(PARTS)
    if context is None or given is None:
        raise EnvironmentMissing(f"Spark does not pass its tasks the property {PARTS}")
    return json.decode(given, type=list[RangePart])[context.partitionId()]


def encode_parts(parts: Sequence[RangePart]) -> str:
    """Return the value of the local property."""
    return json.encode(parts).decode()


def _without_batches(part: RangePart) -> SourceRange:
    return SourceRange(
        number=part.number,
        topic=part.topic,
        partition=part.partition,
        transform="",
        first=part.first,
        end=part.end,
        batches=b"",
    )


_kept: dict[ChannelAddress, LendingClient] = {}
"""Connections of this worker, which later tasks use again."""


@contextmanager
def _connected(address: ChannelAddress) -> Iterator[LendingClient]:
    """Yield a connection to a lane's port. Raises TwinlogError."""
    client = _kept.pop(address, None) or LendingClient(address)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _kept[address] = client
    while len(_kept) > MOST_KEPT:
        _kept.pop(next(iter(_kept))).close()
