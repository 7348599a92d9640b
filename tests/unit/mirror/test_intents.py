"""Operators' intents for a flow. Of each kind and topic, the newest row counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from twinlog.errors import CorruptData
from twinlog.mirror.state.copies import copy_rows
from twinlog.mirror.state.generations import fan_producers, producers_of, winning_claims
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind, WantedSkip, flow_intents
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition


def intent(kind: IntentKind = IntentKind.PAUSE, topic: str = "", **more: Any) -> Intent:
    given: dict[str, Any] = {"flow": "A->B", "is_set": True, "bytes_per_second": None}
    given |= {"who": "anna@ops", "at_ms": 7, "reason": ""} | more
    return Intent(kind=kind, topic=topic, **given)


def limit(number: int) -> Intent:
    return intent(IntentKind.LIMIT, bytes_per_second=number)


def found(*rows: Intent) -> FlowIntents:
    return flow_intents("A->B", [row.encode() for row in rows])


def test_no_intent_is_set_at_first() -> None:
    assert found() == FlowIntents()
    assert found().pause is None
    assert found().limit is None
    assert found().pause_of("orders") is None
    assert found().unmirrored_topics == frozenset()


def test_newest_row_counts() -> None:
    taken_back = intent(is_set=False)
    assert found(intent(), taken_back) == FlowIntents()
    again = intent(reason="once more")
    assert found(intent(), taken_back, again).pause == again
    assert found(limit(5000), limit(7000)).limit == 7000
    assert found(limit(5000), intent(IntentKind.LIMIT, is_set=False)).limit is None


def test_a_replayed_topic_is_copied_if_neither_it_nor_the_flow_is_promoted() -> None:
    replay = [intent(IntentKind.REPLAY, topic) for topic in ("orders", "sales")]
    flow, topic = intent(IntentKind.PROMOTE), intent(IntentKind.PROMOTE, "orders")
    released = intent(IntentKind.RELEASE, "sales")
    assert found(*replay).copied_replays == {"orders", "sales"}
    assert found(*replay, flow).copied_replays == frozenset()
    assert found(*replay, topic).copied_replays == {"sales"}
    assert found(*replay, topic, released).copied_replays == frozenset()
    demoted = found(*replay, flow, topic).after([structs.replace(flow, is_set=False)])
    assert demoted == found(*replay, topic)
    assert demoted.after([flow]) == found(*replay, flow, topic)


def test_pause_of_a_flow_pauses_each_topic_and_outlives_their_pauses() -> None:
    flow, topic = intent(), intent(topic="orders")
    assert found(flow, topic).pause_of("orders") == topic
    assert found(flow, topic).pause_of("other") == flow
    assert found(topic).pause_of("other") is None
    left = found(flow, topic, intent(topic="orders", is_set=False))
    assert left.pause_of("orders") == flow
    assert left.topics(IntentKind.PAUSE) == []


def test_intents_of_other_flows_are_ignored() -> None:
    assert found(intent(flow="A->C"), intent(IntentKind.RELEASE, "orders", flow="B->A")) == (
        FlowIntents()
    )


def test_readers_of_other_rows_ignore_intents() -> None:
    """Readers of other kinds of rows ignore the rows of intents, also in releases that do not know
    intents.
    """
    rows = [intent().encode(), limit(5000).encode()]
    assert winning_claims(rows) == {}
    assert copy_rows(rows) == {}
    assert fan_producers(rows) == {}
    assert producers_of("A->B", rows) == frozenset()


def test_tombstone_revokes() -> None:
    key, value = intent().encode()
    assert flow_intents("A->B", [(key, value), (key, None)]) == FlowIntents()


@pytest.mark.parametrize(
    "wrong",
    [
        {"is_set": 1},
        {"who": None},
        {"at_ms": "7"},
        {"reason": 3},
        {"bytes_per_second": "fast"},
        {"bytes_per_second": 0},
        {"bytes_per_second": True},
    ],
    ids=str,
)
def test_row_with_other_fields_is_corrupt(wrong: dict[str, Any]) -> None:
    key, value = intent().encode()
    row = key, json.dumps(json.loads(value) | wrong).encode()
    with pytest.raises(CorruptData) as refusal:
        flow_intents("A->B", [row])
    assert refusal.value.code == "STATE_CORRUPT"


def test_row_that_lacks_a_field() -> None:
    for name in ("is_set", "bytes_per_second", "who", "at_ms", "reason"):
        key, value = intent().encode()
        fields = {name_: one for name_, one in json.loads(value).items() if name_ != name}
        with pytest.raises(CorruptData):
            flow_intents("A->B", [(key, json.dumps(fields).encode())])


def test_limit_without_a_number() -> None:
    with pytest.raises(CorruptData):
        found(intent(IntentKind.LIMIT))


@pytest.mark.parametrize(
    "key", [b"{", b"\xff", b'["flow","A->B","intent"]', b'["flow","A->B","intent","pause",3]']
)
def test_key_that_cannot_be_read(key: bytes) -> None:
    with pytest.raises(CorruptData) as refusal:
        flow_intents("A->B", [(key, intent().encode()[1])])
    assert refusal.value.code == "STATE_CORRUPT"


def test_promoted_topics_are_released() -> None:
    whole, topic = intent(IntentKind.PROMOTE), intent(IntentKind.PROMOTE, "orders")
    assert found(whole).promotion == whole
    assert found(whole).unmirrored_topics == frozenset()
    both = found(topic, intent(IntentKind.RELEASE, "audit"))
    assert both.promotion is None
    assert both.unmirrored_topics == {"orders", "audit"}
    assert found(topic, intent(IntentKind.PROMOTE, "orders", is_set=False)) == FlowIntents()
    assert found(intent(IntentKind.FENCE, "orders")).unmirrored_topics == frozenset()


def test_intent_of_a_newer_release_is_an_error() -> None:
    key = json.dumps(["flow", "A->B", "intent", "rehearse", ""]).encode()
    with pytest.raises(CorruptData) as refusal:
        flow_intents("A->B", [(key, intent().encode()[1])])
    assert refusal.value.code == "STATE_TOO_NEW"
    key, value = intent().encode()
    with pytest.raises(CorruptData) as refusal:
        flow_intents("A->B", [(key, json.dumps(json.loads(value) | {"v": 2}).encode())])
    assert refusal.value.code == "STATE_TOO_NEW"


def test_newer_row_replaces_an_unreadable_one_of_its_key() -> None:
    key, _ = intent().encode()
    assert flow_intents("A->B", [(key, b"{"), intent().encode()]).pause == intent()


ROWS = st.lists(
    st.builds(
        intent,
        st.sampled_from([IntentKind.PAUSE, IntentKind.RELEASE]),
        st.sampled_from(["", "orders", "audit"]),
        is_set=st.booleans(),
        at_ms=st.integers(0, 9),
    ),
    max_size=12,
)


@given(rows=ROWS, data=st.data())
def test_compaction_changes_nothing(rows: list[Intent], data: st.DataObject) -> None:
    """Compaction may remove any rows except the newest of each key. The intents in effect are the
    same afterwards.
    """
    newest = {row.key: at for at, row in enumerate(rows)}
    kept = [
        row
        for at, row in enumerate(rows)
        if newest[row.key] == at or data.draw(st.booleans(), label=f"row {at}")
    ]
    assert found(*kept) == found(*rows)


def test_skips_are_identified_by_their_position() -> None:
    one = WantedSkip(
        flow="A->B",
        topic="orders",
        topic_id=TopicId("a" * 32),
        partition=0,
        first=5,
        next=6,
        is_batch=False,
        code="RECORD_TOO_LARGE",
        who="anna@ops",
        at_ms=7,
        reason="a picture",
    )
    other = structs.replace(one, first=3, next=9, is_batch=True, code="CORRUPT_BATCH")
    rows = [intent().encode(), one.encode(), other.encode(), one.encode()]
    found = flow_intents("A->B", rows)
    assert found.skips == (other, one)
    assert found.pause == intent()
    assert flow_intents("A->C", rows).skips == ()
    here = TopicPartition("orders", 0)
    assert one.is_of(here, "a" * 32)
    assert one.is_of(here, NO_TOPIC_ID), "a broker without topic ids knows names only"
    assert not one.is_of(here, "b" * 32), "another topic of its name"
    assert not one.is_of(TopicPartition("orders", 1), "a" * 32)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ('["flow","A->B","intent","skip","orders","id",0]', {}),
        ('["flow","A->B","intent","skip","orders","id",0,5]', {"next": 5}),
        ('["flow","A->B","intent","skip","orders","id",0,"5"]', {}),
        ('["flow","A->B","intent","skip","orders","id",0,5]', {"is_batch": 1}),
        ('["flow","A->B","intent","skip","orders","id",0,5]', {"who": None}),
    ],
    ids=["short", "empty", "text", "number", "nobody"],
)
def test_unreadable_skip_is_corrupt(key: str, value: dict[str, object]) -> None:
    fields = {"next": 6, "is_batch": False, "code": "X", "who": "a", "at_ms": 1, "reason": ""}
    row = json.dumps({"v": 1, **fields, **value}).encode()
    with pytest.raises(CorruptData) as found:
        flow_intents("A->B", [(key.encode(), row)])
    assert found.value.code == "STATE_CORRUPT"
