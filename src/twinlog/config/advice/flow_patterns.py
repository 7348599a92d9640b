"""Warnings about enabled flows: patterns and names whose meaning differs from what they suggest."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from twinlog.config.advice.empty_patterns import glob_like, hopeless
from twinlog.config.flow.policies import IDENTITY_CLASS, SEPARATOR, SOURCE_ALIAS, is_blank
from twinlog.config.flow.schema import FlowConfig, PolicyKind
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


def audit_names(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about a blank alias or separator: their meaning depends on each other."""
    seen: set[Setting] = set()
    for flow in flows:
        is_kept = flow.policy.kind is PolicyKind.IDENTITY
        no_alias = is_blank(flow.settings, SOURCE_ALIAS)
        name = SEPARATOR if is_blank(flow.settings, SEPARATOR) else SOURCE_ALIAS
        setting = flow.settings.get(name)
        if setting is None or setting in seen or not is_blank(flow.settings, name):
            continue
        seen.add(setting)
        if name == SEPARATOR and no_alias:
            message = (
                "alias and separator are blank, so topics keep their names: the flow runs under "
                f"the identity policy; write replication.policy.class = {IDENTITY_CLASS}"
            )
            yield warning(WarningCode.BLANK_NAME, setting, message)
        elif name == SEPARATOR:
            message = (
                "has no effect on topics, which keep their names under the identity policy; only "
                "the names of MirrorMaker 2's internal topics are written without a separator"
            )
            yield warning(WarningCode.NO_MEANING, setting, message)
        elif not is_kept:
            message = (
                f"the alias is blank, so remote topics are called "
                f"`{flow.policy.separator}TOPIC`; write replication.policy.class = "
                f"{IDENTITY_CLASS} if topics should keep their names, or remove the line"
            )
            yield warning(WarningCode.BLANK_NAME, setting, message)
