"""Collects the settings of a resource under the keys of mm2.properties."""

from __future__ import annotations

from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting
from twinlog.config.values.warnings import ConfigWarning, WarningCode


class Collected:
    """Settings, each set at most once, and warnings."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.settings: dict[str, Setting] = {}
        self.sections: dict[str, str] = {}
        """Key prefix of each flow and cluster, and the path of its section."""
        self.warnings: list[ConfigWarning] = []

    def set(self, key: str, value: str, at: Node) -> None:
        """Store a value with its line. Raises ConfigError if the key is already set."""
        there = self.settings.get(key)
        if there is not None:
            raise at.refuse(
                f"already set by {there.field} on line {there.line}", ("remove one of them")
            )
        self.settings[key] = Setting(
            key=key, value=value, file=at.file, line=at.line, field=at.path
        )

    def warn(self, at: Node, message: str) -> None:
        """Warn of a key that has no effect in its section."""
        self._add(WarningCode.DEAD_KEY, at.line, at.path, message)

    def read_as(self, at: Node, message: str) -> None:
        """Warn that a resource of another API group, such as IBM's, is read as Strimzi's."""
        self._add(WarningCode.READ_AS, at.line, at.path, message)

    def say(self, message: str) -> None:
        """Warn of fields that have no effect in Twinlog."""
        self._add(WarningCode.NO_MEANING, None, "", message)

    def _add(self, code: WarningCode, line: int | None, key: str, message: str) -> None:
        self.warnings.append(
            ConfigWarning(code=code, file=self._file, line=line, key=key, message=message)
        )
