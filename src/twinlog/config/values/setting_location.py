"""Names file and line of a client's setting that turns out to be unusable where it is used.

What reads key files and login modules knows its client's keys only: `A: ssl.truststore.location:
..`. Which line of which file that came from is remembered by the properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from twinlog.config.values.origin import ClientProperties, shown_key
from twinlog.errors import ConfigError

_KEY = re.compile(r"[a-z]+(?:\.[a-z0-9]+)+")


@contextmanager
def located(alias: str, properties: ClientProperties) -> Iterator[None]:
    """Put the line's place before the message of a ConfigError about one of these properties."""
    try:
        yield
    except ConfigError as error:
        rest = error.message.removeprefix(f"{alias}: ")
        found = _KEY.match(rest)
        if rest == error.message or not found:
            raise
        key = found[0]
        if key in properties:
            line = properties.origin(key)
            file, number, name = line.file, line.line, line.field or shown_key(line.key)
        else:  # a key that is missing: the file is that of its neighbours
            file = properties.origin(next(iter(properties))).file
            number, name = None, f"{alias}.{key}"
        what = rest[len(key) :].removeprefix(":").strip()
        raise ConfigError(
            what, file=file, line=number, key=name, code=error.code, fate=error.fate
        ) from error
