"""Writes settings as an mm2.properties: in a fixed order, with current key names.

Variables are kept, so no secret is written that was not in the file before. Parsing the text again
gives the same settings, also with `java.util.Properties`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twinlog.config.flow.precedence import candidate_flows
from twinlog.config.keys.key_table import DEFINITIONS, RENAMED
from twinlog.config.keys.key_types import KeyKind
from twinlog.config.values.origin import Setting

_CLUSTERS = "clusters"
_PATTERNS = tuple(
    name for name, definition in DEFINITIONS.items() if definition.kind is KeyKind.NAMES
)
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_KEY_ESCAPES = _ESCAPES | {" ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}


def canonical(settings: Mapping[str, Setting], aliases: Iterable[str]) -> str:
    """Return the whole file: clusters, general keys, keys of each cluster, keys of each flow."""
    named = {_todays_name(key, settings): setting.value for key, setting in settings.items()}
    values = {key: _with_valid_star(key, value) for key, value in named.items()}
    sections = [section for section in _sections(values, list(aliases)) if section]
    return "\n".join("".join(map(_line, section)) for section in sections)


def _line(pair: tuple[str, str]) -> str:
    key, value = pair
    escaped = _escaped(key, _KEY_ESCAPES)
    text = _escaped(value, _ESCAPES)
    if text.startswith(" "):
        text = "\\" + text
    return f"{escaped} = {text}".rstrip(" " if not value else "") + "\n"


def _sections(values: Mapping[str, str], aliases: list[str]) -> Iterator[list[tuple[str, str]]]:
    left = dict(values)
    clusters = left.pop(_CLUSTERS, None)
    yield [] if clusters is None else [(_CLUSTERS, clusters)]
    flows = [f"{flow}." for flow in candidate_flows(aliases)]
    # `A.` may be a prefix of `A.B.`, which is another cluster, so the longest prefix applies
    prefixes = sorted([*(f"{alias}." for alias in aliases), *flows], key=len, reverse=True)
    of_prefix: dict[str, list[tuple[str, str]]] = {prefix: [] for prefix in prefixes}
    general: list[tuple[str, str]] = []
    for key, value in left.items():
        prefix = next((prefix for prefix in prefixes if key.startswith(prefix)), None)
        (general if prefix is None else of_prefix[prefix]).append((key, value))
    yield general
    for prefix in [*(f"{alias}." for alias in aliases), *flows]:
        yield of_prefix[prefix]


def _with_valid_star(key: str, value: str) -> str:
    """Replace a single `*` with `.*`, because Twinlog accepts it, but MirrorMaker 2 does not."""
    if not any(key == name or key.endswith(f".{name}") for name in _PATTERNS):
        return value
    entries = value.split(",")
    if all(entry.strip() != "*" for entry in entries):
        return value
    return ", ".join(".*" if entry.strip() == "*" else entry.strip() for entry in entries)


def _todays_name(key: str, settings: Mapping[str, Setting]) -> str:
    """Return the current name of a deprecated key, unless the file also has the current name, which
    then applies.
    """
    for old, new in RENAMED.items():
        if (key == old or key.endswith(f".{old}")) and not any(
            other == new or other.endswith(f".{new}") for other in settings
        ):
            return key[: len(key) - len(old)] + new
    return key


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char) or _escaped_char(char) for char in text)


def _escaped_char(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))
