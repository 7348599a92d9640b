"""A lane's answer is converted to a row that Spark's last stage returns, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure
from twinlog.records.lent import RangePart, answer_of, row_of

PART = RangePart(
    port="lane:1",
    number=7,
    topic="orders",
    partition=0,
    first=3,
    end=9,
    failure=RangeFailure(offset=9, text="why"),
)


@pytest.mark.parametrize("batches", [(), (b"",), (b"one", b"two" * 1000)])
def test_an_answer_passes_through_a_row(batches: tuple[bytes, ...]) -> None:
    answer = RangeAnswer(
        number=7, batches=batches, offsets=b"12345678", end=9, failure=PART.failure
    )
    row = row_of(answer, has_batches=True)
    row.validate(full=True)
    assert row.schema.field("batches").type == pa.list_(pa.binary())
    (found,) = row.to_pylist()
    assert answer_of(PART, found) == answer
    (found,) = row_of(answer, has_batches=False).to_pylist()
    assert found == {"number": 7, "batches": [], "offsets": b"12345678"}
