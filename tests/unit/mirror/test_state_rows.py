"""Rows of the state topic by flow and kind, and which of them a leader removes."""

from __future__ import annotations

import pytest
from msgspec import structs

from twinlog.errors import CorruptData
from twinlog.mirror.state.copies import CopyRow
from twinlog.mirror.state.generations import (
    CLAIMS,
    Claim,
    closing_row,
    has_written_row,
    producer_row,
    producers_of,
    rows_to_remove,
    winning_claims,
)
from twinlog.mirror.state.rows import RowFolder, StateRows
from twinlog.model import NO_TOPIC_ID, TopicId

CLAIM = Claim(
    flow="us-west->us-east",
    generation=7,
    claimant="5f0c1a9e8d7b4c3a9f2e1d0c0b0a9988",
    producer_id=4_001,
    meaning="0123456789abcdef",
    host="mirror-1.example",
    pid=4711,
    started_ms=1_790_000_000_123,
    source_cluster_id="fMCL8kv1SWm87L_Md-I2hg",
    target_cluster_id="AbCdEfGhIjKlMnOpQrStUv",
)
FLOW, OTHER = CLAIM.flow, "C->us-east"
CLAIMED = [structs.replace(CLAIM, generation=number, claimant=f"c{number}") for number in range(4)]


def copy(flow: str, topic: str, *, begun: bool = False) -> tuple[bytes, bytes]:
    row = CopyRow(
        topic_id=NO_TOPIC_ID,
        lineage=(),
        ended=False,
        flow=flow,
        topic=topic,
        target_cluster_id="b",
        source_cluster_id="a",
        source_topic=topic,
        source_topic_id=TopicId("1" * 32),
        begun=begun,
    )
    return row.encode()


def folded(*rows: tuple[bytes, bytes | None]) -> StateRows:
    folder = RowFolder()
    for row in rows:
        folder.add(*row)
    return folder.rows()


def test_rows_that_were_given_stay_as_they_are() -> None:
    folder = RowFolder()
    folder.add(*copy(FLOW, "a"))
    folder.add(*copy(OTHER, "a"))
    before = folder.rows()
    assert {*before.copies} == {(FLOW, "a"), (OTHER, "a")}
    folder.add(*copy(FLOW, "a", begun=True))
    folder.add(*copy(FLOW, "b"))
    after = folder.rows()
    assert not before.copies[FLOW, "a"].begun
    assert len(before.of(FLOW)) == 1
    assert after.copies[FLOW, "a"].begun
    assert {*after.copies} == {(FLOW, "a"), (FLOW, "b"), (OTHER, "a")}
    assert after.has_same_rows(OTHER, before)
    assert not after.has_same_rows(FLOW, before)
    assert after.copies[OTHER, "a"] is before.copies[OTHER, "a"], "decoded once"


def test_the_newest_row_of_a_key_counts_at_its_position_in_the_log() -> None:
    first, second = producer_row(FLOW, 1, "x", 5), producer_row(FLOW, 1, "y", 6)
    assert folded(first, second, first).of(FLOW) == [second, first]


def test_a_row_that_cannot_be_read_is_in_every_selection_until_it_is_replaced() -> None:
    bad = closing_row(OTHER, 1)[0], b'{"v":99}'
    rows = folded(CLAIM.encode(), bad)
    for some in (rows, rows.of(FLOW, *CLAIMS), rows.of_kinds("copy")):
        with pytest.raises(CorruptData):
            winning_claims(some)
    with pytest.raises(CorruptData):
        _ = rows.copies
    assert {*winning_claims(rows.of_alone(FLOW, *CLAIMS))} == {FLOW}, "it names another flow"
    assert {*winning_claims(folded(CLAIM.encode(), bad, closing_row(OTHER, 1)))} == {FLOW}
    assert {*winning_claims(folded(CLAIM.encode(), bad, (bad[0], None)))} == {FLOW}
    unnamed = folded(CLAIM.encode(), (b"\xff", b"{}"))
    with pytest.raises(CorruptData):
        winning_claims(unnamed.of_alone(FLOW, *CLAIMS))


def test_a_leader_removes_all_claims_below_its_own_and_names_their_producer_ids() -> None:
    former = structs.replace(CLAIMED[1], producer_id=9)
    same_number = structs.replace(CLAIMED[3], claimant="too late", producer_id=11)
    foreign = structs.replace(CLAIMED[0], flow=OTHER)
    rows = [
        *(one.encode() for one in (CLAIMED[0], former, CLAIMED[2], CLAIMED[3], same_number)),
        closing_row(FLOW, 0),
        closing_row(FLOW, 2),
        foreign.encode(),
        closing_row(OTHER, 0),
        producer_row(FLOW, 0, "x", 77),
    ]
    found = rows_to_remove(FLOW, 3, rows)
    gone = [CLAIMED[0].encode(), former.encode(), CLAIMED[2].encode()]
    gone += [closing_row(FLOW, 0), closing_row(FLOW, 2)]
    assert found == [has_written_row(FLOW, 9), *((key, None) for key, _ in gone)]
    after = folded(*rows, *found)
    assert producers_of(FLOW, after) == producers_of(FLOW, rows)
    assert winning_claims(after) == winning_claims(rows)
    assert rows_to_remove(FLOW, 3, after) == []


@pytest.mark.parametrize("written", range(7))
def test_a_leader_that_dies_amid_the_rows_loses_no_producer_id(written: int) -> None:
    """A leader dies while it removes rows, so only some of its removals are written. No producer ID
    is lost, and late removals of a former leader remove nothing that a later leader needs.
    """
    rows = [structs.replace(one, producer_id=one.generation // 2).encode() for one in CLAIMED]
    rows += [closing_row(FLOW, 0), closing_row(FLOW, 1)]
    late = rows_to_remove(FLOW, 3, rows)
    newer = structs.replace(CLAIM, generation=4, producer_id=8).encode()
    half = folded(*rows, *late[:written], newer)
    after = folded(*half, *rows_to_remove(FLOW, 4, half), *late)
    assert producers_of(FLOW, after) == {0, 1, 8}
    assert winning_claims(after)[FLOW].latest == winning_claims([newer])[FLOW].latest
    assert len(after.of(FLOW, *CLAIMS)) == 1
