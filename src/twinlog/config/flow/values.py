"""Typed reading of one flow's settings, with the defaults of the key table."""

from __future__ import annotations

from twinlog.config.flow.custom_filter import custom_pattern
from twinlog.config.flow.priority import Priorities, to_priorities
from twinlog.config.flow.start import Starts, to_starts
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.config.keys.key_types import KeyKind
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import to_boolean, to_choice, to_names, to_number, trimmed
from twinlog.errors import ConfigError
from twinlog.model import StartKind


class FlowValues:
    """Typed reading of a flow's settings, with the table's defaults."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_all(self) -> None:
        """Every typed key must be readable, also those that do nothing yet: so it is in MM2."""
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
                pass  # any text will do

    def boolean(self, name: str) -> bool:
        return to_boolean(self.setting(name))

    def rounds(self, stem: str) -> tuple[bool, int]:
        """Whether something is done again and again, and every how many seconds."""
        name = f"{stem}.interval.seconds"
        interval = self.number(name)
        if interval == 0:
            raise self.refusal(name, "an interval of 0 cannot be kept", "write at least 1")
        # MM2 turns a negative interval into "never"
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
        """A replication factor; -1 is the broker's default."""
        factor = self.number(name)
        if factor == 0 or factor < -1:
            raise self.refusal(
                name,
                f"{factor} replicas are none",
                "write at least 1, or -1 for the broker's default",
            )
        return factor

    def replicas_or_none(self, name: str) -> int | None:
        """None where it is not given."""
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
        """With its line, or the default."""
        default = DEFINITIONS[name].default or ""
        return self._settings.get(name) or Setting(key=name, value=default, file="<default>")
