"""The rows of the state topic that list the partitions with rows in the offset map."""

from __future__ import annotations

import pytest

from twinlog.mirror.state.copies import (
    is_known,
    losing_map,
    mapped_copies,
    noting_rows,
)
from twinlog.mirror.state.state_row import encode_row
from twinlog.model import NO_TOPIC_ID, TopicId

ORDERS, AUDIT = TopicId("a" * 32), TopicId("b" * 32)
COPY, ANOTHER = TopicId("c" * 32), TopicId("d" * 32)


def test_partitions_that_are_noted_had_a_row() -> None:
    known = mapped_copies("A->B", [noting_rows("A->B", (ORDERS, COPY), {0, 1})])
    found = [known.has_row(ORDERS, COPY, partition) for partition in range(3)]
    assert found == [True, True, False]


@pytest.mark.parametrize("some", [{1, 2}, {0, 3}, {0, 1, 5, 6}, {7}])
def test_one_without_a_row_takes_no_other_along(some: set[int]) -> None:
    """A partition has no map row, perhaps because it has had no leader since the topic was created.
    The state topic's rows must still name the other partitions, which have map rows.
    """
    known = mapped_copies("A->B", [noting_rows("A->B", (ORDERS, COPY), some)])
    assert {one for one in range(10) if known.has_row(ORDERS, COPY, one)} == some


def test_records_of_earlier_releases_count_from_the_first_partition_on() -> None:
    row = encode_row(["flow", "A->B", "mapped", ORDERS, COPY], {"partitions": 2})
    assert mapped_copies("A->B", [row]).partitions == {(ORDERS, COPY): {0, 1}}


@pytest.mark.parametrize(("source", "target"), [(AUDIT, COPY), (ORDERS, ANOTHER)])
def test_a_recreated_topic_is_another_copy(source: TopicId, target: TopicId) -> None:
    rows = [noting_rows("A->B", (ORDERS, COPY), {0}), noting_rows("A->B", (source, target), {1})]
    known = mapped_copies("A->B", rows)
    assert not known.has_row(source, target, 0)
    assert known.has_row(ORDERS, COPY, 0), "and takes nothing from the first one"


def test_all_records_count_together_and_each_flow_has_its_own() -> None:
    """A process that has lost the lead without noticing writes an older row, with fewer partitions.
    Readers combine all rows of a flow, so a partition of a newer row is not lost. Rows of other
    flows are ignored.
    """
    rows = [
        noting_rows("A->B", (ORDERS, COPY), {0, 4}),
        noting_rows("C->B", (ORDERS, COPY), range(9)),
        noting_rows("A->B", (ORDERS, COPY), {0, 1, 2, 4}),
        noting_rows("A->B", (ORDERS, COPY), {0, 1}),
    ]
    assert mapped_copies("A->B", rows).partitions == {(ORDERS, COPY): {0, 1, 2, 4}}


def test_all_partitions_of_a_topic_that_lost_its_map_had_a_row() -> None:
    rows = [
        losing_map("A->B", 3, [AUDIT]),
        losing_map("A->B", 4, [COPY]),
        losing_map("X->Y", 1, [ANOTHER]),
    ]
    known = mapped_copies("A->B", rows)
    assert known.lost == {AUDIT, COPY}
    assert known.has_row(ORDERS, COPY, 17)
    assert not known.has_row(ORDERS, ANOTHER, 17)


def test_without_topic_ids_copies_cannot_be_distinguished() -> None:
    assert is_known(ORDERS, COPY)
    assert not is_known(NO_TOPIC_ID, COPY)
