"""Reads a configuration file: an mm2.properties, a Strimzi resource, or a connector's JSON.

`canonical` writes settings as an mm2.properties: in a fixed order, with current key names.
Variables are kept, so no secret is written that was not in the file before. Parsing the text again
gives the same settings, also with `java.util.Properties`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from twinlog.config.files.connector import (
    flow_of_connectors,
    is_connector,
    names_of_connectors,
    read_connector,
)
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.files.raw import RawConfig, read_bytes
from twinlog.config.flow.precedence import candidate_flows, prefix_of
from twinlog.config.keys.key_table import DEFINITIONS, RENAMED, KeyKind
from twinlog.config.strimzi.resource import find_connector, is_resource, read_resource
from twinlog.config.strimzi.yaml_nodes import parse_yaml
from twinlog.config.values.origin import Setting, Settings
from twinlog.errors import ConfigError

_CLUSTERS = "clusters"
_PATTERNS = tuple(
    name for name, definition in DEFINITIONS.items() if definition.kind is KeyKind.NAMES
)
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_KEY_ESCAPES = _ESCAPES | {" ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}


def canonical(settings: Mapping[str, Setting], aliases: Iterable[str]) -> str:
    """Return a file's text: clusters, general keys, keys of each cluster, keys of each flow."""
    named = {_current_name(key, settings): setting.value for key, setting in settings.items()}
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
    scopes = [*aliases, *map(str, candidate_flows(aliases))]
    by_prefix: dict[str, list[tuple[str, str]]] = {"": [], **{f"{scope}.": [] for scope in scopes}}
    for key, value in left.items():
        by_prefix[prefix_of(key, aliases)].append((key, value))
    yield from by_prefix.values()


def _with_valid_star(key: str, value: str) -> str:
    """Replace a single `*` with `.*`, because Twinlog accepts it, but MirrorMaker 2 does not."""
    if not any(key == name or key.endswith(f".{name}") for name in _PATTERNS):
        return value
    entries = value.split(",")
    if all(entry.strip() != "*" for entry in entries):
        return value
    return ", ".join(".*" if entry.strip() == "*" else entry.strip() for entry in entries)


def _current_name(key: str, settings: Mapping[str, Setting]) -> str:
    """Return the current name of a deprecated key, unless the file also has the current name, which
    then takes precedence.
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
    return "".join(
        f"\\u{units[index]:02X}{units[index + 1]:02X}" for index in range(0, len(units), 2)
    )


def read_files(paths: Iterable[Path], secrets: Path | None = None) -> list[RawConfig]:
    """Return the settings of several files. The connectors of one flow become one configuration."""
    read: list[RawConfig] = []
    for path in paths:
        raw = _read(path, secrets)
        for index, other in enumerate(read):
            if raw.connectors and raw.connectors[0].is_of_flow(other.connectors):
                read[index] = _merged(other, raw)
                break
        else:
            read.append(raw)
    return [_completed(raw) for raw in read]


def read_raw(path: Path, secrets: Path | None = None) -> RawConfig:
    """Return the file's settings. `secrets` is the folder for a resource's Kubernetes secrets."""
    return _completed(_read(path, secrets))


def _read(path: Path, secrets: Path | None) -> RawConfig:
    """Return the file's settings. Settings of connectors are only in `connectors`, unconverted."""
    data = read_bytes(path, "an mm2.properties file or a KafkaMirrorMaker2 resource")
    text = decode(data)
    if is_resource(path, text):
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ConfigError(
                "YAML must be UTF-8; save the file as UTF-8", file=str(path), line=line
            ) from error
        documents = list(parse_yaml(text, file=str(path)))
        connector = find_connector(documents)
        if connector is None:
            return read_resource(documents, file=str(path), secrets=secrets)
        return RawConfig(
            file=str(path), settings=connector, connectors=(read_connector(connector),)
        )
    properties = parse_properties(text, file=str(path))
    settings = properties.settings
    return RawConfig(
        file=str(path),
        settings=settings,
        warnings=properties.warnings,
        connectors=(read_connector(settings),) if is_connector(settings) else (),
    )


def _merged(first: RawConfig, second: RawConfig) -> RawConfig:
    return replace(
        first,
        more_files=(*first.more_files, second.file),
        connectors=first.connectors + second.connectors,
        warnings=first.warnings + second.warnings,
    )


def _completed(raw: RawConfig) -> RawConfig:
    """Return the settings. Settings of connectors are converted to those of one flow."""
    if not raw.connectors:
        return raw
    settings, warnings = flow_of_connectors(raw.connectors)
    return replace(
        raw,
        settings=Settings(settings),
        warnings=(*raw.warnings, *warnings),
        names=names_of_connectors(raw.connectors[0].flow),
    )
