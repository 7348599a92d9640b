"""Reads a configuration file: an mm2.properties, a Strimzi resource, or a connector's JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from twinlog.config.files.connector import (
    flow_of_connectors,
    is_connector,
    names_of_connectors,
    read_connector,
)
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.files.raw import RawConfig, audit_text, read_bytes, settings_of
from twinlog.config.strimzi.resource import find_connector, is_resource, read_resource
from twinlog.config.strimzi.yaml_nodes import parse_yaml
from twinlog.config.values.origin import Settings
from twinlog.errors import ConfigError


def read_files(paths: Iterable[Path], secrets: Path | None = None) -> list[RawConfig]:
    """Return the settings of several files. The connectors of one flow become one configuration."""
    read: list[RawConfig] = []
    for path in paths:
        raw = _read(path, secrets)
        for at, other in enumerate(read):
            if raw.connectors and raw.connectors[0].is_of_flow(other.connectors):
                read[at] = _merged(other, raw)
                break
        else:
            read.append(raw)
    return [_completed(raw) for raw in read]


def read_raw(path: Path, secrets: Path | None = None) -> RawConfig:
    """Return the file's settings. `secrets` is the folder for a resource's Kubernetes secrets."""
    return _completed(_read(path, secrets))


def _read(path: Path, secrets: Path | None) -> RawConfig:
    """Return the file's settings. Those of a connector are only in `connectors`."""
    data = read_bytes(path, "an mm2.properties file or a KafkaMirrorMaker2 resource")
    text = decode(data)
    if is_resource(path, text):
        documents = list(parse_yaml(_utf_8(data, path), file=str(path)))
        connector = find_connector(documents)
        if connector is None:
            return read_resource(documents, file=str(path), secrets=secrets)
        return RawConfig(
            file=str(path), settings=connector, connectors=(read_connector(connector),)
        )
    properties = parse_properties(text, file=str(path))
    settings = settings_of(properties)
    return RawConfig(
        file=properties.file,
        settings=settings,
        duplicates=properties.duplicates,
        warnings=tuple(audit_text(properties)),
        connectors=(read_connector(settings),) if is_connector(settings) else (),
    )


def _merged(first: RawConfig, second: RawConfig) -> RawConfig:
    return replace(
        first,
        more_files=(*first.more_files, second.file),
        connectors=first.connectors + second.connectors,
        duplicates=first.duplicates + second.duplicates,
        warnings=first.warnings + second.warnings,
    )


def _completed(raw: RawConfig) -> RawConfig:
    """Return the settings, with those of the connectors' flow if there are connectors."""
    if not raw.connectors:
        return raw
    settings, warnings = flow_of_connectors(raw.connectors)
    return replace(
        raw,
        settings=Settings(settings),
        warnings=(*raw.warnings, *warnings),
        names=names_of_connectors(raw.connectors[0].flow),
    )


def _utf_8(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "YAML must be UTF-8; save the file as UTF-8", file=str(path), line=line
        ) from error
