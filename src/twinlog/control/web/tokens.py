"""API tokens. A file contains a salted hash of each token, never the token itself.

    NAME:ROLE:SALT:HASH      one per line; SALT and HASH are hexadecimal, HASH is SHA-256 of
                             salt and token

A token is 256 random bits, so one round of a hash is enough, because a dictionary attack is
impossible. The file is read again when it changes, so removing a line locks its client out at the
next request. If the file is unreadable or malformed, no client is admitted.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twinlog.config.rest import RestRole
from twinlog.errors import ConfigError

log = logging.getLogger(__name__)

TOKEN_BYTES: Final = 32
SALT_BYTES: Final = 16
NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_LONGEST_FILE: Final = 1 << 20
_LINE: Final = re.compile(
    rf"(?P<name>{NAME.pattern}):(?P<role>read|operate):"
    r"(?P<salt>[0-9a-f]{32}):(?P<hash>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An authenticated client and its role."""

    name: str
    role: RestRole


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Entry:
    client: Client
    salt: bytes
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NewToken:
    """A token, which is shown once, and its line in the file."""

    token: str
    line: str


def new_token(name: str, role: RestRole) -> NewToken:
    """Create a token from the system's randomness."""
    token, salt = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_bytes(SALT_BYTES)
    return NewToken(
        token=token, line=f"{name}:{role}:{salt.hex()}:{_digest(salt, token.encode()).hex()}"
    )


def _digest(salt: bytes, token: bytes) -> bytes:
    return hashlib.sha256(salt + token).digest()


def append(path: Path, name: str, line: str) -> None:
    """Append a line to the file, creating it with mode 600. Raises ConfigError if the name is in
    use or the file is unusable.
    """
    if path.exists() and any(entry.client.name == name for entry in _read(path)):
        raise ConfigError(
            f"{path}: already has a token named {name}; choose another name, or remove that line "
            "first"
        )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "a+b") as file:
            is_cut = file.seek(0, os.SEEK_END) and not path.read_bytes().endswith(b"\n")
            file.write(b"\n" * bool(is_cut) + line.encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; choose a writable file") from error


class Tokens:
    """The tokens of one file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError if it is unusable or has no token."""
        self._path = path
        self._lock = threading.Lock()
        self._seen = _state(path)
        self._unusable: tuple[int, ...] | None = None
        """The last state of the file for which a warning was logged."""
        self._entries = _read(path)
        if not self._entries:
            raise ConfigError(f"{path}: has no token; create one: twinlog token new {path}")

    def client(self, token: str) -> Client | None:
        """Return the token's client, or None. All lines are compared to prevent timing attacks."""
        presented, matching = token.encode("utf-8", "surrogateescape"), None
        for entry in self._current():
            if hmac.compare_digest(_digest(entry.salt, presented), entry.digest):
                matching = entry.client
        return matching

    def _current(self) -> tuple[_Entry, ...]:
        with self._lock:
            state = _state(self._path)
            if state != self._seen:
                try:
                    self._entries, self._seen = _read(self._path), state
                except ConfigError as error:
                    # the file is read again for the next request, because some causes, such as a
                    # lack of file descriptors, end without a change of the file
                    self._entries = ()
                    if state != self._unusable:
                        self._unusable = state
                        log.warning(
                            "%s; all HTTP clients are refused until this is corrected", error
                        )
            return self._entries


def _state(path: Path) -> tuple[int, ...]:
    try:
        state = path.stat()
    except OSError:
        return ()
    # chmod and chown, which repair a rejected file, change only its ctime
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _advice(error: OSError, path: Path) -> str:
    """Return what to do if the file cannot be read, or "" if the error does not tell."""
    match error:
        case FileNotFoundError():
            return f"; create it: twinlog token new {path}"
        case PermissionError():
            return "; grant this process's user read access to it"
        case IsADirectoryError():
            return "; name a file"
    return ""


def _read(path: Path) -> tuple[_Entry, ...]:
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            text = file.read(_LONGEST_FILE).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}{_advice(error, path)}") from error
    if not stat.S_ISREG(state.st_mode) or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path}: other users may write to it and so add tokens, or it is not a regular file; "
            f"use a regular file, and run chmod 600 {path}"
        )
    if state.st_uid not in (os.getuid(), 0):
        raise ConfigError(f"{path}: belongs to another user; create your own file")
    entries: list[_Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(
                f"{path}:{number}: is not a line of `twinlog token new`; correct it, or create "
                "the file again with that command"
            )
        entries.append(
            _Entry(
                client=Client(name=match["name"], role=RestRole(match["role"])),
                salt=bytes.fromhex(match["salt"]),
                digest=bytes.fromhex(match["hash"]),
            )
        )
    return tuple(entries)
