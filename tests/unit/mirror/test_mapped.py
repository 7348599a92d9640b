"""What the state topic knows of rows in the offset map."""

from __future__ import annotations

import pytest

from twinlog.mirror.state.generations import losing_map
from twinlog.mirror.state.mapped import is_known, is_mapped_row, mapped_copies, noting_rows
from twinlog.model import NO_TOPIC_ID, TopicId

ORDERS, AUDIT = TopicId("a" * 32), TopicId("b" * 32)
COPY, ANOTHER = TopicId("c" * 32), TopicId("d" * 32)


def test_partitions_below_the_noted_number_had_a_row() -> None:
    known = mapped_copies("A->B", [noting_rows("A->B", ORDERS, COPY, 2)])
    found = [known.has_row(ORDERS, COPY, partition) for partition in range(3)]
    assert found == [True, True, False]


@pytest.mark.parametrize(("source", "target"), [(AUDIT, COPY), (ORDERS, ANOTHER)])
def test_a_topic_that_was_made_anew_is_another_copy(source: TopicId, target: TopicId) -> None:
    known = mapped_copies("A->B", [noting_rows("A->B", ORDERS, COPY, 2)])
    assert not known.has_row(source, target, 0)


def test_the_greatest_number_counts_and_each_flow_has_its_own() -> None:
    """A leader that has lost its lead without knowing it says an earlier number."""
    rows = [
        noting_rows("A->B", ORDERS, COPY, 1),
        noting_rows("C->B", ORDERS, COPY, 9),
        noting_rows("A->B", ORDERS, COPY, 3),
        noting_rows("A->B", ORDERS, COPY, 2),
    ]
    assert mapped_copies("A->B", rows).partitions == {(ORDERS, COPY): 3}


def test_all_partitions_of_a_topic_that_lost_its_map_had_a_row() -> None:
    known = mapped_copies("A->B", [losing_map("A->B", 4, [COPY])])
    assert known.has_row(ORDERS, COPY, 17)
    assert not known.has_row(ORDERS, ANOTHER, 17)


def test_rows_of_this_kind_are_known_by_their_key() -> None:
    key, _ = noting_rows("A->B", ORDERS, COPY, 1)
    lost, _ = losing_map("A->B", 4, [COPY])
    assert is_mapped_row(key, "A->B")
    assert is_mapped_row(lost, "A->B")
    assert not is_mapped_row(key, "C->B")
    assert not is_mapped_row(b"no json", "A->B")


def test_brokers_without_topic_ids_tell_no_copy_from_another() -> None:
    assert is_known(ORDERS, COPY)
    assert not is_known(NO_TOPIC_ID, COPY)
