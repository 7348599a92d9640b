"""Kubernetes secrets as a folder: `DIR/<secretName>/<key>`, named in values and never read into
them here.

A reference becomes the variable `${strimzi:DIR/secretName:key}` of Kafka's own
DirectoryConfigProvider, so that what comes of it is hidden like any looked-up value, and a
converted file holds no secret.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol

from twinlog.config.files.providers import PACKAGE
from twinlog.errors import ConfigError

PROVIDER: Final = "strimzi"
PROVIDER_CLASS: Final = PACKAGE + "DirectoryConfigProvider"

UNREAD: Final = Path("/SECRETS")
"""In place of the folder, where what is in it is not needed: to explain a file, to convert it."""

UNGIVEN: Final = Path("/NO-SECRETS")
"""In place of a folder that is needed, and that nobody named: an error says so."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NOT_IN_A_VARIABLE: Final = re.compile(r"[:{}$]")
_NOT_IN_JAAS: Final = re.compile(r'["\\\r\n]')


class Named(Protocol):
    """A name with its place in the file."""

    def text(self) -> str:
        """The name."""

    def refuse(self, what: str, todo: str) -> ConfigError:
        """The error for it."""


class Secrets:
    """The folder of `--secrets`; None where nobody gave one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.absolute()
        self.is_used = False
        self.error: ConfigError | None = None
        """That no folder was given, where one is needed; said once, for all secrets."""
        if self._folder is not None and _NOT_IN_A_VARIABLE.search(str(self._folder)):
            raise ConfigError(
                f"--secrets: {self._folder}: a path with one of : {{ }} $ cannot be written into a "
                "configuration; use another folder"
            )

    @property
    def is_read(self) -> bool:
        """Whether files of secrets are checked."""
        return self._folder not in (None, UNREAD)

    def folder(self, secret: str) -> str | None:
        """Return where a secret's files are, or None if they are not read."""
        if self._folder is None or not self.is_read or not _is_name(secret):
            return None
        return str(self._folder / secret)

    def holds(self, secret: str, key: str) -> bool:
        """Return True if the folder has the file of a secret's key."""
        folder = self.folder(secret)
        return folder is not None and _is_name(key) and (Path(folder) / key).is_file()

    def text(self, secret: Named, key: Named) -> str:
        """A variable for a file of a secret, which must be readable."""
        path = self._secret(secret) / _checked(key)
        if self.is_read:
            self._read(path, key)
        return self._variable(path)

    def jaas_text(self, secret: Named, key: Named) -> str:
        """The same between the quotes of a JAAS option, where not every character can stand."""
        path = self._secret(secret) / _checked(key)
        if self.is_read and _NOT_IN_JAAS.search(self._read(path, key)):
            raise key.refuse(
                f"{path} ends in a line end, or holds a quote or a backslash",
                "write the password alone (printf %s), or choose one without them",
            )
        return self._variable(path)

    def matching(self, secret: Named, pattern: Named) -> list[str]:
        """Variables for all files of a secret whose names match; at least one."""
        folder = self._secret(secret)
        if not self.is_read:
            return [self._variable(folder / pattern.text())]
        try:
            names = sorted(path.name for path in folder.iterdir() if path.is_file())
        except OSError as error:
            raise _unreadable(secret, folder, error) from error
        found = [name for name in names if fnmatchcase(name, pattern.text()) and _is_name(name)]
        if not found:
            raise pattern.refuse(f"no file of {folder} matches", "correct the pattern")
        return [self._variable(folder / name) for name in found]

    def _secret(self, secret: Named) -> Path:
        if self._folder is None:
            self.error = self.error or secret.refuse(
                "the secret must be in a folder here",
                "name it: --secrets DIR with a file DIR/<secretName>/<key> for each key",
            )
        return (self._folder or UNGIVEN) / _checked(secret)

    def _variable(self, path: Path) -> str:
        self.is_used = True
        return f"${{{PROVIDER}:{path.parent}:{path.name}}}"

    @staticmethod
    def _read(path: Path, key: Named) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(key, path, error) from error


def _unreadable(node: Named, path: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    why = (error.strerror if isinstance(error, OSError) else None) or "is no text"
    return node.refuse(
        f"the secret {path} cannot be read: {why}", "check --secrets, the names and permissions"
    )


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _checked(node: Named) -> str:
    text = node.text()
    if not _is_name(text):
        raise node.refuse(f'"{text}" is no name of a secret or of a key in one', "correct it")
    return text
