"""Everything that is wrong in a file, by reading it again without what was found.

A wrong setting is left out, or something that fits stands in for it, and the rest is read again.
So checks may stop at the first thing that is wrong, and a file is corrected in one go all the same.
An error of a setting that was left out, or that lacks one, may be a consequence, and is not said.
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
"""Errors of one file; each is one more reading of it."""

_STANDS_IN: Final = {BOOTSTRAP_SERVERS: "stands-in:9092", "enabled": "true"}
"""Without these there is nothing to read on with."""


def load_all(
    settings: Settings,
    read: Callable[[Settings], MirrorConfig],
    aliases: tuple[str, ...] | None,
    errors: Sequence[ConfigError] = (),
) -> MirrorConfig:
    """What `read` makes of the settings.

    Raises a ConfigError with all errors, by line, `errors` among them; `aliases` is None where they
    cannot be told, and so the first error is the last. It is as well where config providers are
    wrong: what values they would give is not known.
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
    """The settings without the one that is wrong; None where no setting is to blame."""
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
    """The key without the flow or cluster that it is of."""
    for scope in (*map(str, candidate_flows(aliases)), *aliases):
        if key.startswith(f"{scope}."):
            return key[len(scope) + 1 :]
    return key


def _may_follow(error: ConfigError, left_out: set[str], aliases: tuple[str, ...]) -> bool:
    """Whether it may be of what was left out; without a key it is of all that is there."""
    if error.key is None or error.key in left_out:
        return True
    return bool(error.lacks) and error.lacks in {_bare(key, aliases) for key in left_out}


def _location(error: ConfigError) -> tuple[str, float]:
    """By line, what has none behind."""
    return (error.file or "", float("inf") if error.line is None else error.line)
