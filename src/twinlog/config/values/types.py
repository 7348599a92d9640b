"""Converts text to values by the rules of Kafka's ConfigDef. Every error names its line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinlog.addresses import Address, parse_address
from twinlog.config.regex.reader import RegexProblem
from twinlog.config.values.origin import Setting
from twinlog.config.values.origin import refuse as refuse_setting
from twinlog.errors import ConfigError

if TYPE_CHECKING:
    from twinlog.config.regex.patterns import NamePattern

REGEX_INVALID = "REGEX_INVALID"

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""Characters that String.trim removes: everything up to and including the space."""

NUMBER = re.compile(r"[+-]?[0-9]{1,999}")  # `int` fails for more than 4300 digits
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")

_UNITS_OF_KEYS = {".seconds": 1_000, ".ms": 1}
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(rf"([0-9]{{1,9}})\s*({'|'.join(_UNITS_MS)})")

_WIDTHS = {"short": 16, "int": 32, "long": 64}


def trimmed(text: str) -> str:
    return text.strip(_JAVA_BLANKS)


def refuse(setting: Setting, what: str, todo: str, *, code: str | None = None) -> ConfigError:
    """Return the error for an invalid value, or for an unresolved variable in the value."""
    if "${" in setting.value and not setting.from_provider and not setting.has_placeholder:
        what = f"{setting.shown} has a variable without a value"
        todo = "no provider of config.providers has a value for it: set it, or add its provider"
        code = None
    return refuse_setting(setting, what, todo, code=code)


def parse_boolean(text: str) -> bool:
    """Return True for "true" in any case, and False for all other text. As in Boolean.parseBoolean,
    nothing is trimmed.
    """
    return text.lower() == "true"


def to_boolean(setting: Setting) -> bool:
    """Parse "true" or "false" in any case, trimmed, like ConfigDef's BOOLEAN."""
    text = trimmed(setting.value).lower()
    if text not in ("true", "false"):
        raise refuse(setting, f"{setting.shown} is not a boolean", "write true or false")
    return text == "true"


def _advice_for_duration(setting: Setting) -> str | None:
    """Return `write NUMBER` for a value such as `10m` if the key has a unit, else None."""
    written = _DURATION.fullmatch(setting.value.strip().lower())
    unit = next((ms for end, ms in _UNITS_OF_KEYS.items() if setting.key.endswith(end)), None)
    if written is None or unit is None or setting.secret:
        return None
    number, rest = divmod(int(written[1]) * _UNITS_MS[written[2]], unit)
    return None if rest else f"write {number}"


def to_number(setting: Setting, *, width: str, low: int | None) -> int:
    """Parse an integer as ConfigDef's SHORT, INT or LONG (`width`), with `low` as lower bound."""
    text = trimmed(setting.value)
    limit = 1 << (_WIDTHS[width] - 1)
    if not NUMBER.fullmatch(text) or not -limit <= int(text) < limit:
        todo = _advice_for_duration(setting) or "write digits only"
        if NUMBER.fullmatch(text):
            todo = f"write a number from {-limit if low is None else low} to {limit - 1}"
        raise refuse(setting, f"{setting.shown} is not a whole number ({width})", todo)
    number = int(text)
    if low is not None and number < low:
        raise refuse(setting, f"{number} is too small", f"write at least {low}")
    return number


def to_list(setting: Setting) -> tuple[str, ...]:
    """Parse a list as ConfigDef's LIST: trimmed, split at commas and surrounding blanks. An empty
    text has no entries.
    """
    text = trimmed(setting.value)
    return tuple(_COMMA.split(text)) if text else ()


def to_choice(setting: Setting, choices: Sequence[str], *, any_case: bool = False) -> str:
    text = trimmed(setting.value)
    for choice in choices:
        if text == choice or (any_case and text.lower() == choice.lower()):
            return choice
    raise refuse(setting, f"{setting.shown} is not a valid value", f"write {' or '.join(choices)}")


def to_names(setting: Setting) -> NamePattern:
    """Parse a list of regular expressions. A ConfigError names the column of the mistake."""
    return _compiled(setting, to_list(setting))


def to_pattern(setting: Setting) -> NamePattern:
    """Parse one regular expression. A ConfigError names the column of the mistake."""
    return _compiled(setting, (setting.value,))


def _compiled(setting: Setting, entries: Sequence[str]) -> NamePattern:
    from twinlog.config.regex.patterns import compile_names  # local, because no lane needs it

    try:
        return compile_names(entries)
    except RegexProblem as problem:
        column = _column_in_value(setting.value, entries, problem.column)
        raise refuse(
            setting,
            f"{setting.shown} is not a valid regular expression: column {column}: {problem.reason}",
            "patterns have Java's syntax and must match the whole name",
            code=REGEX_INVALID,
        ) from problem


def to_servers(setting: Setting) -> tuple[Address, ...]:
    """Parse bootstrap.servers: at least one host:port, in any notation that Java accepts."""
    servers: list[Address] = []
    for entry in to_list(setting):
        if not entry:
            continue
        server = parse_address(entry)
        if server is None or not server.port:
            todo = f"add the port, for example {entry.split(maxsplit=1)[0]}:9092"
            if ":" in entry:
                todo = "write host:port with a port from 1 to 65535, separated by commas"
            if entry[0] in "\"'":
                todo = "remove the quotes"
            raise refuse(setting, f'"{entry}" is not host:port', todo)
        if server not in servers:
            servers.append(server)
    if not servers:
        raise refuse(setting, "has no server", "write host:port, separated by commas")
    return tuple(servers)


def _column_in_value(value: str, entries: Sequence[str], column: int) -> int:
    """Convert a column of the joined expression to a column of the value, for messages."""
    from twinlog.config.regex.patterns import joined

    start_in_value = 0
    start_in_joined = 0
    for entry in entries:
        start_in_value = value.index(entry, start_in_value)
        length = len(joined([entry]))
        if column <= start_in_joined + length + 1:
            return start_in_value + column - start_in_joined
        start_in_joined += length + 1
        start_in_value += len(entry)
    return column
