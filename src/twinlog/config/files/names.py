"""Replaces keys of mm2.properties in messages by the names in a file of another format.

So messages have the names that the user can find and edit in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from twinlog.config.keys.client_keys import CLIENT_KEYS, CONNECTION_KEYS
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError

ARROW: Final = "->"
REST: Final = r"[\w-]+(?:\.[\w-]+)*"
"""Regular expression of a key without the prefix of its flow."""
_OF_CLIENTS: Final = frozenset(
    {*CONNECTION_KEYS, *(f"{role}.{key}" for role, keys in CLIENT_KEYS.items() for key in keys)}
)


class Names:
    """Replaces keys of mm2.properties in errors and warnings by the names that they have in the
    user's file, which has another format.
    """

    def __init__(self, mentioned: str, name: Callable[[str], str]) -> None:
        """`mentioned` matches the keys in a message; `name` returns the name of a key."""
        self._mentioned = re.compile(rf"(?<![\w.>-])(?:{mentioned})(?![\w-]|\.\w)")
        self._name = name

    def error(self, error: ConfigError) -> ConfigError:
        """Return the error, and all errors and warnings that it contains, with the file's names."""
        first, *more = (self._error(each) for each in error.each)
        first.more = tuple(more)
        first.warnings = tuple(self.warning(warning) for warning in error.warnings)
        return first

    def _error(self, error: ConfigError) -> ConfigError:
        return ConfigError(
            self._renamed(error.what),
            file=error.file,
            line=error.line,
            key=None if error.key is None else self._name(error.key),
            code=error.code,
            fate=error.fate,
        )

    def warning(self, warning: ConfigWarning) -> ConfigWarning:
        """Return the warning with its keys replaced by the file's names."""
        key, message = self._name(warning.key), self._renamed(warning.message)
        return replace(warning, key=key, message=message)

    def _renamed(self, text: str) -> str:
        renamed = self._mentioned.sub(lambda match: self._name(match[0]), text)
        # two keys can have the same name in the file, so `NAME or NAME` becomes `NAME`
        return re.sub(r"(?<!\S)(\S+) or \1(?!\S)", r"\1", renamed)


def names_by_prefix(aliases: Collection[str], prefixes: Mapping[str, str]) -> Names:
    """Return Names that replace the prefixes of keys. The longest matching prefix is replaced."""

    def name(key: str) -> str:
        prefix = max((prefix for prefix in prefixes if key.startswith(prefix)), key=len, default="")
        return prefixes.get(prefix, "") + key.removeprefix(prefix)

    flows = [re.escape(prefix) + REST for prefix in prefixes if ARROW in prefix]
    # a word that begins with an alias may be a topic, so only known keys of clients are replaced
    keys = sorted((re.escape(f"{a}.{key}") for a in aliases for key in _OF_CLIENTS), reverse=True)
    return Names("|".join([*flows, *keys]), name)
