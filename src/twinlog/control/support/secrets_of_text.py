"""The secrets of a configuration file that cannot be parsed, taken from its lines.

A support bundle is often requested because a file is wrong. Its mirror has run before, and its logs
may contain secrets of the file. Every line that looks like a setting is therefore used, including
comments and duplicates, with every option in it. If a secret may be stored elsewhere (a variable of
a config provider, a Kubernetes secret), NotKnown is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.strimzi.document import is_resource
from twinlog.config.values.origin import Setting, is_secret
from twinlog.errors import ConfigError

_VARIABLE: Final = re.compile(r"\$\{[^}]*:")
_ENDS_IN_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")


class NotKnown(Exception):
    """Why not all secrets of a file are known."""


def settings_of_text(path: Path) -> list[Setting]:
    """Return the settings of the file that look like secrets. Raises NotKnown."""
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise NotKnown(f"{path} cannot be read: {error.strerror}") from None
    if is_resource(path, text):
        raise NotKnown(f"the secrets of {path} are stored elsewhere")
    found = list(_settings(path, text))
    if any(_VARIABLE.search(setting.value) for setting in found):
        raise NotKnown(f"{path} has variables whose values are unknown")
    return [setting for setting in found if is_secret(setting.key)]


def _settings(path: Path, text: str) -> Iterator[Setting]:
    for line in _logical_lines(text):
        try:
            entries = parse_properties(line).entries
        except ConfigError:
            raise NotKnown(f"a line of {path} cannot be read") from None
        for entry in entries:
            yield Setting(key=entry.key, value=entry.value, file=str(path))
            # a lost backslash before the end of a line makes the rest of a JAAS line a key
            for name, value in _OPTION.findall(f"{entry.key}={entry.value}"):
                yield Setting(key=name, value=value.strip("\"'"), file=str(path))


def _logical_lines(text: str) -> Iterator[str]:
    """Yield each line joined with its continuations, including comments."""
    pending = ""
    for line in text.splitlines():
        pending += line.lstrip(" \t\f#!")
        if _ENDS_IN_ESCAPE.search(pending):
            pending = pending[:-1]
        else:
            yield pending
            pending = ""
    yield pending
