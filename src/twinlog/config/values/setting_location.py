"""Names file and line of a client's setting that turns out to be unusable where it is used.

What reads key files and login modules knows its client's keys only. Which line of which file one
came from is remembered by the properties.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twinlog.config.values.origin import ClientProperties, shown_key
from twinlog.errors import ConfigError


@contextmanager
def located(alias: str, properties: ClientProperties) -> Iterator[None]:
    """Put the line's place before the message of a ConfigError about one of these properties."""
    try:
        yield
    except ConfigError as error:
        key = error.key
        if key is None or error.file != alias:  # it is of a file that says itself what is wrong
            raise
        if key in properties:
            line = properties.origin(key)
            file, number, name = line.file, line.line, line.field or shown_key(line.key)
        else:  # a key that is missing: the file is that of its neighbours
            file = properties.origin(next(iter(properties))).file
            number, name = None, f"{alias}.{key}"
        raise ConfigError(
            error.what, file=file, line=number, key=name, code=error.code, fate=error.fate
        ) from error
