"""Runs a writer of micro-batches without Spark: tasks, commits, and a note of each commit as Spark
writes it.

    python -m tests.support.write_loop BOOTSTRAP TOPIC QUERY NOTES BATCHES [MOMENT WHERE]

NOTES is a file with the last micro-batch that was noted as committed. The next process continues
after it, as Spark does. WHERE names a function (`module:name`). The process is killed (SIGKILL)
before or after the third call of WHERE, depending on MOMENT (`before` or `behind`).
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa

from twinlog.cluster.client import ClusterClient
from twinlog.records.write import transaction
from twinlog.records.write.appending import Appender
from twinlog.records.write.options import WriteOptions, parse_write_options
from twinlog.records.write.packing import UNTIMED_MS, Gatherer, packed
from twinlog.records.write.rows import RowPartitioner, counter
from twinlog.records.write.transaction import BegunTransaction, TaskResult, transactions
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec

__all__ = ["ROWS", "Loop", "as_batch", "options_for", "run_batch", "run_task"]

ROWS: Final = 60
"""Number of rows in a micro-batch."""
TASKS: Final = 2
FEW_BYTES: Final = 85
"""Maximum bytes of a batch. They suffice for two or three rows."""


def options_for(bootstrap: str, topic: str, query: str, **more: str) -> WriteOptions:
    """Return the options of a stream. `query`: the ID that Spark would give the query."""
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "writeId": query}
    return parse_write_options({**given, **more}, is_stream=False)


def as_batch(values: Sequence[int], partition: int, *, is_packed: bool = False) -> pa.RecordBatch:
    """Return rows of one partition as Arrow columns, or as `partitioned` packs them."""
    columns = {
        "value": pa.array([str(one) for one in values], pa.string()),
        "partition": pa.array([partition] * len(values), pa.int32()),
    }
    if not is_packed:
        return pa.record_batch(columns)
    partitioner = RowPartitioner("packed", lambda _: partition + 1, now_ms=UNTIMED_MS, turn=0)
    gatherer, cuts = Gatherer(FEW_BYTES), {}
    for tp, rows in partitioner.rows_by_partition(columns, len(values)):
        cuts = gatherer.add(tp, rows) or gatherer.pop_all()
    return packed(cuts, Codec.NONE, pa.binary())


def run_task(
    options: WriteOptions,
    begun: BegunTransaction,
    batches: Sequence[pa.RecordBatch],
    between: Callable[[], object] = lambda: None,
) -> TaskResult:
    """Run a task. `between` is called after each batch, when the batch is in the log."""
    with ClusterClient(options.cluster()) as client:
        joined = transactions(client, options, options.write_id, begun.identity)
        partitioner = RowPartitioner(options.topic, counter(client), now_ms=begun.now_ms, turn=0)
        appender = Appender(client, joined, options.codec, FEW_BYTES)
        for batch in batches:
            for tp, rows in partitioner.by_partition(batch):
                appender.add(tp, rows)
            between()
        return TaskResult(
            identity=begun.identity,
            query=options.write_id,
            rows=appender.finish(),
            oldest_ms=partitioner.oldest_ms,
            placed_among=begun.placed_among,
        )


def run_batch(options: WriteOptions, number: int, *, is_packed: bool = False) -> None:
    """Run a whole micro-batch. The values of its rows are `ROWS` consecutive numbers. Each task
    writes to its own partition.
    """
    begun = transaction.begin(options)
    values = range(number * ROWS, (number + 1) * ROWS)
    rows = [as_batch(values[task::TASKS], task, is_packed=is_packed) for task in range(TASKS)]
    written = [run_task(options, begun, [one]) for one in rows]
    transaction.commit(options, written, number)


def _dying(real: Callable[..., Any], moment: str) -> Callable[..., Any]:
    calls: Iterator[int] = itertools.count(1)

    def call(*arguments: Any, **named: Any) -> Any:
        is_last = next(calls) == 3
        if moment == "behind":
            answer = real(*arguments, **named)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer if moment == "behind" else real(*arguments, **named)

    return call


class Loop:
    """Runs micro-batches in processes that are killed. Each process begins after the last
    micro-batch that was recorded as committed.
    """

    def __init__(self, cluster: LocalCluster, topic: str, folder: Path, batches: int) -> None:
        self.batches = batches
        """Number of micro-batches to write. It may be increased between two processes."""
        self._notes = folder / "notes"
        self._notes.write_text("-1")
        query = f"query-{uuid.uuid4()}"
        self.options = options_for(cluster.bootstrap, topic, query)
        self._arguments = [cluster.bootstrap, topic, query, str(self._notes)]

    def start(self, *death: str) -> subprocess.Popen[bytes]:
        given = [*self._arguments, str(self.batches), *death]
        return subprocess.Popen([sys.executable, "-m", __name__, *given])

    def noted(self) -> int:
        """Return the number of the last micro-batch that was recorded as committed, or -1 if there
        is none.
        """
        return int(self._notes.read_text() or "-1")

    def finish(self) -> None:
        assert self.start().wait() == 0


def main(bootstrap: str, topic: str, query: str, notes: str, batches: str, *death: str) -> None:
    options, file = options_for(bootstrap, topic, query), Path(notes)
    if death:
        moment, where = death
        module, _, path = where.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for one in outer:
            owner = getattr(owner, one)
        patch.object(owner, name, _dying(getattr(owner, name), moment)).start()
    for number in range(int(file.read_text()) + 1, int(batches)):
        run_batch(options, number)
        new = file.with_suffix(".new")
        new.write_text(str(number))
        new.replace(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
