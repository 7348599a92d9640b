"""Kubernetes secrets as a folder with files `DIR/<secretName>/<key>`.

Values refer to the files and do not contain their content. A reference becomes the variable
`${strimzi:DIR/secretName:key}` of Kafka's DirectoryConfigProvider, so its value is masked like any
other resolved value, and a converted file contains no secret.
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
"""Placeholder for the folder if secrets are not needed: to explain or convert a file."""

UNGIVEN: Final = Path("/NO-SECRETS")
"""Placeholder for a folder that is needed but was not given; an error reports this."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NOT_IN_A_VARIABLE: Final = re.compile(r"[:{}$]")
_NOT_IN_JAAS: Final = re.compile(r'["\\\r\n]')


class Named(Protocol):
    """A name and its location in the file."""

    def text(self) -> str:
        """Return the name."""

    def refuse(self, what: str, todo: str) -> ConfigError:
        """Return an error at the location of the name."""


class Secrets:
    """The folder given with `--secrets`, if any."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.absolute()
        self.is_used = False
        self.error: ConfigError | None = None
        """Set if a folder is needed but was not given. Reported once for all secrets."""
        if self._folder is not None and _NOT_IN_A_VARIABLE.search(str(self._folder)):
            raise ConfigError(
                f"--secrets: {self._folder}: a path with one of : {{ }} $ cannot be "
                "written into a configuration; use another folder"
            )

    @property
    def is_read(self) -> bool:
        """Return True if files of secrets are read."""
        return self._folder not in (None, UNREAD)

    def folder(self, secret: str) -> str | None:
        """Return the folder of a secret, or None if secrets are not read."""
        if self._folder is None or not self.is_read or not _is_name(secret):
            return None
        return str(self._folder / secret)

    def holds(self, secret: str, key: str) -> bool:
        """Return True if the folder has the file of a secret's key."""
        folder = self.folder(secret)
        return folder is not None and _is_name(key) and (Path(folder) / key).is_file()

    def text(self, secret: Named, key: Named) -> str:
        """Return a variable for a file of a secret. Raises ConfigError if it cannot be read."""
        path = self._secret(secret) / _checked(key)
        if self.is_read:
            self._read(path, key)
        return self._variable(path)

    def jaas_text(self, secret: Named, key: Named) -> str:
        """Like `text`, for a quoted JAAS option. Raises ConfigError if it cannot represent the
        value.
        """
        path = self._secret(secret) / _checked(key)
        if self.is_read and _NOT_IN_JAAS.search(self._read(path, key)):
            raise key.refuse(
                f"{path} ends with a line break, or contains a quote or a backslash",
                "write the password without a line break (printf %s), or choose one "
                "without these characters",
            )
        return self._variable(path)

    def matching(self, secret: Named, pattern: Named) -> list[str]:
        """Return variables for all files of a secret whose names match. Raises ConfigError if there
        are none.
        """
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
                "the secret must be read from a folder",
                "set --secrets DIR with a file DIR/<secretName>/<key> for each key",
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
    why = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
    return node.refuse(
        f"the secret {path} cannot be read: {why}", "check --secrets, the names and permissions"
    )


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _checked(node: Named) -> str:
    text = node.text()
    if not _is_name(text):
        raise node.refuse(
            (f'"{text}" is not a valid name of a secret or of a key in one'), "correct it"
        )
    return text
