"""Reads a configuration file of any kind: mm2.properties, or a Strimzi resource."""

from __future__ import annotations

from pathlib import Path

from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.files.raw import RawConfig, dropped_backslashes, read_bytes, settings_of
from twinlog.config.strimzi.document import is_resource
from twinlog.config.strimzi.resource import read_resource
from twinlog.errors import ConfigError


def read_raw(path: Path, secrets: Path | None = None) -> RawConfig:
    """The file's settings; `secrets` is the folder for a resource's Kubernetes secrets."""
    data = read_bytes(path, "an mm2.properties file or a KafkaMirrorMaker2 resource")
    text = decode(data)
    if is_resource(path, text):
        return read_resource(_utf_8(data, path), file=str(path), secrets=secrets)
    properties = parse_properties(text, file=str(path))
    return RawConfig(
        file=properties.file,
        settings=settings_of(properties),
        duplicates=properties.duplicates,
        warnings=tuple(dropped_backslashes(properties)),
        is_latin_1=True,
    )


def _utf_8(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "YAML must be UTF-8; save the file so", file=str(path), line=line
        ) from error
