"""The first and the last stage of a transform's plan. Their Spark tasks get the ranges of records
that lanes offer, and compute the answers to the lanes.

    take a range from the lane's port, decode | the user's transform | encode -> driver, lane's port

Both stages run in the same task, in different Python workers. They find their ranges in a local
property of the job, by the number of their task. So one plan serves all jobs with the same number
of tasks, and its code depends on no single range.

The last stage does not answer the lane itself. If an earlier stage fails, Spark closes the input of
the last stage. An Arrow stream that ends between two batches then looks complete, as if a filter
had dropped the remaining rows. So the last stage returns what it has encoded, and the driver
answers after the job has succeeded.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Final

import pyarrow as pa
from msgspec import json, structs
from pyspark import TaskContext

from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lending import LendingClient
from twinlog.errors import ClusterError, CorruptData, EnvironmentMissing, TwinlogError
from twinlog.mirror.copy.ranges import RangeAnswer, RangeBounds, RangeFailure
from twinlog.records.connections import task_begins
from twinlog.records.decoding import binary_array, number_array
from twinlog.records.ranges import TURN_WITHIN_S, RangeEncoder, rows_of_range, turn_of
from twinlog.wire.compression import DECOMPRESSED_LIMIT_BYTES
from twinlog.wire.record_batch import Codec

PARTS_PROPERTY: Final = "twinlog.transforms.parts"
"""Name of the local property with the parts of ranges (`RangePart`) that each task transforms."""
ENCODED: Final = "number bigint, batches array<binary>, offsets binary"
"""The columns that the last stage returns, with one row for each range: fields of `RangeAnswer`."""
SCRATCH: Final = "SPARK_LOCAL_DIRS"
"""Spark's environment variable with its scratch folders. All workers of an application have the
same folders, and no other application has these folders.
"""
NOT_UNPACKED: Final = (
    "its batch is damaged, or unpacks to more than an eighth of twinlog.transforms.memory.bytes"
)
"""Prefix of the reason if a batch cannot be decompressed. No function has seen its records, so
`on-error` does not apply.
"""
MOST_KEPT: Final = 8

Batches = Iterator[pa.RecordBatch]


class RangePart(RangeBounds, frozen=True, kw_only=True):
    """The part of a lane's range of records that one task transforms."""

    port: str
    """Name of the lane that has the range (`name_of`)."""
    size: int = 0
    """Bytes of the whole range."""
    left_out: tuple[int, ...] = ()
    """Offsets of records that are not passed to the transform."""
    answers: bool = True
    """False for a trial, which only searches for a failing record. Its result is not sent to the
    lane.
    """
    failure: RangeFailure | None = None
    """The failure at the offset at which the part ends, or None."""
    quarantined: tuple[RangeFailure, ...] = ()
    """Records that are left out because they go to the dead-letter topic, with their failures."""
    is_cut: bool = False
    """True if the range has later records, which are not transformed in this job."""


def _marked(
    stage: Callable[[LentRanges, Batches], Batches],
) -> Callable[[LentRanges, Batches], Batches]:
    """Decorate a stage: append the mark of the LentRanges to the messages of the stage's errors."""

    @wraps(stage)
    def marked(lent: LentRanges, batches: Batches) -> Batches:
        try:
            yield from stage(lent, batches)
        except TwinlogError as error:
            raise error.with_addition(lent.mark) from None

    return marked


