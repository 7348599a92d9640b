"""The offset map has lost many of its newest rows, and no process that remembers them runs. The
copy resumes exactly.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.client import read_all
from tests.support.map_rows import right_offset, rows, transactions, translated, write_row
from tests.support.rig import Rig
from tests.support.topics import delete_records

pytestmark = [pytest.mark.faults, pytest.mark.broker]


def lose_runs(rig: Rig) -> None:
    """Copy forty transactions of ten records each. Then remove all but the first five runs from the
    map.
    """
    rig.create()
    for at in range(0, 400, 10):
        rig.put_at_once([rig.record(n) for n in range(at, at + 10)])
    rig.copy_once()
    last = rows(rig)[-1]
    assert len(last.runs) == 41, last
    write_row(rig, replace(last, runs=last.runs[:5]))


def test_runs_before_the_last_records_are_found_again(rig: Rig) -> None:
    lose_runs(rig)
    rig.put(range(400, 410))
    rig.copy_once()
    assert rig.numbers() == list(range(410))
    rig.same()
    rig.offsets_are_exact()
    for upstream in range(0, 440, 7):
        found = translated(rig, upstream)
        assert (found.offset, found.is_exact) == (right_offset(rig, upstream), True), upstream


def test_runs_before_the_last_records_where_the_source_has_deleted_some(rig: Rig) -> None:
    lose_runs(rig)
    begin = 11 * 15 + 4
    delete_records(rig.source, rig.topic, before=begin)
    transactions(rig, range(400, 405))
    rig.copy_once()
    assert rig.numbers() == list(range(405))
    rig.offsets_are_exact()
    at = {r.value: r.offset for r in read_all(rig.source, rig.topic)}
    copied = [(at.get(r.value, -1), r.offset) for r in read_all(rig.target, rig.remote)]
    for upstream in range(begin, 440, 7):
        right = next(offset for source, offset in copied if source >= upstream)
        assert translated(rig, upstream).offset == right, upstream
