"""Encodes values for programs, so that `--format json`, REST and files have the same fields.

By default, the output has the fields of the value's class. If the output differs, the class lists
its fields in order, for example:

    FIELDS = "topic=source.topic copied_to=upstream problem? totals"

`name=attribute` prints an attribute under another name. Dots separate nested attributes. A method
is called without arguments. With `?`, an empty text or a time of 0 becomes None, because it means
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def encoded(value: Any) -> Any:
    """Return the value as types that JSON supports."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: encoded(part) for key, part in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [encoded(part) for part in value]
    fields = getattr(value, "FIELDS", None)
    if fields is not None:
        return encoded_fields(value, fields)
    # imported here, so that commands which only print a help text start fast
    from msgspec import to_builtins

    return to_builtins(value, enc_hook=str)


def encoded_fields(value: Any, fields: str) -> Any:
    """Return the fields of the value that `fields` lists, encoded. None if the value is None."""
    if value is None:
        return None
    out = {}
    for name, attributes, may_be_unknown in _listed(fields):
        part = value
        for attribute in attributes:
            part = None if part is None else getattr(part, attribute)
        part = part() if callable(part) else part
        out[name] = encoded(part or None if may_be_unknown else part)
    return out


@cache
def _listed(fields: str) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Return each field's name, its path of attributes, and True if it ends with `?`."""
    pairs = (
        (field.removesuffix("?").partition("="), field.endswith("?")) for field in fields.split()
    )
    return tuple(
        (name, (*(path or name).split("."),), may_be_unknown)
        for (name, _, path), may_be_unknown in pairs
    )
