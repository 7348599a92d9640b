"""Messages survive the conversion to JSON and back unchanged. Other data is rejected."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from twinlog.channel.codec import Message, MessageCodec
from twinlog.errors import CorruptData
from twinlog.model import TopicId, TopicPartition


class State(StrEnum):
    RUNNING = "running"
    FAILED = "failed"


class Exact(Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    offset: int


class Latest(Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    tp: TopicPartition
    topic_id: TopicId
    start: Exact | Latest
    state: State = State.RUNNING


class Plan(Message, frozen=True, kw_only=True):
    parts: tuple[Part, ...]
    brokers: dict[int, str]
    labels: dict[str, float]
    ends: tuple[tuple[TopicPartition, int], ...]
    secret: bytes | None
    pair: tuple[int, str]
    note: str | None = None
    child: Plan | None = None


class Stop(Message, frozen=True, kw_only=True):
    now: bool


class Counted(Message, frozen=True, kw_only=True):
    states: Counter[State]
    places: tuple[tuple[int, int], ...]


CODEC = MessageCodec((Plan, Stop))

parts = st.builds(
    Part,
    tp=st.builds(TopicPartition, st.text(), st.integers(0, 2**31 - 1)),
    topic_id=st.binary(min_size=16, max_size=16).map(lambda raw: TopicId(raw.hex())),
    start=st.one_of(st.builds(Exact, offset=st.integers(0, 2**63 - 1)), st.just(Latest())),
    state=st.sampled_from(State),
)
plans = st.builds(
    Plan,
    parts=st.lists(parts, max_size=3).map(tuple),
    brokers=st.dictionaries(st.integers(), st.text(), max_size=3),
    labels=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
    ends=st.dictionaries(
        st.builds(TopicPartition, st.text(), st.integers()), st.integers(), max_size=3
    ).map(lambda ends: tuple(ends.items())),
    secret=st.none() | st.binary(),
    pair=st.tuples(st.integers(), st.text()),
    note=st.none() | st.text(),
)


def simple_plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "parts": (),
        "brokers": {},
        "labels": {},
        "ends": (),
        "secret": None,
        "pair": (1, "x"),
    }
    return Plan(**{**values, **changes})


@given(plans)
def test_a_message_comes_back_equal_and_with_its_types(plan: Plan) -> None:
    back = CODEC.decode(CODEC.encode(plan))
    assert back == plan
    assert all(type(part.tp) is TopicPartition for part in back.parts)
    assert all(type(part.topic_id) is TopicId for part in back.parts)
    assert all(type(part.state) is State for part in back.parts)


def test_a_class_may_contain_itself() -> None:
    plan = simple_plan(child=simple_plan(note="inner"))
    assert CODEC.decode(CODEC.encode(plan)) == plan


def changed(**changes: Any) -> bytes:
    tree = json.loads(CODEC.encode(simple_plan(secret=b"hunter2")))
    tree.update(changes)
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"Stop"',
        b"{}",
        b'{"type":"Stop"}',
        b'{"type":"Stop","now":1}',
        b'{"type":"Stop","now":true,"more":1}',
        b'{"type":"Start","now":true}',
        b'{"type":["Stop"],"now":true}',
        b"[" * 100_000,
        changed(parts=None),
        changed(parts=[{}]),
        changed(brokers={"one": "x"}),
        changed(brokers={"1": 2}),
        changed(labels=[]),
        changed(ends={"a": 1}),
        changed(ends=[[["t"], 1]]),
        changed(secret="not base64!"),
        changed(pair=[1]),
        changed(pair=[True, "x"]),
        changed(note=5),
    ],
)
def test_anything_else_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData) as caught:
        CODEC.decode(data)
    assert caught.value.code == "CORRUPT_MESSAGE"


def test_every_cut_of_a_message_is_corrupt() -> None:
    data = CODEC.encode(simple_plan(note="n"))
    for length in range(len(data)):
        with pytest.raises(CorruptData):
            CODEC.decode(data[:length])


def test_the_error_names_the_position_and_not_the_value() -> None:
    with pytest.raises(CorruptData) as caught:
        CODEC.decode(changed(note={"password": "hunter2"}))
    assert "message.note" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@dataclass(frozen=True)
class HasSet:
    names: set[str]


@dataclass(frozen=True)
class HasTag:
    type: str


@pytest.mark.parametrize("kind", [HasSet, HasTag, int])
def test_a_class_that_is_no_message_is_refused(kind: type) -> None:
    with pytest.raises(TypeError):
        MessageCodec((kind,))


def test_a_message_of_an_unknown_class_raises_type_error() -> None:
    with pytest.raises(TypeError):
        CODEC.encode(Exact(offset=1))


def test_counters_and_sequences() -> None:
    codec = MessageCodec((Counted,))
    places: Any = [(1, 2), (3, 4)]
    sent = Counted(states=Counter({State.FAILED: 2}), places=places)
    got = codec.decode(codec.encode(sent))
    assert got == Counted(states=Counter({State.FAILED: 2}), places=((1, 2), (3, 4)))
    assert got.states[State.RUNNING] == 0
    with pytest.raises(CorruptData):
        codec.decode(b'{"type":"Counted","states":{"failed":"2"},"places":[]}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    name: str
    size: int = 1


class Carrier(Message, frozen=True, kw_only=True):
    value: Value


@pytest.mark.parametrize(
    "value", [{"name": "a"}, {"name": "a", "size": 1, "more": 2}, {"size": 1}, {"\ud800": 1}]
)
def test_values_in_messages_have_exactly_their_fields(value: dict[str, Any]) -> None:
    codec = MessageCodec((Carrier,))
    sent = Carrier(value=Value(name="\ud800"))
    assert codec.decode(codec.encode(sent)) == sent
    with pytest.raises(CorruptData) as caught:
        codec.decode(json.dumps({"type": "Carrier", "value": value}).encode())
    assert caught.value.code == "CORRUPT_MESSAGE"


def test_a_value_of_an_enum_is_not_quoted() -> None:
    codec = MessageCodec((Counted,))
    with pytest.raises(CorruptData) as caught:
        codec.decode(b'{"type":"Counted","states":{"hunter2":2},"places":[]}')
    assert "hunter2" not in str(caught.value)
    with pytest.raises(CorruptData) as caught:
        codec.decode(b'{"type":"hunter2","states":{},"places":[]}')
    assert "hunter2" not in str(caught.value)
