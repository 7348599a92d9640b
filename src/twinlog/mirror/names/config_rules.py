"""Decides which configs of a remote topic a sync sets or removes, by MirrorMaker 2's rules.

A config of the source topic is considered if it is not read-only, not sensitive, not excluded, not
from a broker's own file (STATIC_BROKER_CONFIG), and not set for a single broker
(DYNAMIC_BROKER_CONFIG). MirrorMaker 2 copies the last kind, so that its result depends on which
broker responds. A config whose source is DEFAULT_CONFIG is removed from the remote topic, unless
`use.defaults.from=source`. Every other config is set, also if its value comes from a dynamic
setting for all of the source's brokers. The remote topic's configs are read only to avoid requests
that change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.mirror.names.filters import ConfigPropertyFilter
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDiff:
    """One config of a remote topic that must change."""

    name: str
    new: str | None
    """The value to set, or None if the topic's own value is to be removed, so that the cluster's
    default applies.
    """
    old: str | None
    """The current value, or None if it is unknown."""
    was_own: bool
    """Whether the remote topic has a value of its own, which a client or an earlier sync has
    set.
    """

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.old)} -> {_shown(self.new)}"


def _shown(value: str | None) -> str:
    return "(default)" if value is None else value or '""'


def wanted_configs(
    chosen: ConfigPropertyFilter, source: Iterable[ConfigEntry]
) -> dict[str, str | None]:
    """Return the configs that a remote topic should have, by name. None means that the topic should
    have no value of its own, so that the cluster's default applies.
    """
    return {
        entry.name: entry.value if chosen.copies_defaults or not entry.is_default else None
        for entry in source
        if chosen.may_be_copied(entry) and (entry.is_default or entry.value is not None)
    }


def own_values(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configs of a `wanted_configs` result that have a value, that is, without those
    whose value is None.
    """
    return {name: value for name, value in configs.items() if value is not None}


def differences(
    configs: Mapping[str, str | None], target: Iterable[ConfigEntry]
) -> list[ConfigDiff]:
    """Return the changes that give a remote topic `configs`. `target`: its current configs. Configs
    that the target's Kafka version lacks are left out.
    """
    out = []
    for entry in target:
        if entry.name not in configs:
            continue
        new, is_own = configs[entry.name], entry.source == ConfigSource.DYNAMIC_TOPIC
        if (new is not None and (not is_own or entry.value != new)) or (new is None and is_own):
            out.append(ConfigDiff(name=entry.name, new=new, old=entry.value, was_own=is_own))
    return out


FOR_EVER: Final = -1
DEFAULT_RETENTION: Final = {"retention.ms": 604_800_000, "retention.bytes": FOR_EVER}
"""Kafka's own defaults (LogConfig): a week, regardless of size."""

LIFE: Final = frozenset({"cleanup.policy", *DEFAULT_RETENTION})


def shortens_life(diff: ConfigDiff) -> bool:
    """Return True if the change would let the target delete or compact away records that it keeps
    now.
    """
    if diff.name == "cleanup.policy":
        old, new = _policies(diff.old), _policies("delete" if diff.new is None else diff.new)
        return bool(new - old)
    # if remote storage is disabled, records in it may be deleted
    if diff.name == "remote.storage.enable":
        return diff.old == "true" and diff.new != "true"
    default = DEFAULT_RETENTION.get(diff.name)
    if default is None:
        return False
    old_limit = _limit(diff.old, default)
    new_limit = _limit(diff.new, default)
    return new_limit != FOR_EVER and (old_limit == FOR_EVER or new_limit < old_limit)


def may_shorten_life(diff: ConfigDiff) -> bool:
    """Return the same as `shortens_life`, but also True if the effect of the change is unknown.

    If a config is removed, the default of the target's brokers applies, which may keep less than
    Kafka's own default.
    """
    return shortens_life(diff) or (diff.new is None and diff.name in LIFE)


def _policies(text: str | None) -> set[str]:
    return {name.strip() for name in (text or "").split(",") if name.strip()}


def _limit(text: str | None, default: int) -> int:
    try:
        return max(FOR_EVER, int(text or default))
    except ValueError:
        return default


def unknown_names(configs: Mapping[str, str | None], target: Iterable[ConfigEntry]) -> list[str]:
    """Return the configs to set that the target's brokers do not know."""
    known = {entry.name for entry in target}
    return [name for name in own_values(configs) if name not in known]


def unknown_line(target: str, unknown: Iterable[Iterable[str]]) -> str:
    """Return the log line about configs that the target's brokers lack. `unknown`: for each topic,
    the names of these configs.
    """
    names = sorted({name for some in unknown for name in some})
    return (
        f"brokers of {target} do not know these configs of source topics, so remote topics do not "
        f"get them: {', '.join(names)}; to omit this line, add them to the list of "
        "config.properties.exclude"
    )
