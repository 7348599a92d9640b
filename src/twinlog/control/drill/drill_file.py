"""The configuration of a drill: the flow as its file has it, under aliases of the drill's own.

Own aliases give it own remote topics, offset map, checkpoints, offset syncs and lead: nothing of
the flow itself is touched. What would act outside of that is left out: HTTP, heartbeats, quotas on
producers, groups of the source, and where a copy begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from twinlog.config.advice.canonical import canonical
from twinlog.config.files.raw import RawConfig
from twinlog.config.load import load_raw
from twinlog.config.values.origin import Setting
from twinlog.control.drill.names import DrillNames, Part
from twinlog.model import Flow

LEFT_OUT: Final = (
    *("clusters", "enabled", "topics", "topics.exclude", "topics.blacklist"),
    *("groups", "groups.exclude", "groups.blacklist", "emit.heartbeats.enabled"),
    *("heartbeats.replication.enabled", "listeners", "admin.listeners", "source.cluster.alias"),
    *("target.cluster.alias", "twinlog.start", "twinlog.start.new", "twinlog.source.group.id"),
    *("twinlog.source.group.commit.interval.ms", "twinlog.rpo.enforce", "twinlog.rename"),
    *("emit.checkpoints.enabled", "refresh.topics.enabled", "refresh.groups.enabled"),
)
OF_EACH: Final = {
    "enabled": "true",
    "topics.exclude": "none",
    "groups.exclude": "none",
    "emit.checkpoints.enabled": "true",
    "heartbeats.replication.enabled": "false",
}


def drill_text(raw: RawConfig, flow: Flow, names: DrillNames, topics: Mapping[Part, int]) -> str:
    """The text of an mm2.properties; `topics`: how many each part has. Secrets stay what they are
    in the file.
    """
    aliases = [cluster.alias for cluster in load_raw(raw).clusters]
    settings = dict(_general(raw, aliases))
    clusters: list[str] = []
    for part, count in topics.items():
        source, target = (names.alias(part, one) for one in (flow.source, flow.target))
        own = Flow(source, target)
        clusters += [source, target]
        renamed = {f"{flow}.": f"{own}.", f"{flow.source}.": f"{source}."}
        settings.update(_renamed(raw, aliases, renamed | {f"{flow.target}.": f"{target}."}))
        values = {
            **OF_EACH,
            "topics": ", ".join(names.topic(part, number) for number in range(count)),
            "groups": ", ".join(names.group(part, number) for number in range(count)),
        }
        settings.update(_set({f"{own}.{name}": value for name, value in values.items()}))
    # flows that are off have heartbeats as well
    settings.update(_set({"clusters": ", ".join(clusters), "emit.heartbeats.enabled": "false"}))
    return canonical(settings, clusters)


def _general(raw: RawConfig, aliases: Sequence[str]) -> Iterator[tuple[str, Setting]]:
    for key, one in raw.settings.items():
        if not _prefix(key, aliases) and key not in LEFT_OUT:
            yield key, one


def _renamed(
    raw: RawConfig, aliases: Sequence[str], prefixes: Mapping[str, str]
) -> Iterator[tuple[str, Setting]]:
    for key, one in raw.settings.items():
        prefix = _prefix(key, aliases)
        bare = key.removeprefix(prefix)
        if prefix in prefixes and bare not in LEFT_OUT:
            yield prefixes[prefix] + bare, replace(one, key=prefixes[prefix] + bare)


def _prefix(key: str, aliases: Sequence[str]) -> str:
    """`A.`, `A->B.` or nothing; the longest, as `A.` may begin `A.B.`, which is another cluster."""
    flows = [f"{source}->{target}." for source in aliases for target in aliases]
    found = [one for one in (*flows, *(f"{alias}." for alias in aliases)) if key.startswith(one)]
    return max(found, key=len, default="")


def _set(values: Mapping[str, str]) -> dict[str, Setting]:
    return {key: Setting(key=key, value=value, file="drill") for key, value in values.items()}
