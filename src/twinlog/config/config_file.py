"""Reads a configuration file: an mm2.properties, a Strimzi resource, or a connector's JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from twinlog.config.files.connector import is_connector, read_connector
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.files.raw import RawConfig, audit_text, read_bytes, settings_of
from twinlog.config.strimzi.document import find_connector, is_resource
from twinlog.config.strimzi.resource import read_resource
from twinlog.config.strimzi.yaml_nodes import parse_yaml
from twinlog.config.values.origin import Settings
from twinlog.errors import ConfigError


def read_raw(path: Path, secrets: Path | None = None) -> RawConfig:
    """Return the file's settings. `secrets` is the folder for a resource's Kubernetes secrets."""
    data = read_bytes(path, "an mm2.properties file or a KafkaMirrorMaker2 resource")
    text = decode(data)
    if is_resource(path, text):
        documents = list(parse_yaml(_utf_8(data, path), file=str(path)))
        connector = find_connector(documents)
        if connector is None:
            return read_resource(documents, file=str(path), secrets=secrets)
        return _connector(RawConfig(file=str(path), settings=connector))
    properties = parse_properties(text, file=str(path))
    raw = RawConfig(
        file=properties.file,
        settings=settings_of(properties),
        duplicates=properties.duplicates,
        warnings=tuple(audit_text(properties)),
    )
    return _connector(raw) if is_connector(raw.settings) else raw


def _connector(raw: RawConfig) -> RawConfig:
    settings, warnings, names = read_connector(raw.settings)
    warnings = (*raw.warnings, *warnings)
    return replace(raw, settings=Settings(settings), warnings=warnings, names=names)


def _utf_8(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "YAML must be UTF-8; save the file as UTF-8", file=str(path), line=line
        ) from error
