"""Encodes messages of the channel: tagged JSON of an explicit list of dataclasses, by type hints.

JSON is used rather than pickle, because data from a peer must never run code. It is used rather
than a binary format, because there are only a few messages a second, and people can read them.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from twinlog.channel.shapes import (
    TAG,
    BytesShape,
    ConvertedShape,
    CountsShape,
    DataclassShape,
    FixedShape,
    ItemsShape,
    OptionalShape,
    PairsShape,
    ScalarShape,
    Shape,
    TaggedShape,
    TextKeysShape,
)
from twinlog.errors import CorruptData


class MessageCodec:
    """Writes and reads messages of exactly the given classes. Both ends must use the same ones."""

    def __init__(self, classes: Sequence[type]) -> None:
        self._shape = Shapes().tagged(classes)

    def encode(self, message: Any) -> bytes:
        return json.dumps(self._shape.encode(message), separators=(",", ":")).encode("utf-8")

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        try:
            tree = json.loads(bytes(data))
        except (ValueError, RecursionError):  # also UnicodeDecodeError
            raise CorruptData(
                f"a message of {len(data)} bytes is not JSON; "
                "both ends must run the same Twinlog version",
                code="CORRUPT_MESSAGE",
            ) from None
        return self._shape.decode(tree, "message")


_SCALARS = (str, int, float, bool)
_BUILDERS: dict[Any, Callable[[Any], Any]] = {
    tuple: tuple,
    Sequence: tuple,
    list: list,
    frozenset: frozenset,
}
_UNIONS = (typing.Union, types.UnionType)


class Shapes:
    """Finds the shape of a type hint. An unsupported type is a TypeError when the codec is
    created.
    """

    def __init__(self) -> None:
        self._dataclasses: dict[type, DataclassShape] = {}

    def of(self, hint: Any) -> Shape:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in _UNIONS:
            return self._union(arguments)
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return FixedShape(tuple, [self.of(argument) for argument in arguments])
        if origin in _BUILDERS:
            return ItemsShape(_BUILDERS[origin], self.of(arguments[0]))
        if origin in (dict, Mapping):
            return self._mapping(*arguments)
        if origin is Counter:
            return CountsShape(self._mapping(arguments[0], int))
        if isinstance(hint, type) and origin is None:
            return self._class(hint)
        raise TypeError(f"no JSON shape for {hint!r}")

    def dataclass(self, kind: type) -> DataclassShape:
        known = self._dataclasses.get(kind)
        if known is not None:
            return known
        if not dataclasses.is_dataclass(kind):
            raise TypeError(f"{kind!r} is not a dataclass")
        shape = self._dataclasses[kind] = DataclassShape(kind)
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.init:
                shape.fields[field.name] = self.of(hints[field.name])
        return shape

    def tagged(self, kinds: Sequence[type]) -> TaggedShape:
        members = [self.dataclass(kind) for kind in kinds]
        for member in members:
            if TAG in member.fields:
                raise TypeError(f"{member.kind.__name__}: a field cannot be named {TAG!r}")
        return TaggedShape(members)

    def _class(self, kind: type) -> Shape:
        if kind in _SCALARS:
            return ScalarShape(kind)
        if kind is bytes:
            return BytesShape()
        if dataclasses.is_dataclass(kind):
            return self.dataclass(kind)
        if issubclass(kind, Enum):
            return ConvertedShape(kind, type(next(iter(kind)).value), kind.__name__)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            hints = typing.get_type_hints(kind)
            items = [self.of(hints[name]) for name in kind._fields]
            return FixedShape(lambda values: kind(*values), items)
        for base in (str, int):
            if issubclass(kind, base):
                return ConvertedShape(kind, base, kind.__name__)
        raise TypeError(f"no JSON shape for {kind!r}")

    def _union(self, arguments: tuple[Any, ...]) -> Shape:
        members = [argument for argument in arguments if argument is not type(None)]
        inner = self.of(members[0]) if len(members) == 1 else self.tagged(members)
        return inner if len(members) == len(arguments) else OptionalShape(inner)

    def _mapping(self, key: Any, value: Any) -> Shape:
        if isinstance(key, type) and issubclass(key, (str, int)):
            return TextKeysShape(self.of(key), issubclass(key, int), self.of(value))
        return PairsShape(self.of(key), self.of(value))
