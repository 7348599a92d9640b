"""Filters in Python, for which MirrorMaker 2 has Java interfaces: `topic.filter.class =
package.module:Class`, and likewise for groups and config properties.

As with a filter in Java, the class alone decides: `topics` and `topics.exclude` have no effect
unless it reads them. docs/replication-policy.md has the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twinlog.config.flow.custom_policy import SEPARATES, custom_instance
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import trimmed

METHODS: Final = {
    "topic.filter.class": "should_replicate_topic",
    "group.filter.class": "should_replicate_group",
    "config.property.filter.class": "should_replicate_config_property",
}
"""The method that a filter has, by the key that names its class."""

_REPLACED: Final = {
    "topics": "topic.filter.class",
    "topics.exclude": "topic.filter.class",
    "groups": "group.filter.class",
    "groups.exclude": "group.filter.class",
    "config.properties.exclude": "config.property.filter.class",
}
"""The keys that such a filter replaces."""


def custom_pattern(settings: Settings, name: str) -> NamePattern | None:
    """Return the pattern that a filter in Python has in place of a key, or None without a filter.

    Raises ConfigError if the class cannot be loaded, or lacks its method.
    """
    key = _REPLACED.get(name, "")
    given = settings.get(key)
    if given is None or SEPARATES not in given.value:
        return None
    accepts = _accepts(given, METHODS[key], settings)
    match name:
        case "topics" | "groups":
            return NamePattern((trimmed(given.value),), None, accepts)
        case "config.properties.exclude":
            return NamePattern((trimmed(given.value),), None, lambda one: not accepts(one))
        case _:
            return NamePattern((), None)


def _accepts(given: Setting, method: str, settings: Settings) -> Callable[[str], bool]:
    todo = f"write package.module:Class of an importable class with the method {method}(name)"
    try:
        properties = {key: one.value for key, one in settings.items() if not one.secret}
        accepts = getattr(custom_instance(trimmed(given.value), properties=properties), method)
    except Exception as error:
        what = f"{given.shown} cannot be used: {type(error).__name__}: {error}"
        raise refuse(given, what, todo) from error

    def matches(one: str) -> bool:
        try:
            return bool(accepts(one))
        except Exception as error:
            what = f"{method}({one!r}) of {given.shown} failed: {type(error).__name__}: {error}"
            raise refuse(given, what, "let it return True or False for every name") from error

    return matches
