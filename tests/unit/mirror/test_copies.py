"""The rows of the state topic that list the topics which are copies."""

from __future__ import annotations

import pytest
from msgspec import structs

from twinlog.errors import CorruptData
from twinlog.mirror.state.copies import CopyRow, copy_rows
from twinlog.mirror.state.generations import closing_row, fan_producers, winning_claims
from twinlog.model import NO_TOPIC_ID, TopicId

HERE, THERE = TopicId("1" * 32), TopicId("2" * 32)
ROW = CopyRow(
    begun=False,
    ended=False,
    flow="A->B",
    topic="pay",
    topic_id=THERE,
    target_cluster_id="cluster-b",
    source_cluster_id="cluster-a",
    source_topic="pay",
    source_topic_id=HERE,
    lineage=("cluster-0",),
)


def test_the_newest_row_of_a_topic_counts() -> None:
    ended = structs.replace(ROW, ended=True)
    other = structs.replace(ROW, topic="ship")
    rows = [one.encode() for one in (ROW, other, ended)]
    assert copy_rows(rows) == {("A->B", "pay"): ended, ("A->B", "ship"): other}


def test_rows_and_claims_share_a_topic() -> None:
    rows = [ROW.encode(), closing_row("A->B", 1)]
    assert list(copy_rows(rows)) == [("A->B", "pay")]
    assert winning_claims(rows) == {}
    assert fan_producers(rows) == {}


def test_invalid_rows_are_not_ignored() -> None:
    with pytest.raises(CorruptData, match="STATE_CORRUPT"):
        copy_rows([(b"{", b"{")])


def test_which_topic_a_row_speaks_of() -> None:
    assert ROW.is_of("pay", THERE)
    assert not ROW.is_of("pay", TopicId("3" * 32)), "it was created again"
    assert not ROW.is_of("ship", THERE)
    assert ROW.is_of("pay", NO_TOPIC_ID), "brokers without topic ids"
    to_come = structs.replace(ROW, topic_id=NO_TOPIC_ID)
    assert to_come.is_of("pay", THERE), "about to be made"
    older = structs.replace(ROW, topic="")
    assert older.is_of("any", THERE)
    assert not older.is_of("any", NO_TOPIC_ID)


def test_origin_of_a_copy() -> None:
    assert ROW.is_from("cluster-a", "pay", HERE)
    assert not ROW.is_from("cluster-a", "pay", THERE)
    assert ROW.is_from("cluster-a", "pay", NO_TOPIC_ID)
    assert not ROW.is_from("cluster-x", "pay", NO_TOPIC_ID)
    assert ROW.origins == {"cluster-a", "cluster-0"}
    nameless = structs.replace(ROW, source_cluster_id="", source_topic_id=NO_TOPIC_ID, lineage=())
    assert not nameless.is_from("", "pay", NO_TOPIC_ID), "nothing is known without any id"
    assert nameless.origins == frozenset()
