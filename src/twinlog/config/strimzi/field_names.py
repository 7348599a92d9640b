"""What a key of mm2.properties is called in a resource: what is wrong is said in the words of the
file that people correct.

A key that the resource sets is called as the field that sets it. One that is only advised goes
where the operator reads it: a pattern to the mirror, what belongs to a connector to its config.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS
from twinlog.config.keys.flow_keys import CONNECTOR_ONLY
from twinlog.config.strimzi.mirror import PATTERNS
from twinlog.config.strimzi.settings import Collected
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError

_ARROW: Final = "->"
_PATTERN_OF: Final = {key: name for name, key in PATTERNS.items()}
_REST: Final = r"[\w-]+(?:\.[\w-]+)*"
_NOT_WITHIN: Final = r"(?<![\w.>-])"


class FieldNames:
    """Of one resource."""

    def __init__(self, found: Collected) -> None:
        self._fields = {key: one.field for key, one in found.settings.items()}
        self._sections = dict(found.sections)
        flows = [re.escape(one) for one in self._sections if _ARROW in one]
        # what begins with an alias may be a topic: only what is known to be a key is one
        of_clusters = {one for one in self._sections if _ARROW not in one}
        keys = {one + BOOTSTRAP_SERVERS for one in of_clusters} | {
            key for key in self._fields if key.startswith(tuple(of_clusters))
        }
        known = sorted(map(re.escape, keys), key=len, reverse=True)
        flow_keys = [f"(?:{'|'.join(flows)}){_REST}"] if flows else []
        self._mentioned = re.compile(
            rf"{_NOT_WITHIN}(?:{'|'.join([*flow_keys, *known])})(?![\w-]|\.\w)"
        )

    def error(self, error: ConfigError) -> ConfigError:
        """With all that it holds, in the file's words."""
        first, *more = (self._error(one) for one in error.each)
        first.more = tuple(more)
        first.warnings = tuple(self.warning(one) for one in error.warnings)
        return first

    def _error(self, error: ConfigError) -> ConfigError:
        return ConfigError(
            self._said(error.what),
            file=error.file,
            line=error.line,
            key=None if error.key is None else self._field(error.key),
            code=error.code,
            fate=error.fate,
        )

    def warning(self, warning: ConfigWarning) -> ConfigWarning:
        """In the file's words."""
        key, message = self._field(warning.key), self._said(warning.message)
        return replace(warning, key=key, message=message)

    def _said(self, text: str) -> str:
        return self._mentioned.sub(lambda found: self._field(found[0]), text)

    def _field(self, key: str) -> str:
        if key in self._fields:
            return self._fields[key]
        section = next((one for one in self._sections if key.startswith(one)), None)
        if section is None:
            return key
        path, rest = self._sections[section], key[len(section) :]
        if _ARROW not in section:
            name = "bootstrapServers" if rest == BOOTSTRAP_SERVERS else f"config.{rest}"
            return f"{path}.{name}"
        if rest in _PATTERN_OF:
            return f"{path}.{_PATTERN_OF[rest]}"
        rest = rest.removeprefix("source.") if rest.startswith("source.consumer.") else rest
        connector = next(
            (one for one, keys in CONNECTOR_ONLY.items() if rest in keys), "sourceConnector"
        )
        return f"{path}.{connector}.config.{rest}"
