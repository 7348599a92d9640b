"""Generates the table of paths in docs/rest.md from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel

from twinlog.control.web.api.endpoints import DOCUMENT, ENDPOINTS, STREAM, STREAM_SUMMARY

HEAD: Final = "| path | takes | answers |"
_TABLE: Final = re.compile(rf"^{re.escape(HEAD)}\n(?:\|.*\n)+", re.MULTILINE)


def table() -> str:
    """Return the table, with a row for each path and method."""
    return "\n".join((HEAD, "| --- | --- | --- |", *_rows())) + "\n"


def with_table(page: str) -> str:
    """Return the page with its table replaced by the current one. Raises ValueError unless the page
    has exactly one such table.
    """
    found, count = _TABLE.subn(lambda _: table(), page)
    if count != 1:
        raise ValueError(f"{count} tables begin with {HEAD}")
    return found


def _rows() -> Iterator[str]:
    for one in ENDPOINTS:
        names = [*_names(one.query), *_names(one.body)]
        takes = ", ".join(f"`{name}`" for name in names)
        yield f"| `{one.method} {one.path}` | {takes} | {one.summary} |"
    yield f"| `GET {STREAM}` | | {STREAM_SUMMARY} |"
    yield f"| `GET {DOCUMENT}` | | The OpenAPI 3.1 document. |"


def _names(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]
