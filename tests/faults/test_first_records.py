"""If the source deletes records before the first one was copied, the flow reports the range of the
deleted records.
"""

from __future__ import annotations

import pytest

from tests.support.map_rows import rows
from tests.support.rig import Rig
from tests.support.topics import delete_records

pytestmark = [pytest.mark.faults, pytest.mark.broker]


@pytest.mark.witness("records deleted before the first copied one are reported", case="earliest")
@pytest.mark.parametrize("start", ["earliest", "latest", "timestamp"])
def test_deleted_between_the_first_row_and_the_first_record(rig: Rig, start: str) -> None:
    """The first map row has fixed the start, and then the source's retention deletes records after
    this start, before any record is copied. The run stops with SOURCE_TRUNCATED. With
    `twinlog.source.loss = accept`, the copy begins after the deleted records.
    """
    keys = {f"{rig.flow}.twinlog.start": start}
    rig.create()
    rig.put(range(5))
    if start == "earliest":
        delete_records(rig.source, rig.topic)
    if start == "timestamp":
        keys = {f"{rig.flow}.twinlog.start": str(rig.record(4).timestamp + 1)}
    # there is nothing to copy, so this run only writes the row that fixes the start
    rig.copy_once(keys)
    assert [run for row in rows(rig) for run in row.runs] == [(0, 5, 0)]
    rig.put(range(5, 50))
    delete_records(rig.source, rig.topic, before=30)

    code, message = rig.fail_once(keys)
    assert code == "SOURCE_TRUNCATED"
    assert f"{rig.topic}-0: the source deleted upstream offsets [5, 30)" in message
    assert rig.numbers() == []

    rig.copy_once(keys | {"twinlog.source.loss": "accept"})
    assert rig.numbers() == list(range(30, 50))
    rig.offsets_are_exact()
    rig.copy_once(keys)  # the start that the first row fixed is still used


def test_earliest_begins_at_the_log_start_of_the_first_survey(rig: Rig) -> None:
    """The source deleted records before the flow's first start. They are not reported as a loss,
    and the copy begins with the first record that is left.
    """
    rig.create()
    rig.put(range(50))
    delete_records(rig.source, rig.topic, before=30)
    rig.copy_once()
    assert rig.numbers() == list(range(30, 50))
