"""Typed access to the keys of a Java client. Every error message has the key and its location."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from twinlog.config.keys.client_keys import class_name
from twinlog.errors import ConfigError

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is read. A wrong path may lead to a file of any size."""


class ClientKeys:
    """The client keys of one cluster. An empty value is treated as not set, except by `raw`."""

    def __init__(self, values: Mapping[str, str], *, where: str, within: str = "") -> None:
        """`within`: the key whose value contains `values` as options. Empty if there is none."""
        self._values = values
        self.where = where
        self._within = within
        self.files: list[tuple[str, str]] = []
        """Key and path of every file that was requested, also if it could not be read."""

    def inside(self, key: str, values: Mapping[str, str]) -> ClientKeys:
        """Return access to the options in the value of a key. Files that the options refer to are
        added to this object's `files`.
        """
        inner = ClientKeys(values, where=self.where, within=key)
        inner.files = self.files
        return inner

    def replaced(self, values: Mapping[str, str]) -> ClientKeys:
        """Return a copy of these keys in which `values` replace or extend the current values."""
        other = ClientKeys({**self._values, **values}, where=self.where, within=self._within)
        other.files = self.files
        return other

    def text(self, key: str) -> str | None:
        """Return the trimmed value, or None if it is not set or blank."""
        return (self._values.get(key) or "").strip() or None

    def raw(self, key: str) -> str | None:
        """Return the value unchanged, or None if the key is not set. Passwords may begin with
        blanks, or be empty.
        """
        return self._values.get(key)

    def words(self, key: str) -> tuple[str, ...]:
        """Return the elements of a comma-separated list."""
        return tuple(part.strip() for part in (self.text(key) or "").split(",") if part.strip())

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        text = self.text(key)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            self.fail(key, f"{text!r} is not a number")
        if not least <= value <= most:
            self.fail(key, f"{text} is not between {least:g} and {most:g}")
        return value

    def flag(self, key: str) -> bool:
        """Return the boolean value, or False if the key is not set."""
        text = (self.text(key) or "false").lower()
        if text not in ("true", "false"):
            self.fail(key, f"{text!r} is neither true nor false")
        return text == "true"

    def only_known_class(self, key: str, known_classes: frozenset[str], why: str) -> str | None:
        """Return the simple name of the Java class, or None if the key is not set. Fails with `why`
        if the class is not in `known_classes`.
        """
        name = self.text(key)
        if name is None:
            return None
        full = class_name(name).replace("$", ".")
        simple = full.rpartition(".")[2]
        if simple not in known_classes or not full.startswith("org.apache.kafka."):
            self.fail(key, f"{name}: {why}")
        return simple

    def read_file(self, key: str) -> bytes:
        """Return the content of the file that the key names."""
        return self.read_path(key, self.text(key) or "")

    def read_path(self, key: str, name: str) -> bytes:
        """Return the content of the file `name`, which the value of `key` refers to."""
        path = Path(name)
        self.files.append((f"{self._within}: {key}" if self._within else key, name))
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self.fail(key, f"{path} cannot be read: {error.strerror or error}")
        except ValueError:
            self.fail(key, "its value is not a file name")
        if len(data) > MAX_FILE_BYTES:
            self.fail(
                key, f"{path} has more than {MAX_FILE_BYTES} bytes: not a key or certificate file"
            )
        return data

    def fail(self, key: str, problem: str) -> NoReturn:
        if self._within:
            key, problem = self._within, f"{key}: {problem}"
        raise ConfigError(problem, file=self.where, key=key) from None
