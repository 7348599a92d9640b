"""The JSON representation of typed Python values: one shape per kind of type.

    dataclass                   object with every field; in a union also "type": the class's name
    NamedTuple, tuple           array
    dict with str or int keys   object; with other keys (a TopicPartition) an array of pairs
    Counter                     as a dict
    bytes                       base64 text
    enum, subclass of str       its value
    T | None                    null or T

Reading is strict: a surplus or missing field, a wrong JSON type or an unknown tag is CorruptData.
Its message names the position and never the value, because passwords are sent in these messages.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn, Protocol

from twinlog.errors import CorruptData

TAG = "type"


class Shape(Protocol):
    """Converts values of one type into JSON values and back."""

    def encode(self, value: Any) -> Any: ...

    def decode(self, data: Any, where: str) -> Any: ...


def refuse(where: str, expected: str, data: Any) -> NoReturn:
    raise CorruptData(
        f"message field {where}: expected {expected}, found {type(data).__name__}; "
        "both ends must run the same Twinlog version",
        code="CORRUPT_MESSAGE",
    )


class ScalarShape:
    """A value that JSON supports directly."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, data: Any, where: str) -> Any:
        # bool is an int in Python; a Python float may arrive as 1 instead of 1.0
        if type(data) is self._kind:
            return data
        if self._kind is float and type(data) is int:
            return float(data)
        refuse(where, self._kind.__name__, data)


class ConvertedShape:
    """A value represented by a scalar: enums by value, subclasses of str or int by their base."""

    def __init__(self, kind: Callable[[Any], Any], base: type, name: str) -> None:
        self._kind, self._base, self._name = kind, base, name

    def encode(self, value: Any) -> Any:
        return self._base(value.value if isinstance(value, Enum) else value)

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not self._base:
            refuse(where, self._name, data)
        try:
            return self._kind(data)
        except ValueError:
            refuse(where, self._name, data)


class BytesShape:
    def encode(self, value: bytes) -> str:
        return base64.b64encode(value).decode("ascii")

    def decode(self, data: Any, where: str) -> bytes:
        if type(data) is not str:
            refuse(where, "base64 text", data)
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            refuse(where, "base64 text", data)


class OptionalShape:
    def __init__(self, inner: Shape) -> None:
        self._inner = inner

    def encode(self, value: Any) -> Any:
        return None if value is None else self._inner.encode(value)

    def decode(self, data: Any, where: str) -> Any:
        return None if data is None else self._inner.decode(data, where)


class ItemsShape:
    """tuple[T, ...], Sequence[T] (decoded as a tuple), list[T] and frozenset[T]."""

    def __init__(self, build: Callable[[Any], Any], item: Shape) -> None:
        self._build, self._item = build, item

    def encode(self, value: Any) -> list[Any]:
        return [self._item.encode(item) for item in value]

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not list:
            refuse(where, "an array", data)
        return self._build([self._item.decode(item, f"{where}[]") for item in data])


class FixedShape:
    """tuple[A, B] and NamedTuples."""

    def __init__(self, build: Callable[[list[Any]], Any], items: Sequence[Shape]) -> None:
        self._build, self._items = build, items

    def encode(self, value: Any) -> list[Any]:
        return [shape.encode(item) for shape, item in zip(self._items, value, strict=True)]

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not list or len(data) != len(self._items):
            refuse(where, f"an array of {len(self._items)}", data)
        pairs = zip(self._items, data, strict=True)
        return self._build([shape.decode(item, f"{where}[]") for shape, item in pairs])


class TextKeysShape:
    """A dict whose keys are text or whole numbers: a JSON object."""

    def __init__(self, key: Shape, key_is_int: bool, value: Shape) -> None:
        self._key, self._key_is_int, self._value = key, key_is_int, value

    def encode(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(self._key.encode(key)): self._value.encode(item) for key, item in value.items()}

    def decode(self, data: Any, where: str) -> dict[Any, Any]:
        if type(data) is not dict:
            refuse(where, "an object", data)
        return {
            self._key.decode(self._parse(key, where), f"{where}.key"): self._value.decode(
                item, f"{where}.value"
            )
            for key, item in data.items()
        }

    def _parse(self, key: str, where: str) -> Any:
        if not self._key_is_int:
            return key
        try:
            return int(key)
        except ValueError:
            refuse(f"{where}.key", "a whole number", key)


class PairsShape:
    """A dict with any other keys: an array of pairs."""

    def __init__(self, key: Shape, value: Shape) -> None:
        self._pairs = ItemsShape(dict, FixedShape(tuple, (key, value)))

    def encode(self, value: Mapping[Any, Any]) -> list[Any]:
        return self._pairs.encode(value.items())

    def decode(self, data: Any, where: str) -> Any:
        return self._pairs.decode(data, where)


class CountsShape:
    """A Counter: a dict of its counts."""

    def __init__(self, counts: Shape) -> None:
        self._counts = counts

    def encode(self, value: Any) -> Any:
        return self._counts.encode(value)

    def decode(self, data: Any, where: str) -> Any:
        return Counter(self._counts.decode(data, where))


class DataclassShape:
    """Every field of a dataclass. Fields are filled in later, so that a class may contain
    itself.
    """

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.fields: dict[str, Shape] = {}

    def encode(self, value: Any) -> dict[str, Any]:
        return {name: shape.encode(getattr(value, name)) for name, shape in self.fields.items()}

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not dict:
            refuse(where, "an object", data)
        return self.build(data, where)

    def build(self, data: dict[str, Any], where: str) -> Any:
        if data.keys() != self.fields.keys():
            differing = sorted(data.keys() ^ self.fields.keys())[:5]
            refuse(
                f"{where}.{{{','.join(differing)}}}", f"the fields of {self.kind.__name__}", data
            )
        values = {
            name: shape.decode(data[name], f"{where}.{name}") for name, shape in self.fields.items()
        }
        try:
            return self.kind(**values)
        except (TypeError, ValueError):
            refuse(where, self.kind.__name__, data)


class TaggedShape:
    """A union of dataclasses, distinguished by their names."""

    def __init__(self, members: Sequence[DataclassShape]) -> None:
        self._by_name = {member.kind.__name__: member for member in members}
        self._by_kind = {member.kind: member for member in members}
        if len(self._by_name) != len(members):
            raise TypeError(f"two classes of one union share a name: {sorted(self._by_name)}")

    def encode(self, value: Any) -> dict[str, Any]:
        member = self._by_kind.get(type(value))
        if member is None:
            raise TypeError(f"{type(value).__name__} is not one of {sorted(self._by_name)}")
        return {TAG: type(value).__name__, **member.encode(value)}

    def decode(self, data: Any, where: str) -> Any:
        tag = data.get(TAG) if type(data) is dict else None
        member = self._by_name.get(tag) if type(tag) is str else None
        if member is None:
            refuse(f"{where}.{TAG}", f"one of {','.join(sorted(self._by_name))}", tag)
        rest = {name: item for name, item in data.items() if name != TAG}
        return member.build(rest, where)
