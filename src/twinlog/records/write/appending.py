"""Appends a task's rows to its partitions in the transaction, each once, however often it runs.

A task may run twice: again after a failure, in parallel by speculation, or on an executor that was
considered lost. All runs write with the same producer ID and epoch, and with sequences from 0 in
each partition. So the log decides: a batch is appended at the next sequence or not at all. If the
batch of a run is not acknowledged as newly appended, the run reads the transaction's records in the
log. It then leaves out those of its own rows that it finds there. So the log has the rows of one
run, each once, regardless of which runs wrote them and in which batches.

- If the response is lost, or the leader moves, the repeated batch is acknowledged as a duplicate.
  The run reads the batch in the log, and finds its own rows.
- If the previous run died, this run's first batch is rejected or acknowledged as a duplicate. The
  rows in the log are read, and count as this run's.
- If two runs write at the same time, one of them is rejected at each sequence. The rejected run
  reads the rows of the other run, and continues after them.
- If the broker has closed the transaction (after a time-out, or for a newer run), the epoch is
  rejected.

A broker acknowledges a repeated range of sequences as if it had appended the batch, whatever the
batch's content. Such a response has an append time, which the response for a new batch of a
CreateTime topic does not have. With LogAppendTime every response has an append time, so every batch
is read once.

Rows in the log that this run never has (`PARTITION_SHARED`) come from another task, or from a run
that had other rows. The transaction must then not be committed. Rows are equal if their bytes and
timestamps are equal. A packed batch is appended as it is, unless its rows must be compared.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.transactions import Transactions
from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.logs.raw_log import Appended, append_batches, fetch_partition
from twinlog.errors import BrokerRefused, ClusterError, TwinlogError, or_raise
from twinlog.model import TopicPartition
from twinlog.records.write.packing import Gatherer, PackedBatch
from twinlog.wire.error_codes import (
    DUPLICATE_SEQUENCE_NUMBER,
    MESSAGE_TOO_LARGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.shapes import Table
from twinlog.wire.record_batch import (
    BatchHeader,
    Codec,
    read_headers,
    rewrite_header,
    verify_crc,
)
from twinlog.wire.records import Part, Rows, decode_rows, encode_rows

ROUND_BYTES: Final = 8 << 20
"""Maximum bytes of batches in flight, one per partition, all of which may be sent to one broker."""
FETCH_BYTES: Final = 4 << 20
SMALL_BYTES: Final = 16 << 10
SMALL_SHARE: Final = 0.25
"""A packed batch is joined with others if it is smaller than SMALL_BYTES and than this share of the
maximum batch size.
"""
OUT_OF_STEP: Final = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER})


_Queue = list[Rows | PackedBatch]
"""Remaining rows of a partition, one entry per batch."""


@dataclass(slots=True)
class _PartitionLog:
    """The rows of this run in one partition, and what is known about the partition's log."""

    row_count: int = 0
    """Number of rows of this run, written or not."""
    next_sequence: int = 0
    position: int = -1
    """Offset at which reading the partition's log resumes, or -1 if nothing was read yet."""
    has_own_times: bool = True
    rows_of_others: Counter[bytes] = field(default_factory=Counter)
    """Rows in the log that another run of the task wrote, and that this run has not reached yet."""