@dataclass(frozen=True, slots=True, kw_only=True)
class LentRanges:
    """The parameters that both stages share, and the stages as methods."""

    ports: tuple[ChannelAddress, ...]
    codec: Codec
    max_bytes: int
    payload_bytes: int = DECOMPRESSED_LIMIT_BYTES
    """Maximum uncompressed bytes of a source batch."""
    mark: str = field(default_factory=partial(secrets.token_hex, 8))
    """Random text at the end of the messages of both stages' errors. The text of a function's error
    or of a record does not contain it, so neither can imitate such an error.
    """

    @_marked
    def rows(self, batches: Batches) -> Batches:
        """Request the records of the task's ranges from the lanes that have them, and yield them as
        rows.
        """
        task_begins()
        for _ in batches:  # Spark does not reuse a worker that has not read its input
            pass
        turn = turn_of(os.environ.get(SCRATCH, "").partition(",")[0])
        turn.left_s = TURN_WITHIN_S
        for part in own_parts():
            with self._connected(part) as port:
                taken = port.request_range(part.number)
            if taken is None:
                continue  # the lane no longer waits for this range, so it ignores the empty answer
            wanted = structs.replace(taken, first=part.first, end=part.end)
            del taken
            try:
                yield from rows_of_range(
                    wanted, part.left_out, limit_bytes=self.payload_bytes, turn=turn
                )
            except (CorruptData, MemoryError) as error:
                what = getattr(error, "message", "") or "there is not enough memory"
                raise ClusterError(f"{NOT_UNPACKED}: {what}", code="ROW_INVALID") from error

    @_marked
    def encoded(self, batches: Batches) -> Batches:
        """Encode the rows that the transform returns. Yield one row with the `RangeAnswer` of each
        range.
        """
        task_begins()
        parts = own_parts()
        encoder = RangeEncoder(
            parts,
            codec=self.codec,
            max_bytes=self.max_bytes,
            now_ms=time.time_ns() // 1_000_000,
        )
        for rows in batches:
            encoder.add(rows)
        for part, answer in zip(parts, encoder.answers(), strict=True):
            yield row_of(answer, has_batches=part.answers)

    def send_answers(self, parts: Sequence[RangePart], encoded: pa.Table) -> None:
        """Send the transformed records of a job that has succeeded to their lanes, in the order of
        `parts`. If a lane is unreachable, raises TwinlogError after all other lanes have got their
        records.
        """
        unreachable: TwinlogError | None = None
        for part, row in zip(parts, encoded.to_pylist(), strict=True):
            try:
                if part.answers:
                    with self._connected(part) as port:
                        port.send_answer(answer_of(part, row))
            except TwinlogError as error:
                unreachable = error
        if unreachable is not None:
            raise unreachable

    def _connected(self, part: RangePart) -> AbstractContextManager[LendingClient]:
        """Connect to the lane of a part. Never connects to another lane, whose range with the same
        number would be a different one.
        """
        for address in self.ports:
            if name_of(address) == part.port:
                return _connection(address)
        raise TwinlogError(f"no lane has the address {part.port}", code="CHANNEL_UNREACHABLE")


def name_of(address: ChannelAddress) -> str:
    """Return the name of a lane: host and port, and a digest of its secret (`token`), because a
    later lane may have the same port.
    """
    ticket = hashlib.sha256(address.token.encode()).hexdigest()[:16]
    return f"{address.host}:{address.port}/{ticket}"


def row_of(answer: RangeAnswer, *, has_batches: bool) -> pa.RecordBatch:
    """Return a RangeAnswer as the row that the last stage returns, with or without its batches."""
    batches = answer.batches if has_batches else ()
    bounds = number_array(array("i", [0, len(batches)]), pa.int32())
    columns = [
        number_array(array("q", [answer.number]), pa.int64()),
        pa.ListArray.from_arrays(bounds, binary_array(batches)),
        binary_array([answer.offsets]),
    ]
    return pa.RecordBatch.from_arrays(columns, ["number", "batches", "offsets"])


def answer_of(part: RangePart, row: Mapping[str, Any]) -> RangeAnswer:
    """Return the RangeAnswer in a row of the last stage. Raises TwinlogError for another range's
    row.
    """
    if row["number"] != part.number:
        numbers = f"{row['number']}, expected range {part.number}"
        raise TwinlogError(f"Spark returned the result of range {numbers}")
    return RangeAnswer(
        number=part.number,
        batches=tuple(row["batches"]),
        offsets=row["offsets"],
        end=part.end,
        failure=part.failure,
        quarantined=part.quarantined,
        is_part=part.is_cut and part.failure is None,
    )


def own_parts() -> list[RangePart]:
    context = TaskContext.get()
    parts = None if context is None else context.getLocalProperty(PARTS_PROPERTY)
    if context is None or parts is None:
        what = f"this version of Spark does not pass the property {PARTS_PROPERTY} to tasks"
        raise EnvironmentMissing(what)
    return json.decode(parts, type=list[list[RangePart]])[context.partitionId()]


def encode_parts(tasks: Sequence[Sequence[RangePart]]) -> str:
    """Return the value of the local property PARTS_PROPERTY for a job. `tasks`: the parts that each
    task transforms.
    """
    return json.encode(tasks).decode()


_kept: dict[ChannelAddress, LendingClient] = {}
"""Idle connections of this process, for later use."""


@contextmanager
def _connection(address: ChannelAddress) -> Iterator[LendingClient]:
    """Yield a connection to a lane's port. Raises TwinlogError."""
    client = _kept.pop(address, None) or LendingClient(address)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _kept[address] = client
    while len(_kept) > MOST_KEPT:
        with suppress(KeyError):  # another thread may have removed the connection
            _kept.pop(next(iter([*_kept]))).close()
