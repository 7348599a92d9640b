"""A value with its file and line, and messages that never show a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as field_
from typing import TypeVar

from twinlog.errors import ConfigError

V = TypeVar("V")

_SECRET = re.compile(
    r"sasl\.jaas\.config|password|passphrase|secret|token|credential|private\.key|ssl\.key|"
    r"user\.info",  # of a schema registry: user:password
    re.IGNORECASE,
)
USER_INFO = re.compile(r"(?<=://)[^/\s@\"']+(?=@)")
"""Matches the user and the password in a URL."""
_HIDDEN = "<hidden>"
_COMMENT = re.compile(r"\s(#|//)(\s|$)")
_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][\w.]*\}|\{\{.*?\}\}")
"""A placeholder that envsubst or a template engine should have replaced. Variables of config
providers have a colon, so they do not match.
"""
_WHOLE_PLACEHOLDER = re.compile(
    _PLACEHOLDER.pattern
    + r"""|(?<![^\s"'=,/@])(?:\$(?:[A-Z_][A-Z0-9_]*|[a-z]+(?:_[a-z]+)*)|<[A-Za-z][^<>"]*>"""
    + r"""|%[A-Za-z_]\w*%)(?![^\s"';:,/@])"""
)
"""Like `_PLACEHOLDER`, but also matches `$X`, `<X>` and `%X%`. Used only for secrets, addresses and
aliases, because other values may contain such text.
"""
_FILLED_IN = re.compile(r"(^|\.)(clusters|bootstrap\.servers|cluster\.alias|[a-z.]*\.url)$")
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LookedUp:
    """How config providers resolved a value, so that it can be resolved again."""

    files: tuple[str, ...]
    """Files that providers read to resolve the value."""
    again: Callable[[], str]
    """Resolves the value again and returns it. Raises ConfigError if it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the file with its value. `line` is None if the value is a default."""

    key: str
    value: str
    file: str
    line: int | None = None
    field: str = ""
    """The name in the file if it differs from the key: the field of a resource
    (`spec.mirrors[0].topicsPattern`), or the key of a connector or of MirrorMaker 1.
    """
    from_provider: bool = False
    looked_up: LookedUp | None = field_(default=None, compare=False)

    @property
    def secret(self) -> bool:
        # values of config providers are kept out of files, so they are kept out of messages too
        has_user = USER_INFO.search(self.value) is not None
        return self.from_provider or is_secret(self.key) or has_user

    @property
    def shown(self) -> str:
        """Return the value for a message: quoted, truncated, and hidden if it may be a secret."""
        if self.secret:
            return _HIDDEN
        text = self.value if len(self.value) <= _MAX_SHOWN else self.value[:_MAX_SHOWN] + "..."
        return f'"{text}"'

    @property
    def location(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def without_placeholders(self) -> str:
        """Return the value without placeholders that a tool should have replaced: `${X}` and `{{ .X
        }}`, and in secrets, addresses and aliases also `$X`, `<X>` and `%X%`.
        """
        is_filled_in = is_secret(self.key) or _FILLED_IN.search(self.key)
        return (_WHOLE_PLACEHOLDER if is_filled_in else _PLACEHOLDER).sub("", self.value)

    @property
    def has_placeholder(self) -> bool:
        return not self.from_provider and self.without_placeholders != self.value

    @property
    def hint(self) -> str:
        """Return an explanation if the value has a placeholder, or seems to end with a comment,
        which Java reads as part of the value. Otherwise return an empty text.
        """
        if has_comment(self.value):
            return " (what looks like a comment is part of the value: put it on a line of its own)"
        if self.has_placeholder:
            return " (it has a placeholder that was not replaced: write the value)"
        return ""

    def __repr__(self) -> str:
        return f"Setting({self.location}: {shown_key(self.key)} = {self.shown})"


class _Keyed(Mapping[str, V]):
    """An immutable mapping from names to settings, or to values derived from settings."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = dict(settings)

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


class Settings(_Keyed[Setting]):
    """Immutable settings by name."""

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __repr__(self) -> str:
        return f"Settings({list(self._settings.values())!r})"

    def stripped(self, prefix: str) -> dict[str, Setting]:
        """Return the settings whose names start with `prefix`, without the prefix."""
        return {
            name[len(prefix) :]: setting
            for name, setting in self._settings.items()
            if name.startswith(prefix) and len(name) > len(prefix)
        }


class ClientProperties(_Keyed[str]):
    """The configuration of one Kafka client, by Java's key names. Its repr hides secrets."""

    def __getitem__(self, key: str) -> str:
        return self._settings[key].value

    def __repr__(self) -> str:
        pairs = ", ".join(f"{key}={setting.shown}" for key, setting in self._settings.items())
        return f"ClientProperties({pairs})"

    def origin(self, key: str) -> Setting:
        return self._settings[key]

    def files_of(self, is_wanted: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
        """Return key and path of each file that config providers read for the wanted keys."""
        return tuple(
            (key, file)
            for key, setting in self._settings.items()
            if is_wanted(key) and setting.looked_up is not None
            for file in setting.looked_up.files
        )

    def resolve_again(self, is_wanted: Callable[[str], bool]) -> dict[str, str]:
        """Return the wanted properties, with values of config providers resolved again."""
        return {
            key: setting.value if setting.looked_up is None else setting.looked_up.again()
            for key, setting in self._settings.items()
            if is_wanted(key)
        }


def is_secret(key: str) -> bool:
    return _SECRET.search(key) is not None


def has_comment(value: str) -> bool:
    """Return True if a value seems to end with a comment, which Java reads as part of the value."""
    return _COMMENT.search(value) is not None


def shown_key(key: str) -> str:
    """Return the key for a message. A missing line continuation can turn a password into a key, so
    keys that look like one are replaced.
    """
    if '"' in key or ";" in key or len(key) > 2 * _MAX_SHOWN:
        return "<not a valid key>"
    return key


def refuse(
    setting: Setting, what: str, todo: str, *, missing_key: str = "", code: str | None = None
) -> ConfigError:
    """Return the error for an invalid setting: file, line, key, the problem, and what to do."""
    return ConfigError(
        f"{what}{setting.hint}; {todo}",
        file=setting.file,
        line=setting.line,
        key=shown_key(setting.key),
        missing_key=missing_key,
        code=code,
    )
