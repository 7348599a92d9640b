"""A value together with the file and line it came from, and messages that never show a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as field_

from twinlog.errors import ConfigError

_SECRET = re.compile(
    r"sasl\.jaas\.config|password|passphrase|secret|token|credential|private\.key|ssl\.key",
    re.IGNORECASE,
)
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
"""Also `$X`, `<X>` and `%X%`: only for secrets, addresses and aliases, as others may have them."""
_FILLED_IN = re.compile(r"(^|\.)(clusters|bootstrap\.servers|cluster\.alias|[a-z.]*\.url)$")
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LookedUp:
    """How a value came from config providers, to look it up again."""

    files: tuple[str, ...]
    """That providers read for it."""
    again: Callable[[], str]
    """Its value now; ConfigError where it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the file; `line` is None where the value is a default."""

    key: str
    value: str
    file: str
    line: int | None = None
    field: str = ""
    """Where the file has names of its own: what says it there, `spec.mirrors[0].topicsPattern`; of
    MirrorMaker 1 the key in its file."""
    from_provider: bool = False
    looked_up: LookedUp | None = field_(default=None, compare=False)

    @property
    def secret(self) -> bool:
        # what a config provider returned is meant to stay out of files, so it stays out of messages
        # too
        return self.from_provider or is_secret(self.key)

    @property
    def shown(self) -> str:
        """The value for a message: quoted, cut, hidden when it may be a secret."""
        if self.secret:
            return _HIDDEN
        text = self.value if len(self.value) <= _MAX_SHOWN else self.value[:_MAX_SHOWN] + "..."
        return f'"{text}"'

    @property
    def written(self) -> str:
        """What a file of keys calls it. A resource's field is put in its place by who reads it."""
        return self.field if self.key.endswith(f".{self.field}") else self.key

    @property
    def location(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def without_placeholders(self) -> str:
        """The value without placeholders that a tool should have replaced before: `${X}` and
        `{{ .X }}`, and in secrets, addresses and aliases `$X`, `<X>` and `%X%`.
        """
        is_filled_in = is_secret(self.key) or _FILLED_IN.search(self.key)
        return (_WHOLE_PLACEHOLDER if is_filled_in else _PLACEHOLDER).sub("", self.value)

    @property
    def has_placeholder(self) -> bool:
        return not self.from_provider and self.without_placeholders != self.value

    @property
    def hint(self) -> str:
        """An explanation if the value seems to end in a comment, which Java reads as part of the
        value, or has a placeholder; else empty.
        """
        if has_comment(self.value):
            return " (what looks like a comment is part of the value: put it on a line of its own)"
        if self.has_placeholder:
            return " (it has a placeholder that was never replaced: write the value here)"
        return ""

    def __repr__(self) -> str:
        return f"Setting({self.location}: {shown_key(self.key)} = {self.shown})"


class Settings(Mapping[str, Setting]):
    """Settings by the name under which one part of the system looks them up; never changed."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return f"Settings({list(self._settings.values())!r})"

    def stripped(self, prefix: str) -> dict[str, Setting]:
        """The settings whose name starts with `prefix`, without it."""
        return {
            name[len(prefix) :]: setting
            for name, setting in self._settings.items()
            if name.startswith(prefix) and len(name) > len(prefix)
        }


class ClientProperties(Mapping[str, str]):
    """What one Kafka client is configured with, by Java's key names; its repr hides secrets."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, key: str) -> str:
        return self._settings[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{key}={setting.shown}" for key, setting in self._settings.items())
        return f"ClientProperties({pairs})"

    def origin(self, key: str) -> Setting:
        """Where a property came from."""
        return self._settings[key]

    def files_of(self, wanted: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
        """Key and path of each file that config providers read for the wanted keys."""
        return tuple(
            (key, file)
            for key, setting in self._settings.items()
            if wanted(key) and setting.looked_up is not None
            for file in setting.looked_up.files
        )

    def again(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        """The wanted properties, looked up again where they came from config providers."""
        return {
            key: setting.value if setting.looked_up is None else setting.looked_up.again()
            for key, setting in self._settings.items()
            if wanted(key)
        }


def is_secret(key: str) -> bool:
    return _SECRET.search(key) is not None


def has_comment(value: str) -> bool:
    """Whether a value seems to end in a comment, which for Java it cannot."""
    return _COMMENT.search(value) is not None


def shown_key(key: str) -> str:
    """The key for a message: a lost continuation may turn a password into a key."""
    if '"' in key or ";" in key or len(key) > 2 * _MAX_SHOWN:
        return "<a line that is no key>"
    return key


def refuse(
    setting: Setting, what: str, todo: str, *, lacks: str = "", code: str | None = None
) -> ConfigError:
    """The error for a wrong setting: file, line, key, what is wrong, what to do."""
    return ConfigError(
        f"{what}{setting.hint}; {todo}",
        file=setting.file,
        line=setting.line,
        key=shown_key(setting.written),
        lacks=lacks,
        code=code,
    )
