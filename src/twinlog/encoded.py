"""Encodes values for programs: `--format json`, REST and written files have the same fields.

A value has the fields of its class. If others are printed, the class lists them in the order of
the output, for example:

    FIELDS = "topic=source.topic copied_to=upstream problem? totals"

`name=attribute` prints an attribute under another name. Dots lead to attributes of attributes, and
a method without parameters is called. With `?` an empty text or a time of 0, which mean unknown,
become None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def encoded(value: Any) -> Any:
    """Return the value in the types of JSON."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: encoded(part) for key, part in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [encoded(part) for part in value]
    fields = getattr(value, "FIELDS", None)
    if fields is not None:
        return picked(value, fields)
    from msgspec import to_builtins  # no help text needs this import

    return to_builtins(value, enc_hook=str)


def picked(value: Any, fields: str) -> Any:
    """Return the listed fields of the value, encoded, or None if the value is None."""
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
    """Return the name of each field, the attributes that lead to it, and whether it has a `?`."""
    pairs = (
        (field.removesuffix("?").partition("="), field.endswith("?")) for field in fields.split()
    )
    return tuple(
        (name, (*(path or name).split("."),), may_be_unknown)
        for (name, _, path), may_be_unknown in pairs
    )
