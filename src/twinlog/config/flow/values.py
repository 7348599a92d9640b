"""Reads one flow's settings as typed values, with the defaults of the key table."""

from __future__ import annotations

from twinlog.config.flow.custom_classes import custom_pattern
from twinlog.config.flow.start import Priorities, Starts, to_priorities, to_starts
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.config.keys.key_types import KeyKind
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import to_boolean, to_choice, to_names, to_number, trimmed
from twinlog.errors import ConfigError
from twinlog.model import StartKind


class FlowValues:
    """A flow's settings as typed values."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_all(self) -> None:
        """Raise ConfigError if any typed key has an invalid value, even one without effect, as
        MirrorMaker 2 does.
        """
        for name in self._settings:
            if name in DEFINITIONS:
                self._check(name)

    def _check(self, name: str) -> None:
        match DEFINITIONS[name].kind:
            case KeyKind.BOOLEAN:
                self.boolean(name)
            case KeyKind.SHORT | KeyKind.INT | KeyKind.LONG:
                self.number_or_none(name)
            case KeyKind.CHOICE:
                self.choice_or(name, "")
            case KeyKind.NAMES:
                self.names(name)
            case KeyKind.STRING | KeyKind.LIST:
                pass  # any text is valid

    def boolean(self, name: str) -> bool:
        return to_boolean(self.setting(name))

    def rounds(self, stem: str) -> tuple[bool, int]:
        """Return whether a periodic task is enabled, and its interval in seconds."""
        name = f"{stem}.interval.seconds"
        interval = self.number(name)
        if interval == 0:
            raise self.refusal(name, "the interval must not be 0", "write at least 1")
        # MirrorMaker 2 treats a negative interval as "never"
        return self.boolean(f"{stem}.enabled") and interval > 0, interval

    def priorities(self, name: str) -> Priorities:
        return to_priorities(self.setting(name))

    def starts(self, name: str, reset: StartKind) -> Starts:
        setting = self._settings.get(name)
        return Starts.everywhere(reset) if setting is None else to_starts(setting, reset)

    def number(self, name: str) -> int:
        return self._number(name, self.setting(name))

    def number_or_none(self, name: str) -> int | None:
        setting = self._settings.get(name)
        return None if setting is None else self._number(name, setting)

    def _number(self, name: str, setting: Setting) -> int:
        definition = DEFINITIONS[name]
        return to_number(setting, width=definition.kind.value, low=definition.low)

    def replicas(self, name: str) -> int:
        """Return a replication factor; -1 is the broker's default."""
        factor = self.number(name)
        if factor == 0 or factor < -1:
            raise self.refusal(
                name,
                f"{factor} is not a number of replicas",
                "write at least 1, or -1 for the broker's default",
            )
        return factor

    def replicas_or_none(self, name: str) -> int | None:
        """Return a replication factor, or None if the key is not set."""
        return self.replicas(name) if name in self._settings else None

    def names(self, name: str) -> NamePattern:
        return custom_pattern(self._settings, name) or to_names(self.setting(name))

    def text(self, name: str) -> str:
        return trimmed(self.setting(name).value)

    def text_or(self, name: str, default: str) -> str:
        setting = self._settings.get(name)
        return default if setting is None else trimmed(setting.value)

    def choice_or(self, name: str, default: str) -> str:
        setting = self._settings.get(name)
        return default if setting is None else to_choice(setting, DEFINITIONS[name].choices)

    def refusal(self, name: str, what: str, todo: str) -> ConfigError:
        return refuse(self._settings[name], what, todo)

    def setting(self, name: str) -> Setting:
        """Return a setting with its line, or its default."""
        default = DEFINITIONS[name].default or ""
        return self._settings.get(name) or Setting(key=name, value=default, file="<default>")
