"""The secrets of a configuration file that cannot be read as one: its lines, taken as text.

A bundle is often asked for because a file is wrong. Its mirror has run before, and what it logged
may name secrets of the file. So every line that looks like a setting counts, also one that is
commented out or stands twice, and every option in it. Where a secret may be somewhere else (a
config provider's variable, a Kubernetes secret), nobody can know it: NotKnown.
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
    """Why the secrets of a file are not all known."""


def settings_of_text(path: Path) -> list[Setting]:
    """What looks like a secret in the file; raises NotKnown."""
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise NotKnown(f"{path} cannot be read: {error.strerror}") from None
    if is_resource(path, text):
        raise NotKnown(f"the secrets of {path} are elsewhere")
    found = list(_settings(path, text))
    if any(_VARIABLE.search(setting.value) for setting in found):
        raise NotKnown(f"{path} has variables, and what they stand for is not known")
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
    """Each with its continuations, commented out or not."""
    pending = ""
    for line in text.splitlines():
        pending += line.lstrip(" \t\f#!")
        if _ENDS_IN_ESCAPE.search(pending):
            pending = pending[:-1]
        else:
            yield pending
            pending = ""
    yield pending
