"""Encodes values for programs: `--format json`, REST and written files have the same fields.

A value has the fields of its class. If others are printed, the class lists them in the order of
the output, for example:

    FIELDS = "topic=source.topic copied_to=upstream problem? totals"

`name=attribute` prints an attribute under another name. Dots lead to attributes of attributes, and
a method without parameters is called. With `?` an empty text, which means unknown, becomes None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import to_builtins


def encoded(value: Any) -> Any:
    """Return the value in the types of JSON."""
    if isinstance(value, Mapping):
        return {key: encoded(one) for key, one in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [encoded(one) for one in value]
    fields = getattr(value, "FIELDS", None)
    return to_builtins(value, enc_hook=str) if fields is None else picked(value, fields)


def picked(value: Any, fields: str) -> Any:
    """Return the listed fields of the value, encoded, or None if the value is None."""
    if value is None:
        return None
    out = {}
    for field in fields.split():
        name, _, path = field.removesuffix("?").partition("=")
        found = value
        for attribute in (path or name).split("."):
            found = None if found is None else getattr(found, attribute)
        found = found() if callable(found) else found
        out[name] = encoded(found or None if field.endswith("?") else found)
    return out
