"""Warnings about enabled flows: patterns that mean something else than they seem to."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from twinlog.config.advice.empty_patterns import glob_like, hopeless
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.regex.patterns import has_lone_star
from twinlog.config.values.origin import Setting
from twinlog.config.values.types import to_list
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning

_FILTERS = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")
_OF_TOPICS = ("topics", "topics.exclude")


def audit_patterns(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Patterns that mean something else than they seem to; a line for many flows is logged once."""
    seen: set[Setting] = set()
    for flow in flows:
        for name in _FILTERS:
            setting = flow.settings.get(name)
            if setting is not None and setting not in seen:
                seen.add(setting)
                yield from _of_pattern(name, setting)


def _of_pattern(name: str, setting: Setting) -> Iterator[ConfigWarning]:
    entries = to_list(setting)
    if has_lone_star(entries):
        message = "`*` is no regular expression; it is taken as `.*`, MirrorMaker 2 refuses it"
        yield warning(WarningCode.STAR_PATTERN, setting, message)
    for entry in entries:
        shown = "a value of a config provider" if setting.secret else f"`{entry}`"
        why = hopeless(entry, names_topics=name in _OF_TOPICS)
        if why:
            why = "matches nothing" if setting.secret else why
            yield warning(WarningCode.MATCHES_NOTHING, setting, f"{shown} {why}")
        meant = glob_like(entry)
        if meant and not setting.secret:
            message = f"{shown} means any number of `{entry[-2]}` at the end; did you mean {meant}?"
            yield warning(WarningCode.STAR_PATTERN, setting, message)
