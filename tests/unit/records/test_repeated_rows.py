"""A repeated task keeps a digest of each row that an earlier attempt of the task has written."""

from __future__ import annotations

import tracemalloc

from twinlog.records.write import appending
from twinlog.wire.records import Record, rows_of

ROWS = 30_000


def test_a_row_takes_about_90_bytes_whatever_its_size() -> None:
    """A repeated task keeps a digest of each row that an earlier attempt has written. A digest
    takes about 90 bytes, whatever the row's size, as docs/dataframes.md states.
    """
    log = appending._PartitionLog()
    (table, picked), *_ = rows_of(
        [Record(0, at, None, b"%d" % at * (100 if at % 2 else 1), ()) for at in range(ROWS)]
    ).parts
    tracemalloc.start()
    try:
        log.rows_of_others.update(appending._digest(log, table, row) for row in picked)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(log.rows_of_others) == ROWS
    assert 80 < taken / ROWS < 110
    assert all(appending._take(log, table, row) for row in picked)
    assert not log.rows_of_others
