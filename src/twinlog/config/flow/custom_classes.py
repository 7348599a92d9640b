"""Replication policies and filters in Python: `replication.policy.class = module:Class`, and
likewise `topic.filter.class` and others.

A policy is a subclass of `twinlog.mirror.names.naming.DefaultReplicationPolicy` that names remote
topics differently and finds the source topic of a remote name. It must be importable where the
command runs. Lanes do not need it because they receive the topic names. The constructor is called
with those of the arguments `separator`, `internal_separator` and `source_alias` that it accepts. So
a dataclass, or a subclass without a constructor, works unchanged.

A filter replaces a Java filter of MirrorMaker 2. As in MirrorMaker 2, the class alone decides, so
`topics` and `topics.exclude` have no effect unless the class reads them. docs/replication-policy.md
has both contracts.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final

from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import trimmed

SEPARATES: Final = ":"

_METHODS: Final = (
    "checkpoints_topic",
    "format_remote_topic",
    "heartbeats_topic",
    "is_checkpoints_topic",
    "is_heartbeats_topic",
    "is_internal_topic",
    "is_mm2_internal_topic",
    "offset_syncs_topic",
    "original_topic",
    "topic_source",
    "upstream_topic",
)
_TODO: Final = (
    "write package.module:Class of an importable subclass of "
    "twinlog.mirror.names.naming.DefaultReplicationPolicy"
)
_WAY_BACK: Final = "make topic_source() and upstream_topic() the inverse of format_remote_topic()"


def custom_instance(entry: str, **arguments: Any) -> Any:
    """Return an instance of the class that `entry` names (`module:Class`), created with those
    arguments that its constructor accepts. Passes on any error of the import or the constructor.
    """
    module, _, name = entry.partition(SEPARATES)
    named_class = getattr(importlib.import_module(module), name)
    taken = inspect.signature(named_class).parameters
    return named_class(**{name: value for name, value in arguments.items() if name in taken})


def keeps_names(setting: Setting, entry: str) -> bool:
    """Return True if remote topics keep their source names, as with the identity policy.

    Raises ConfigError if the class cannot be loaded or is not a replication policy.
    """
    try:
        policy = custom_instance(
            entry, separator=".", internal_separator=".", source_alias="source"
        )
        missing = [name for name in _METHODS if not callable(getattr(policy, name, None))]
        remote = None if missing else policy.format_remote_topic("source", "topic")
        if is_named := isinstance(remote, str):
            back = policy.topic_source(remote), policy.upstream_topic(remote)
    # the module may raise any exception, or end the process as a script does
    except (Exception, SystemExit) as error:
        what = f"{setting.shown} cannot be used: {type(error).__name__}: {error}"
        raise refuse(setting, what, _TODO) from error
    if not is_named:
        raise refuse(setting, f"{setting.shown} is not a replication policy", _TODO)
    if remote != "topic" and back != ("source", "topic"):
        what = (
            f"{setting.shown} names `topic` of `source` {remote!r}, but maps that name back to "
            f"{back[1]!r} of {back[0]!r}: topics would be copied back to their source"
        )
        raise refuse(setting, what, _WAY_BACK)
    return remote == "topic"


METHODS: Final = {
    "topic.filter.class": "should_replicate_topic",
    "group.filter.class": "should_replicate_group",
    "config.property.filter.class": "should_replicate_config_property",
}
"""The method that a filter must have, by the configuration key that names the filter's class."""

_REPLACED: Final = {
    "topics": "topic.filter.class",
    "topics.exclude": "topic.filter.class",
    "groups": "group.filter.class",
    "groups.exclude": "group.filter.class",
    "config.properties.exclude": "config.property.filter.class",
}
"""The keys that a filter in Python replaces, each with the key that names the filter's class."""


def custom_pattern(settings: Settings, name: str) -> NamePattern | None:
    """Return a pattern that calls the Python class which the configuration sets as the filter in
    place of the key `name`, or None if it sets no such class.

    Raises ConfigError if the class cannot be loaded, or lacks its method.
    """
    key = _REPLACED.get(name, "")
    setting = settings.get(key)
    if setting is None or SEPARATES not in setting.value:
        return None
    accepts = _accepts(setting, METHODS[key], settings)
    match name:
        case "topics" | "groups":
            return NamePattern((trimmed(setting.value),), None, accepts)
        case "config.properties.exclude":
            return NamePattern((trimmed(setting.value),), None, lambda name: not accepts(name))
        case _:
            return NamePattern((), None)


def _accepts(given: Setting, method: str, settings: Settings) -> Callable[[str], bool]:
    todo = f"write package.module:Class of an importable class with the method {method}(name)"
    try:
        properties = {key: setting.value for key, setting in settings.items() if not setting.secret}
        accepts = getattr(custom_instance(trimmed(given.value), properties=properties), method)
    except (Exception, SystemExit) as error:
        what = f"{given.shown} cannot be used: {type(error).__name__}: {error}"
        raise refuse(given, what, todo) from error

    def matches(name: str) -> bool:
        try:
            return bool(accepts(name))
        except Exception as error:
            what = f"{method}({name!r}) of {given.shown} failed: {type(error).__name__}: {error}"
            raise refuse(given, what, "let it return True or False for every name") from error

    return matches