class Appender:
    """Appends the rows of one run of a task: call `add`, and at the end `finish`."""

    def __init__(
        self, client: ClusterClient, transactions: Transactions, codec: Codec, max_bytes: int
    ) -> None:
        self._client, self._transactions = client, transactions
        self._codec, self._max_bytes = codec, max_bytes
        self._small_bytes = min(SMALL_BYTES, SMALL_SHARE * max_bytes)
        self._logs: dict[TopicPartition, _PartitionLog] = {}
        self._gatherer = Gatherer(max_bytes)

    def add(self, tp: TopicPartition, rows: Rows | PackedBatch) -> None:
        """Append rows to a partition, after all rows added before. Raises TwinlogError."""
        self._logs.setdefault(tp, _PartitionLog()).row_count += len(rows)
        if isinstance(rows, PackedBatch):
            if self._is_appendable(rows):
                waiting = self._gatherer.pop(tp).get(tp, [])
                self._flush({tp: [*waiting, rows]})
                return
            rows = rows.rows()
        self._flush(self._gatherer.add(tp, rows))

    def finish(self) -> dict[TopicPartition, int]:
        """Write the remaining rows. Return the row count of each partition. Raises TwinlogError."""
        self._flush(self._gatherer.pop_all())
        for tp, log in self._logs.items():
            if log.rows_of_others:
                raise written_twice_error(
                    f"this task wrote {log.row_count} rows to {tp}, which also has "
                    f"{log.rows_of_others.total()} rows that the task does not have"
                )
        return {tp: log.row_count for tp, log in self._logs.items()}

    def _is_appendable(self, batch: PackedBatch) -> bool:
        """Return True if the batch can be appended unchanged, because it has the same codec, and is
        neither too small nor too large.
        """
        size = len(batch.data)
        fits = size <= self._max_bytes or len(batch) == 1
        return batch.codec is self._codec and fits and size >= self._small_bytes

    def _flush(self, cuts: Mapping[TopicPartition, Sequence[Rows | PackedBatch]]) -> None:
        self._transactions.add_partitions([tp for tp in cuts if not self._logs[tp].next_sequence])
        queues = {tp: list(cut) for tp, cut in cuts.items()}
        while queues:
            self._append_batches(queues)

    def _append_batches(self, queues: dict[TopicPartition, _Queue]) -> None:
        """Append the next batch of each queue, up to ROUND_BYTES, and remove finished queues."""
        batches: dict[TopicPartition, bytearray] = {}
        size = 0
        for tp, queue in list(queues.items()):
            while queue:
                queue[0] = self._rows_to_write(self._logs[tp], queue[0])
                if queue[0]:
                    break
                del queue[0]
            if not queue:
                del queues[tp]
            elif size < ROUND_BYTES:
                batches[tp] = self._encode_rows(self._logs[tp], queue[0])
                size += len(batches[tp])
        if not batches:
            return
        answers = append_batches(
            self._client, batches, transactional_id=self._transactions.transactional_id
        )
        for tp, answer in answers.items():
            self._take_answer(tp, answer, queues[tp])

    def _take_answer(
        self, tp: TopicPartition, answer: Appended | TwinlogError, queue: _Queue
    ) -> None:
        log = self._logs[tp]
        if isinstance(answer, Appended) and answer.is_new:
            log.next_sequence += len(queue.pop(0))
            return
        if isinstance(answer, Appended):
            if not self._read(tp, log):
                raise written_twice_error(
                    f"{tp} lacks sequence {log.next_sequence}, which its leader acknowledged"
                )
            return
        number = answer.kafka_error if isinstance(answer, BrokerRefused) else 0
        if number in OUT_OF_STEP and self._read(tp, log):
            return
        if number == MESSAGE_TOO_LARGE and len(queue[0]) > 1:
            rows, middle = _rows(queue[0]), len(queue[0]) // 2
            queue[:1] = [rows.slice(0, middle), rows.slice(middle, len(rows))]
            return
        raise self._transactions.error_of(answer)

    def _encode_rows(self, log: _PartitionLog, rows: Rows | PackedBatch) -> bytearray:
        if isinstance(rows, PackedBatch):
            batch = rows.data
        else:
            batch = encode_rows(rows, codec=self._codec).data
        identity = self._transactions.identity
        rewrite_header(
            memoryview(batch),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=log.next_sequence,
            is_transactional=True,
        )
        return batch

    # -- rows that are already in the log

    def _rows_to_write(self, log: _PartitionLog, rows: Rows | PackedBatch) -> Rows | PackedBatch:
        """Return the rows that the log does not have yet."""
        if not log.rows_of_others:
            return rows
        parts: list[Part] = []
        for table, picked in _rows(rows).parts:
            parts.append((table, array("q", (row for row in picked if not _take(log, table, row)))))
        return Rows(parts)

    def _read(self, tp: TopicPartition, log: _PartitionLog) -> bool:
        """Read this transaction's records in the log from the next sequence on. Return True if
        there are any.
        """
        identity = self._transactions.identity
        producers = or_raise(describe_producers(self._client, [tp])[tp])
        state = producers.get(identity.producer_id)
        if state is None or state.producer_epoch != identity.producer_epoch:
            return False
        if state.current_transaction_start_offset < 0 or state.last_sequence < log.next_sequence:
            return False
        if log.position < 0:
            log.position = state.current_transaction_start_offset
        failures, deadline = 0, self._client.deadline()
        while log.next_sequence <= state.last_sequence:
            before = log.position
            self._fetch(tp, log)
            failures = failures + 1 if log.position == before else 0
            # pause, because records that are not replicated yet are not returned to readers
            if failures and not self._client.patience.pause(failures, deadline):
                raise ClusterError(
                    f"cluster {self._client.alias}: {tp}: records appended at offset {before} "
                    "cannot be read: check the replicas of the partition",
                    code="TIMED_OUT",
                )
        return True

    def _fetch(self, tp: TopicPartition, log: _PartitionLog) -> None:
        answer = fetch_partition(self._client, tp, log.position, FETCH_BYTES)
        for header, start in read_headers(answer.records):
            if header.next_offset <= log.position:
                continue
            if self._is_ours(header, log):
                verify_crc(answer.records, start, header)
                batch = answer.records[start : start + header.length]
                log.has_own_times &= not header.is_log_append_time
                for table, picked in decode_rows(batch).parts:
                    log.rows_of_others.update(_digest(log, table, row) for row in picked)
                log.next_sequence = header.base_sequence + header.count
            log.position = header.next_offset

    def _is_ours(self, header: BatchHeader, log: _PartitionLog) -> bool:
        identity = self._transactions.identity
        return (
            header.producer_id == identity.producer_id
            and header.producer_epoch == identity.producer_epoch
            and not header.is_control
            and header.base_sequence >= log.next_sequence
        )


def _rows(batch: Rows | PackedBatch) -> Rows:
    return batch.rows() if isinstance(batch, PackedBatch) else batch


def _take(log: _PartitionLog, table: Table, row: int) -> bool:
    """Return True if another run has written this row to the log, and remove it from
    `log.rows_of_others`. Otherwise return False.
    """
    if not log.rows_of_others:
        return False
    digest = _digest(log, table, row)
    left = log.rows_of_others[digest]
    if left > 1:
        log.rows_of_others[digest] = left - 1
    elif left:
        del log.rows_of_others[digest]
    return left > 0


def _digest(log: _PartitionLog, table: Table, row: int) -> bytes:
    cells, stride = table.cells, table.stride
    data = table.data[cells[shapes.REST * stride + row] : cells[shapes.END * stride + row]]
    time = cells[shapes.TIMESTAMP * stride + row] if log.has_own_times else 0
    return hashlib.blake2b(data, digest_size=16, salt=time.to_bytes(8, "big")).digest()


def written_twice_error(what: str) -> ClusterError:
    """Return the error for a partition that two tasks wrote, or that one task wrote in two ways."""
    return ClusterError(
        f'format("twinlog"), writing: {what}. Nothing was committed. If two tasks write this '
        "partition, give each partition to one task with partitioned(df, options). If a task ran "
        "twice with different rows, write its input to a table first, and read that table",
        code="PARTITION_SHARED",
    )
