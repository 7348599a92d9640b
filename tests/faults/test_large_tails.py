"""A start compares the last records newest first, so large records do not use up its limit before
older ones are compared.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import raw
from tests.support.client import eventually
from tests.support.map_rows import rows, write_row
from tests.support.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.broker]

SIZE = 600_000


@pytest.mark.witness("large records do not hide a lost map row")
def test_map_that_lost_a_row_after_large_records(rig: Rig) -> None:
    """The map lost the row that announced the last of thirty large records. The start must find the
    position anyway, so that no record is lost or duplicated.
    """
    rig.create()
    for number in range(28):
        rig.put([number], size=SIZE)
    rig.put_at_once([rig.record(28, size=SIZE)], [rig.record(29, size=SIZE)])
    eventually(lambda: rig.source_end() == 31, what="the marker of the transaction")
    for number in (30, 31):
        # after the transaction's marker, so at source offsets 31 and 32
        rig.put([number], size=SIZE)
    rig.copy_once()
    last = rows(rig)[-1]
    assert last.runs[-1].ordinal == 30, last.runs
    write_row(rig, replace(last, runs=last.runs[:-1]))
    rig.put([32])
    rig.copy_once()
    assert rig.numbers() == list(range(33))
    rig.offsets_are_exact()


def test_other_records_after_large_ones(rig: Rig) -> None:
    """After large records, another client wrote a different last record under the flow's producer
    ID, as restoring a backup does. The start must report DIVERGED.
    """
    rig.create()
    for number in range(30):
        rig.put([number], size=SIZE)
    rig.copy_once()
    writer = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
    writer.send([rig.record(1030)], 30).expect_ok()
    rig.put([30, 31])
    code, message = rig.fail_once()
    assert code == "DIVERGED"
    assert "target offsets [30, 31)" in message
