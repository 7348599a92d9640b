"""Encodes messages of the channel: tagged JSON of an explicit list of classes, by their type hints.

JSON is used rather than pickle, because data from a peer must never run code. JSON is also
preferred to a binary format, because there are only a few messages a second, and JSON is readable.

Each message is a subclass of `Message`. Its fields may contain other Structs, dataclasses and named
tuples, which msgspec converts. Reading is strict: a message is rejected unless the sender would
have written it with exactly these fields. An error names the position and never the value, because
messages contain passwords.
"""

from __future__ import annotations

import json
import re
import typing
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from msgspec import MsgspecError, Struct, convert, to_builtins

from twinlog.errors import CorruptData
from twinlog.model import text_as

_POSITION: Final = re.compile(r" - at (?:`key` in )?`\$([\w.\[\]]*)`")


class Message(Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base class of all messages of the channel."""


class MessageCodec:
    """Writes and reads messages of exactly these classes. Both ends must use the same classes."""

    def __init__(self, classes: Sequence[type]) -> None:
        for kind in classes:
            if not issubclass(kind, Message):
                raise TypeError(f"{kind.__name__} is not a Message")
        self._classes = frozenset(classes)
        self._any: Any = typing.Union[tuple(classes)]  # noqa: UP007 (as many as there are)

    def encode(self, message: Any) -> bytes:
        if type(message) not in self._classes:
            raise TypeError(f"{type(message).__name__} is not a message of this channel")
        tree = to_builtins(message, enc_hook=_base_of)
        return json.dumps(tree, separators=(",", ":")).encode("utf-8")

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        try:
            tree = json.loads(bytes(data))
        except (ValueError, RecursionError):  # ValueError includes UnicodeDecodeError
            raise _corrupt_error(f"a message of {len(data)} bytes is not JSON") from None
        try:
            message = convert(tree, self._any, str_keys=True, dec_hook=_value_of)
        except (MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            where = _POSITION.fullmatch(str(error), max(0, str(error).rfind(" - at ")))
            position = f"message{where[1]}" if where else "message"
            raise _corrupt_error(f"message field {position} has no valid value") from None
        if json.loads(self.encode(message)) != tree:
            raise _corrupt_error("a message has surplus or missing fields") from None
        return message


def _corrupt_error(what: str) -> CorruptData:
    return CorruptData(
        f"{what}; both ends must run the same Twinlog version", code="CORRUPT_MESSAGE"
    )


def _base_of(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent in a message")


def _value_of(kind: Any, value: Any) -> Any:
    if typing.get_origin(kind) is Counter:
        mapping: Any = dict
        return Counter(convert(value, mapping[typing.get_args(kind)[0], int], str_keys=True))
    return text_as(kind, value)
