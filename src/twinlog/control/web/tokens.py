"""Tokens by which clients come in: a file has a salted hash of each, never the token itself.

    NAME:ROLE:SALT:HASH      one a line; SALT and HASH are hexadecimal, HASH is SHA-256 of
                             salt and token

A token is 256 random bits, so one round of a hash is enough: there is no dictionary to try. The
file is read again when it changes: a line that is removed shuts its client out at the next
request. A file that cannot be read, or is not as written here, lets nobody in.
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
    """Who asks, and what it may do."""

    name: str
    role: RestRole

    @property
    def may_operate(self) -> bool:
        return self.role is RestRole.OPERATE


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
    """From the system's randomness."""
    token, salt = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_bytes(SALT_BYTES)
    return NewToken(
        token=token, line=f"{name}:{role}:{salt.hex()}:{_digest(salt, token.encode()).hex()}"
    )


def _digest(salt: bytes, token: bytes) -> bytes:
    return hashlib.sha256(salt + token).digest()


def append(path: Path, name: str, line: str) -> None:
    """One more line, for this user alone to read; raises ConfigError where the name is taken or the
    file cannot be used.
    """
    if path.exists() and any(one.client.name == name for one in _read(path)):
        raise ConfigError(
            f"{path}: has a token of the name {name}; give this one another name, or take that "
            "line away first"
        )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "a+b") as file:
            is_cut = file.seek(0, os.SEEK_END) and not path.read_bytes().endswith(b"\n")
            file.write(b"\n" * bool(is_cut) + line.encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file that can be written") from error


class Tokens:
    """Those of one file, as it is now."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a file that lets nobody in."""
        self._path = path
        self._lock = threading.Lock()
        self._seen = _state(path)
        self._entries = _read(path)
        if not self._entries:
            raise ConfigError(f"{path}: has no token; make one: twinlog token new {path}")

    def client(self, token: str) -> Client | None:
        """Whose it is; every line is compared, so that time shows nothing."""
        given, found = token.encode("utf-8", "surrogateescape"), None
        for entry in self._current():
            if hmac.compare_digest(_digest(entry.salt, given), entry.digest):
                found = entry.client
        return found

    def _current(self) -> tuple[_Entry, ...]:
        with self._lock:
            state = _state(self._path)
            if state != self._seen:
                self._seen = state
                try:
                    self._entries = _read(self._path)
                except ConfigError as error:
                    self._entries = ()
                    log.warning("%s; nobody comes in over HTTP until it can be read", error)
            return self._entries


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    # chmod and chown, which mend a file that was refused, change its ctime alone
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> tuple[_Entry, ...]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            text = file.read(_LONGEST_FILE).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; make it: twinlog token new {path}") from error
    if not stat.S_ISREG(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path}: others may write to it, and so make tokens of their own; chmod 600 {path}"
        )
    if found.st_uid not in (os.getuid(), 0):
        raise ConfigError(f"{path}: belongs to another user; make one of your own")
    entries: list[_Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(
                f"{path}:{number}: is no line that `twinlog token new` writes; mend it, or write "
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
