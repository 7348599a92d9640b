"""Options that are true or false. Spark asks for columns before it asks for a reader, so these load
little.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.records.bounds import wrong


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """In any case. Raises ConfigError."""
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise wrong(name, f"{text!r} is neither true nor false", "write one of them")
    return text == "true"


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether there is a column for them."""
    return flag(options, "includeHeaders", default=False)
