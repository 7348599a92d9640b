"""Reads a configuration file of any kind: mm2.properties, or a Strimzi resource."""

from __future__ import annotations

from pathlib import Path

from twinlog.config.origin import Setting, Settings
from twinlog.config.properties import PropertiesText, decode, parse_properties
from twinlog.config.raw import RawConfig
from twinlog.config.strimzi import read_resource
from twinlog.config.strimzi_document import looks_like_resource
from twinlog.errors import ConfigError


def read_raw(path: Path, secrets: Path | None = None) -> RawConfig:
    """The file's settings; `secrets` is the folder for a resource's Kubernetes secrets."""
    data = read_bytes(path, "an mm2.properties file or a KafkaMirrorMaker2 resource")
    text = decode(data)
    if looks_like_resource(path, text):
        return read_resource(_utf_8(data, path), file=str(path), secrets=secrets)
    properties = parse_properties(text, file=str(path))
    return RawConfig(
        file=properties.file,
        settings=settings_of(properties),
        duplicates=properties.duplicates,
        is_latin_1=True,
    )


def read_bytes(path: Path, wanted: str) -> bytes:
    """A whole file; `wanted` says what it should be."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; name {wanted}") from error
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; check path and permissions"
        ) from error


def settings_of(text: PropertiesText) -> Settings:
    """The entries of a properties file, each with its line."""
    return Settings(
        {
            entry.key: Setting(key=entry.key, value=entry.value, file=text.file, line=entry.line)
            for entry in text.entries
        }
    )


def _utf_8(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: YAML must be UTF-8; save the file so") from error
