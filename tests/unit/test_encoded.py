"""All output for programs is encoded by one encoder."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from twinlog.encoded import encoded, encoded_fields
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


class Colour(StrEnum):
    RED = "red"


class Inner(Struct, frozen=True):
    a: int
    b: str | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    FIELDS = "topic=tp.topic colour name=colour.name.lower inner problem? at_ms? error total"

    tp: TopicPartition
    inner: Inner | None
    colour: Colour = Colour.RED
    problem: str = ""
    at_ms: int = 0
    error: TwinlogError | None = None

    def total(self) -> int:
        return 7


def test_listed_fields_are_printed_in_their_order() -> None:
    printed = encoded(Outer(TopicPartition("orders", 0), Inner(1)))
    assert printed == {
        "topic": "orders",
        "colour": "red",
        "name": "red",
        "inner": {"a": 1, "b": None},
        "problem": None,
        "at_ms": None,
        "error": None,
        "total": 7,
    }
    assert list(printed) == [one.partition("=")[0].rstrip("?") for one in Outer.FIELDS.split()]


def test_values_in_containers_are_encoded_and_errors_are_texts() -> None:
    one = Outer(TopicPartition("a", 1), None, error=TwinlogError("why"), problem="p", at_ms=5)
    (found,) = encoded({"rows": iter([one])})["rows"]
    assert (found["inner"], found["problem"], found["at_ms"]) == (None, "p", 5)
    assert found["error"] == str(one.error)


def test_missing_values_are_none_at_any_depth() -> None:
    assert encoded_fields(None, "a") is None
    assert encoded_fields(Outer(TopicPartition("a", 1), None), "deep=inner.b") == {"deep": None}
