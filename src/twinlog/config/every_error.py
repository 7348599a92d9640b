"""Finds all errors of a file by reading it again without the invalid settings.

An invalid setting is removed or replaced by a valid placeholder, and the settings are read again.
So a check can stop at the first error, and the user still gets all errors together. Errors that may
be consequences of a removed setting, or of a missing one, are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from twinlog.config.files.providers import provider_key
from twinlog.config.flow.precedence import candidate_flows
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS
from twinlog.config.values.origin import Setting, Settings, shown_key
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError

MOST: Final = 100
"""Maximum number of errors of one file; each needs another pass."""

_STANDS_IN: Final = {BOOTSTRAP_SERVERS: "stands-in:9092", "enabled": "true"}
"""Placeholders for settings without which the rest cannot be read."""


def load_all(
    settings: Settings,
    read: Callable[[Settings], MirrorConfig],
    aliases: tuple[str, ...] | None,
    errors: Sequence[ConfigError] = (),
) -> MirrorConfig:
    """Return the result of `read` for the settings.

    Raises a ConfigError with all errors, including `errors`, sorted by line. If `aliases` is None
    because they are invalid, or if a config provider is invalid, reading ends with that error: the
    values of a provider are then unknown.
    """
    found: list[ConfigError] = [*errors]
    left_out: set[str] = set()
    warnings: tuple[ConfigWarning, ...] = ()
    while len(found) < MOST:
        try:
            config = read(settings)
        except ConfigError as error:
            if not found or not _may_follow(error, left_out, aliases or ()):
                found.append(error)
            is_the_last = aliases is None or provider_key(error.key or "")
            without = None if is_the_last else _without(settings, error)
            if without is None:
                break
            left_out.add(error.key or "")
            settings = without
        else:
            if not found:
                return config
            warnings = config.warnings
            break
    first, *more = sorted(found, key=_location)
    first.more = tuple(more)
    first.warnings = warnings
    raise first


def _without(settings: Settings, error: ConfigError) -> Settings | None:
    """Return the settings without the invalid one, or None if no setting caused the error."""
    key = error.key or ""
    stand_in = next((v for end, v in _STANDS_IN.items() if f".{key}".endswith(f".{end}")), None)
    changed = dict(settings)
    names = [
        name
        for name, one in settings.items()
        if (shown_key(one.key), one.file, one.line) == (key, error.file, error.line)
    ]
    for name in names:
        if stand_in is None or changed[name].value == stand_in:
            del changed[name]
        else:
            changed[name] = replace(changed[name], value=stand_in)
    if not names:
        if stand_in is None or error.file is None or key in changed:
            return None
        changed[key] = Setting(key=key, value=stand_in, file=error.file)
    return Settings(changed)


def _bare(key: str, aliases: tuple[str, ...]) -> str:
    """Return the key without its flow or cluster prefix."""
    for scope in (*map(str, candidate_flows(aliases)), *aliases):
        if key.startswith(f"{scope}."):
            return key[len(scope) + 1 :]
    return key


def _may_follow(error: ConfigError, left_out: set[str], aliases: tuple[str, ...]) -> bool:
    """Return True if the error may be a consequence of a removed setting. An error without a key
    may be one of any.
    """
    if error.key is None or error.key in left_out:
        return True
    return bool(error.lacks) and error.lacks in {_bare(key, aliases) for key in left_out}


def _location(error: ConfigError) -> tuple[str, float]:
    """Sort key: file, then line; errors without a line come last."""
    return (error.file or "", float("inf") if error.line is None else error.line)
