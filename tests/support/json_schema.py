"""Finds violations of a JSON schema. It supports only the keywords that Twinlog's schemas use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_TYPES: Final[dict[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
_KNOWN: Final = {
    "$schema",
    "title",
    "description",
    "type",
    "required",
    "properties",
    "additionalProperties",
    "items",
}


def violations(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return a line for each violation of the schema."""
    return list(_broken("$", value, schema))


def _broken(path: str, value: Any, schema: dict[str, Any]) -> Iterator[str]:
    assert set(schema) <= _KNOWN, f"not known here: {set(schema) - _KNOWN}"
    wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is(value, kind) for kind in wanted):
        yield f"{path}: {value!r} is none of {wanted}"
        return
    if isinstance(value, dict):
        properties: dict[str, Any] = schema.get("properties", {})
        yield from (
            f"{path}: no {name}" for name in schema.get("required", ()) if name not in value
        )
        if schema.get("additionalProperties") is False:
            yield from (f"{path}: has {name}" for name in value if name not in properties)
        for name, wanted_of in properties.items():
            if name in value:
                yield from _broken(f"{path}.{name}", value[name], wanted_of)
    if isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            yield from _broken(f"{path}[{number}]", one, schema["items"])


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and not (kind == "integer" and isinstance(value, bool))
