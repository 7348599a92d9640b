"""How a row of the state topic is declared, written and read.

    @row("pause", key=("topic",))
    class Pause(StateRow, frozen=True, kw_only=True):
        topic: str
        who: str
        note: str = ""

    key    ["flow", FLOW, "pause", TOPIC]
    value  {"v": 1, "who": ..., "note": ...}

The fields are written in this order. A row that lacks a field is invalid unless the field has a
default, because rows of earlier releases lack it. Unknown fields were written by later releases,
and are ignored. Values must have the types and bounds of the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from msgspec import Meta, MsgspecError, Struct, convert, to_builtins

from twinlog.errors import CorruptData
from twinlog.model import text_as

STATE_VERSION: Final = 1
BEYOND: Final = 10**14
"""Upper bound of times in milliseconds (the year 5138), and of record counts."""

Bounded = Annotated[int, Meta(gt=-BEYOND, lt=BEYOND)]
Total = Annotated[int, Meta(ge=0, lt=2**63 - 1)]
"""A total that grows for years, such as the bytes that a process has copied."""

T = TypeVar("T", bound="StateRow")

Row = tuple[bytes | None, bytes | None]
"""Key and value of a record of the state topic."""
Rows = Iterable[Row]


def one_of(texts: Iterable[str]) -> Meta:
    """Return the constraint that a string is one of these texts."""
    return Meta(pattern=rf"\A(?:{'|'.join(texts)})\Z")


class StateRow(Struct, frozen=True, kw_only=True):
    """A row of one flow in the state topic. Subclasses are declared with `row`."""

    _kind: ClassVar[tuple[str, ...]]
    _key: ClassVar[tuple[str, ...]]
    _sparse: ClassVar[tuple[str, ...]]
    _as_minus_one: ClassVar[tuple[str, ...]]
    _code: ClassVar[str]
    _advice: ClassVar[str]

    flow: str

    @property
    def row_kind(self) -> tuple[str, ...]:
        """The constant parts of the key after the flow."""
        return self._kind

    def encode(self) -> tuple[bytes, bytes]:
        """Return the row's key and value as JSON."""
        fields = to_builtins(self, enc_hook=str)
        key = ["flow", fields.pop("flow"), *self.row_kind, *map(fields.pop, self._key)]
        for name in self._sparse:
            if not fields[name]:
                del fields[name]
        return encode_row(key, _replaced(fields, self._as_minus_one, None, -1))

    @classmethod
    def decode(cls, parts: Sequence[Any], fields: Mapping[str, Any]) -> Self:
        """Return the row whose key has these parts, and whose value has these fields (results of
        `read_row`). Raises CorruptData if any of them is invalid.
        """
        try:
            _, flow, *rest = parts
            of_key = zip(cls._key, rest[len(cls._kind) :], strict=True)
            fields = _replaced(fields, cls._as_minus_one, -1, None)
            return convert({**fields, "flow": flow, **dict(of_key)}, cls, dec_hook=text_as)
        except (MsgspecError, ValueError) as error:
            raise cls.corrupt_error(error) from error

    @classmethod
    def corrupt_error(cls, why: object) -> CorruptData:
        """Return the error for an invalid row."""
        what = f"a row of the kind {' '.join(cls._kind)} cannot be read: {why}{cls._advice}"
        return CorruptData(what, code=cls._code)


def _replaced(value: Any, names: tuple[str, ...], before: object, after: object) -> Any:
    """Return `value` after replacing `before` by `after` in the fields `names`, also in nested
    values.
    """
    if names and isinstance(value, list | tuple):
        return [_replaced(part, names, before, after) for part in value]
    if not names or not isinstance(value, Mapping):
        return value
    return {
        name: after if name in names and part == before else _replaced(part, names, before, after)
        for name, part in value.items()
    }


def row(
    *kind: str,
    key: tuple[str, ...] = (),
    sparse: tuple[str, ...] = (),
    as_minus_one: tuple[str, ...] = (),
    code: str = "STATE_CORRUPT",
    advice: str = "",
) -> Callable[[type[T]], type[T]]:
    """Declare a kind of row. `key`: the fields in its key. `sparse`: fields that are not written if
    they are empty. `as_minus_one`: fields, also of nested values, in which None is written as -1,
    as earlier releases require. `code`: code of the error for an invalid row. `advice`: the end of
    that error's message.
    """

    def declare(cls: type[T]) -> type[T]:
        cls._kind, cls._key, cls._sparse, cls._code, cls._advice = kind, key, sparse, code, advice
        cls._as_minus_one = as_minus_one
        return cls

    return declare


def read_rows(records: Rows) -> Iterator[tuple[list, dict]]:  # type: ignore[type-arg]
    """Yield (key parts, value fields) of each record, without records that have no key and
    tombstones.
    """
    for key, value in records:
        if key is not None and value is not None:
            yield read_row(key, value)


def read_row(key: bytes, value: bytes) -> tuple[list, dict]:  # type: ignore[type-arg]
    """Return a record's key parts and value fields. Raises CorruptData if it cannot be read."""
    try:
        fields = json.loads(value)
        version = fields["v"]
        # the keys of a newer release may differ, too, so they are not parsed
        parts = [] if version > STATE_VERSION else json.loads(key)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(
            f"a record of the state topic cannot be read: {error!r}", code="STATE_CORRUPT"
        ) from error
    if version > STATE_VERSION:
        raise CorruptData(
            f"the state topic was written by a newer release (version {version}, this one reads "
            f"up to {STATE_VERSION}): upgrade Twinlog",
            code="STATE_TOO_NEW",
        )
    return parts, fields


def encode_row(parts: Sequence[object], fields: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Return (key, value) of a state topic record, as `read_row` reads it."""
    return row_key(*parts), _json({"v": STATE_VERSION, **fields})


def row_key(*parts: object) -> bytes:
    """Return the key of a state topic record."""
    return _json(parts)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
