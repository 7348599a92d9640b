"""Messages with the names that a file has for the keys of an mm2.properties."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError

REST: Final = r"[\w-]+(?:\.[\w-]+)*"
"""The rest of a key after a prefix."""


class FileNames:
    """Replaces keys in the messages about one file with their names in it."""

    def __init__(self, mentioned: Iterable[str]) -> None:
        """`mentioned` are regular expressions for the keys that texts may mention."""
        self._mentioned = re.compile(rf"(?<![\w.>-])(?:{'|'.join(mentioned)})(?![\w-]|\.\w)")

    @abstractmethod
    def field(self, key: str) -> str:
        """Return the name of a key in the file."""

    def error(self, error: ConfigError) -> ConfigError:
        """Return the error, and all that it holds, with field names instead of keys."""
        first, *more = (self._error(one) for one in error.each)
        first.more = tuple(more)
        first.warnings = tuple(self.warning(one) for one in error.warnings)
        return first

    def _error(self, error: ConfigError) -> ConfigError:
        return ConfigError(
            self._said(error.what),
            file=error.file,
            line=error.line,
            key=None if error.key is None else self.field(error.key),
            code=error.code,
            fate=error.fate,
        )

    def warning(self, warning: ConfigWarning) -> ConfigWarning:
        """Return the warning with field names instead of keys."""
        key, message = self.field(warning.key), self._said(warning.message)
        return replace(warning, key=key, message=message)

    def _said(self, text: str) -> str:
        return self._mentioned.sub(lambda found: self.field(found[0]), text)
