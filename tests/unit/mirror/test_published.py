"""Rows of the status topic are read back as they were written. Invalid rows are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from tests.support.snapshots import PUBLISHED
from twinlog.errors import CorruptData
from twinlog.mirror.skips import Poison, Skip
from twinlog.mirror.state.published import Behind, Proof, failed_set_up, published_status

FAILED = structs.replace(
    PUBLISHED, generation=None, state="FAILED", code="WRONG_CLUSTER", reason="why"
)
"""The status of a process that cannot set up the flow."""


def test_written_status_is_read_back() -> None:
    assert published_status("A->B", [PUBLISHED.encode()]) == PUBLISHED


def test_the_status_of_a_process_that_has_copied_for_years_is_read_back() -> None:
    reported = structs.replace(PUBLISHED, records=10**15, bytes=10**18)
    assert published_status("A->B", [reported.encode()]) == reported


def test_missing_records_are_read_back_and_older_rows_have_none() -> None:
    late = Behind(topic="orders", partition=2, upstream=20, end=50)
    reported = structs.replace(PUBLISHED, behind=(late,))
    key, value = reported.encode()
    assert published_status("A->B", [(key, value)]) == reported
    older = {name: one for name, one in json.loads(value).items() if name != "behind"}
    assert published_status("A->B", [(key, json.dumps(older).encode())]) == PUBLISHED


def test_rows_of_an_earlier_release_have_no_lag_objective_and_proof() -> None:
    proof = Proof(mode="sample", at_ms=5, records=3, differences=0, is_complete=False)
    reported = structs.replace(
        PUBLISHED, lag=3, lag_unknown=1, rpo_ms=1000, rpo_excess="why", proof=proof
    )
    key, value = reported.encode()
    assert published_status("A->B", [(key, value)]) == reported
    fields = json.loads(value)
    for name in ("lag", "lag_unknown", "rpo_ms", "rpo_excess", "proof"):
        del fields[name]
    assert published_status("A->B", [(key, json.dumps(fields).encode())]) == PUBLISHED


def test_the_newest_row_of_the_flow_counts() -> None:
    later = structs.replace(PUBLISHED, records=200)
    other = structs.replace(PUBLISHED, flow="B->A", records=7)
    rows = [PUBLISHED.encode(), later.encode(), other.encode(), (None, b"{}"), (b"[]", None)]
    assert published_status("A->B", rows) == later
    assert published_status("C->B", rows) is None


def test_a_former_leader_does_not_hide_its_successor() -> None:
    leader, zombie = (
        structs.replace(PUBLISHED, generation=7),
        structs.replace(PUBLISHED, generation=6, at_ms=10**13),
    )
    assert published_status("A->B", [leader.encode(), zombie.encode()]) == leader


def test_a_row_that_was_on_its_way_at_the_end_is_not_the_last() -> None:
    ended = structs.replace(PUBLISHED, state="STOPPED", at_ms=PUBLISHED.at_ms + 1)
    assert published_status("A->B", [ended.encode(), PUBLISHED.encode()]) == ended


def test_a_deleted_row_is_ignored() -> None:
    assert published_status("A->B", [PUBLISHED.encode(), (PUBLISHED.encode()[0], None)]) is None


def changed(**fields: Any) -> tuple[bytes, bytes]:
    key, value = PUBLISHED.encode()
    return key, json.dumps({**json.loads(value), **fields}).encode()


def test_additional_fields_of_a_later_release_are_ignored() -> None:
    one = {**json.loads(PUBLISHED.encode()[1])["unusual"][0], "colour": "red"}
    assert published_status("A->B", [changed(weather="fine", unusual=[one])]) == PUBLISHED


@pytest.mark.parametrize(
    "row",
    [
        changed(records="many"),
        changed(lanes=True),
        changed(unusual=7),
        changed(unusual=[{"topic": "pay"}]),
        changed(lag="7"),
        changed(proof={"mode": "full"}),
        changed(
            proof={"mode": "full", "at_ms": 1, "records": 1, "differences": 0, "is_complete": 1}
        ),
        changed(v=99),
        changed(state="FLYING"),
        changed(since_ms=10**30),
        changed(loss_ms=10**400),
        (PUBLISHED.encode()[0], b"[" * 100_000),
        (PUBLISHED.encode()[0], b"no JSON"),
        (PUBLISHED.encode()[0], b"[]"),
        (PUBLISHED.encode()[0], b'{"v": 1}'),
    ],
    ids=[
        "text",
        "bool",
        "number",
        "fields",
        "lag",
        "proof",
        "proof-type",
        "newer",
        "state",
        "time",
        "huge",
        "deep",
        "bytes",
        "list",
        "empty",
    ],
)
def test_an_unreadable_row_is_an_error(row: tuple[bytes, bytes]) -> None:
    with pytest.raises(CorruptData):
        published_status("A->B", [row])
    assert published_status("A->B", [PUBLISHED.encode(), row]) == PUBLISHED, (
        "an older one may live yet"
    )


@pytest.mark.parametrize(
    ("every_ms", "lives_ms"), [(5_000, 45_000), (60_000, 180_000), (10**9, 600_000)]
)
def test_status_is_current_for_three_of_its_intervals(every_ms: int, lives_ms: int) -> None:
    assert structs.replace(PUBLISHED, every_ms=every_ms).lives_ms == lives_ms


def test_record_that_stops_a_partition_is_read_back_and_earlier_rows_have_none() -> None:
    poison = Poison(skip=Skip(first=5, next=9, is_batch=True), topic_id="a" * 32)
    stuck = structs.replace(PUBLISHED.unusual[0], poison=poison)
    reported = structs.replace(PUBLISHED, unusual=(stuck,))
    assert published_status("A->B", [reported.encode()]) == reported
    key, value = PUBLISHED.encode()
    fields = json.loads(value)
    for one in fields["unusual"]:
        del one["poison"]
    assert published_status("A->B", [(key, json.dumps(fields).encode())]) == PUBLISHED


@pytest.mark.parametrize(
    "change", [{"next": 5}, {"first": -1}, {"first": "5"}, {"is_batch": 1}], ids=str
)
def test_poison_with_an_invalid_range_is_an_error(change: dict[str, object]) -> None:
    poison = Poison(skip=Skip(first=5, next=9), topic_id="a" * 32)
    reported = structs.replace(
        PUBLISHED, unusual=(structs.replace(PUBLISHED.unusual[0], poison=poison),)
    )
    key, value = reported.encode()
    fields = json.loads(value)
    fields["unusual"][0]["poison"]["skip"] |= change
    with pytest.raises(CorruptData):
        published_status("A->B", [(key, json.dumps(fields).encode())])


def test_failed_set_up_replaces_no_row_of_a_leader() -> None:
    assert FAILED.encode()[0] != PUBLISHED.encode()[0]
    assert published_status("A->B", [PUBLISHED.encode(), FAILED.encode()]) == PUBLISHED
    assert published_status("A->B", [FAILED.encode()]) is None


def test_the_last_failed_set_up_counts() -> None:
    other = structs.replace(FAILED, state="DEGRADED", pid=78, at_ms=FAILED.at_ms - 9000)
    rows = [PUBLISHED.encode(), FAILED.encode(), other.encode()]
    assert failed_set_up("A->B", rows) == other
    assert failed_set_up("B->A", rows) is None
    fails_no_more = structs.replace(other, state="STOPPED")
    assert failed_set_up("A->B", [FAILED.encode(), fails_no_more.encode()]) == FAILED
    assert failed_set_up("A->B", [*rows, (FAILED.encode()[0], None)]) is None


@pytest.mark.parametrize("changes", [{"host": "north-1"}, {"pid": 78}], ids=str)
def test_a_process_that_no_longer_fails_hides_no_other_failure(changes: dict[str, Any]) -> None:
    other = structs.replace(FAILED, code="UNREACHABLE", **changes)
    ended, other_ended = (
        structs.replace(FAILED, state="STOPPED"),
        structs.replace(other, state="STOPPED"),
    )
    rows = [other.encode(), FAILED.encode(), ended.encode()]
    assert failed_set_up("A->B", rows) == other
    assert failed_set_up("A->B", [FAILED.encode(), *rows, other_ended.encode()]) is None
    flying = FAILED.encode()[0], other.encode()[1].replace(b"FAILED", b"FLYING")
    assert failed_set_up("A->B", [rows[0], flying, *rows[1:]]) == other, "behind one of a newer"


@pytest.mark.parametrize("state", ["RUNNING", "STOPPED"])
def test_later_row_of_a_leader_counts_whatever_clocks_show(state: str) -> None:
    late = structs.replace(FAILED, at_ms=PUBLISHED.at_ms + 60_000)
    led = structs.replace(PUBLISHED, state=state).encode()
    assert failed_set_up("A->B", [late.encode(), led]) is None
    assert failed_set_up("A->B", [led, late.encode()]) == late


def test_an_unreadable_set_up_is_an_error() -> None:
    key, value = FAILED.encode()
    newer = key, json.dumps(json.loads(value) | {"state": "FLYING"}).encode()
    with pytest.raises(CorruptData):
        failed_set_up("A->B", [FAILED.encode(), newer])
