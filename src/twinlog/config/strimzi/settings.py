"""Collects what a resource says, under the keys of mm2.properties."""

from __future__ import annotations

from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting
from twinlog.config.values.warnings import ConfigWarning, WarningCode


class Collected:
    """Settings, each set once, and warnings."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.settings: dict[str, Setting] = {}
        self.sections: dict[str, str] = {}
        """Of each flow and cluster: what its keys begin with, and where it stands."""
        self.warnings: list[ConfigWarning] = []

    def set(self, key: str, value: str, at: Node) -> None:
        """Keep a value with its line; raises ConfigError where the key has one already."""
        there = self.settings.get(key)
        if there is not None:
            raise at.refuse(f"{there.field} on line {there.line} says it already", "say it once")
        self.settings[key] = Setting(
            key=key, value=value, file=at.file, line=at.line, field=at.path
        )

    def warn(self, at: Node, message: str) -> None:
        """A key that does nothing where it stands."""
        self._add(WarningCode.DEAD_KEY, at.line, at.path, message)

    def read_as(self, at: Node, message: str) -> None:
        """Warn that a resource of another API group, such as IBM's, is read as Strimzi's."""
        self._add(WarningCode.READ_AS, at.line, at.path, message)

    def say(self, message: str) -> None:
        """Warn of fields that have no meaning here."""
        self._add(WarningCode.NO_MEANING, None, "", message)

    def _add(self, code: WarningCode, line: int | None, key: str, message: str) -> None:
        self.warnings.append(
            ConfigWarning(code=code, file=self._file, line=line, key=key, message=message)
        )
