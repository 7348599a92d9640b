"""Warnings about enabled flows: what their settings ask for and do not get yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from twinlog.config.audit import warning
from twinlog.config.client_keys import LATER_CLIENT_KEYS, Role
from twinlog.config.hopeless import glob_like, hopeless
from twinlog.config.key_types import Support
from twinlog.config.keys import DEFINITIONS, RENAMED
from twinlog.config.origin import Setting
from twinlog.config.patterns import has_lone_star
from twinlog.config.schema import ConfigWarning, FlowConfig, WarningCode
from twinlog.config.values import parse_boolean, to_list, trimmed

_FILTERS = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")
_OF_TOPICS = ("topics", "topics.exclude")


def audit_patterns(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Patterns that mean something else than they seem to; a line for many flows is told once."""
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


def audit_not_yet(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """One warning for all keys that are accepted and do nothing so far."""
    found: dict[str, Setting] = {}
    for flow in flows:
        for name, setting in flow.settings.items():
            if _does_nothing_yet(flow, name, setting):
                found.setdefault(setting.key, setting)
    if found:
        settings = sorted(found.values(), key=lambda setting: setting.line or 0)
        listed = ", ".join(f"{setting.key} (line {setting.line})" for setting in settings)
        yield ConfigWarning(
            code=WarningCode.NOT_YET,
            file=settings[0].file,
            line=None,
            key="",
            message=f"accepted, but not implemented yet: {listed}",
        )


def _does_nothing_yet(flow: FlowConfig, name: str, setting: Setting) -> bool:
    definition = DEFINITIONS.get(name)
    if definition is not None:
        if definition.support is not Support.LATER or name in RENAMED:
            return False
        # switching off what is not there is no loss; neither is a default written down
        value = trimmed(setting.value)
        off = value.lower() == "false" or value == definition.default
        return not off and not _switched_off(flow, name)
    return any(
        name == f"{side}.{role}.{key}"
        for side, role in (("source", Role.CONSUMER), ("target", Role.PRODUCER))
        for key in LATER_CLIENT_KEYS.get(role, ())
    )


def _switched_off(flow: FlowConfig, name: str) -> bool:
    """An interval or factor of a function that the file turns off anyway."""
    for stem in ("emit.heartbeats", "emit.checkpoints", "sync.topic.acls", "sync.topic.configs"):
        if name.startswith(stem):
            switch = flow.settings.get(f"{stem}.enabled")
            return switch is not None and not parse_boolean(trimmed(switch.value))
    return False
