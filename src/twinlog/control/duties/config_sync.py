"""Syncs the configs of remote topics with those of their source topics.

MirrorMaker 2 sends every config of every topic in each round. Twinlog reads the target first, and
sends only differences. Reading needs no permission that sending does not need, because
ALTER_CONFIGS includes DESCRIBE_CONFIGS. `check` uses the comparison as well.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import ConfigChange, alter_topic_configs, describe_topic_configs
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.handed_topics import TopicRounds
from twinlog.control.duties.rounds import LedFlow
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.mirror.names.config_rules import (
    ConfigDiff,
    differences,
    may_shorten_life,
    own_values,
    shortens_life,
    unknown_line,
    unknown_names,
    wanted_configs,
)
from twinlog.mirror.names.filters import ConfigPropertyFilter
from twinlog.quantities import first_few, plural
from twinlog.survey.cluster_state import cluster_state
from twinlog.survey.copied_topics import CopiedTopic, unchanged_pairs
from twinlog.survey.topic_configs import unread_configs

log = logging.getLogger(__name__)

LINES_SHOWN: Final = 20
"""Maximum log lines per round, so that the first sync of a large cluster does not fill the log."""
TO_KEEP: Final = (
    "set back to the source's values; to keep a value on the target, add the config's name to the "
    "list of config.properties.exclude [CONFIG_OVERWRITTEN]"
)


@dataclass(slots=True, kw_only=True)
class ConfigDrift:
    """The differences between the configs of source topics and remote topics."""

    topics: dict[str, list[ConfigDiff]] = field(default_factory=dict)
    """Changes to send to the target, by remote topic."""
    own: dict[str, dict[str, str]] = field(default_factory=dict)
    """Configs that a remote topic itself should have, not inherit, by remote topic."""
    kept: dict[str, list[ConfigDiff]] = field(default_factory=dict)
    """Changes that are not sent because they would shorten retention, by remote topic."""
    unread: dict[str, TwinlogError] = field(default_factory=dict)
    """Source topics whose configs could not be read, with the error."""
    closed: list[str] = field(default_factory=list)
    """Remote topics whose configs this user is permitted neither to read nor to alter."""
    unknown: dict[str, list[str]] = field(default_factory=dict)
    """Configs of the source that the target's brokers do not support, by remote topic."""


def find_drift(
    flow: FlowConfig,
    remotes: Mapping[str, str],
    source: ClusterClient,
    target: ClusterClient,
    with_others: Container[str] = (),
) -> ConfigDrift:
    """Compare the configs of source topics with those of their remote topics (`remotes`).

    `with_others`: remote topics that also have records of other writers. Retention of these topics
    is never shortened, whatever the source has.
    """
    chosen, out = ConfigPropertyFilter.of(flow), ConfigDrift()
    source_configs = describe_topic_configs(source, remotes)
    known = describe_topic_configs(target, remotes.values())
    for name, remote in remotes.items():
        configs, target_configs = source_configs[name], known[remote]
        if isinstance(configs, TwinlogError):
            out.unread[name] = configs
            continue
        if isinstance(target_configs, TwinlogError):
            if isinstance(target_configs, Unauthorized):
                out.closed.append(remote)
            continue  # the topic was deleted, and is created again with the source's configs
        wanted = wanted_configs(chosen, configs)
        changes = differences(wanted, target_configs)
        keeps = flow.config_sync.keeps_retention or remote in with_others
        if keeps and (kept := [*filter(may_shorten_life, changes)]):
            out.kept[remote] = kept
            changes = [change for change in changes if change not in kept]
        if changes:
            out.topics[remote] = changes
        if unknown := unknown_names(wanted, target_configs):
            out.unknown[remote] = unknown
        out.own[remote] = own_values(wanted)
    return out


def closed_configs(flow: FlowConfig, remotes: Collection[str]) -> str:
    """Return the log line for remote topics whose configs this user is not permitted to alter."""
    return (
        f"configs are not kept equal for {plural(len(remotes), 'topic')} of {flow.flow.target} "
        f"({first_few(remotes)}): grant ALTER_CONFIGS on topic {next(iter(remotes))}, or set "
        "sync.topic.configs.enabled=false [TOPIC_UNAUTHORIZED]"
    )


def shortened_retention_lines(drift: ConfigDrift) -> Iterator[str]:
    """Yield a line for each remote topic whose retention is about to be shortened."""
    for remote, diffs in drift.topics.items():
        if shorter := [*map(str, filter(shortens_life, diffs))]:
            yield (
                f"{remote}: {', '.join(shorter)}, as on the source; older records are deleted. To "
                "keep them, set twinlog.sync.retention = raise-only [RETENTION_LOWERED]"
            )


class ConfigSync(TopicRounds):
    """The duty that syncs configs. A round compares both clusters and sends the differences."""

    name = "topic configs"

    def __init__(self, flow: LedFlow) -> None:
        super().__init__(flow, "configs", float(flow.config.config_sync.interval_seconds))
        self._log = FlowLog(log, flow.name)
        self._own: dict[str, dict[str, str]] = {}
        """Configs that remote topics should have had after the last round. If a value differs now,
        another client has changed it.
        """
        self._logged: set[tuple[str, ConfigDiff]] = set()
        self._lowered: list[str] = []

    def sync(self, topics: Sequence[CopiedTopic], *, is_whole: bool) -> None:
        with ClusterClient(self._flow.source) as source, ClusterClient(self._flow.target) as target:
            remotes = unchanged_pairs(topics, source, target)
            shared = self._shared(topics, target)
            drift = find_drift(self._flow.config, remotes, source, target, shared)
            if drift.topics:
                self.require_unchanged(topics, remotes, source, target)
            self._log_lowered([*shortened_retention_lines(drift)])
            todo = {
                remote: [ConfigChange(diff.name, diff.new) for diff in diffs]
                for remote, diffs in drift.topics.items()
            }
            refused = alter_topic_configs(target, todo)
        if drift.unread:
            self._flow.log_once(unread_configs(self._flow.config, drift.unread))
        denied = [name for name, error in refused.items() if isinstance(error, Unauthorized)]
        if closed := [*drift.closed, *denied]:
            line = closed_configs(self._flow.config, closed)
            self._flow.log_once(f"{self._flow.name}: {line}")
        if drift.unknown:
            line = unknown_line(self._flow.config.flow.target, drift.unknown.values())
            self._flow.log_once(f"{self._flow.name}: {line}")
        for remote, kept in drift.kept.items():
            why = (
                "because other flows write to it, too"
                if remote in shared
                else "by twinlog.sync.retention"
            )
            self._flow.log_once(
                f"{self._flow.name}: {remote} keeps its configs, {why}: {', '.join(map(str, kept))}"
            )
        for name, error in refused.items():
            if name not in denied:
                self._flow.log_once(f"{self._flow.name}: configs are not kept equal: {error}")
        done = {name: diffs for name, diffs in drift.topics.items() if name not in refused}
        logged = self._log_done(done)
        self._logged = logged if is_whole else self._logged | logged
        self._own = drift.own if is_whole else self._own | drift.own

    def _shared(self, topics: Sequence[CopiedTopic], target: ClusterClient) -> frozenset[str]:
        """Return the remote topics that have records of other flows or other clients."""
        state = cluster_state(target)
        return (
            self.handed.with_others
            | self.with_foreign_partitions(topics, target)
            | {
                topic.target
                for topic in topics
                for row in state.copies_of(topic.target, topic.target_id)
                if row.begun and row.flow != self._flow.name
            }
        )

    def _log_lowered(self, lines: list[str]) -> None:
        """Log shorter retention before the change, and only once if it is rejected repeatedly."""
        for line in lines:
            if line not in self._lowered:
                self._log.warning("%s", line)
        self._lowered = lines

    def _log_done(self, done: Mapping[str, list[ConfigDiff]]) -> set[tuple[str, ConfigDiff]]:
        """Log a line per topic. Return all differences of `done`, as (remote topic, difference).

        A line is a warning if the sync has overwritten a value that another client had set on the
        target, perhaps to fix a reported error. Warnings about values that were set since the last
        round are always logged. Of all other lines a round logs at most LINES_SHOWN.
        """
        logged: set[tuple[str, ConfigDiff]] = set()
        first: list[str] = []
        others: list[str] = []
        for remote, diffs in done.items():
            foreign = any(self._is_foreign(remote, diff) for diff in diffs)
            by_hand = foreign and remote in self._own
            fresh = diffs if by_hand else [o for o in diffs if (remote, o) not in self._logged]
            # shortened retention was logged before the change: `shortened_retention_lines`
            fresh = [diff for diff in fresh if not shortens_life(diff)]
            logged.update((remote, diff) for diff in diffs)
            if not fresh:
                continue
            line = f"config of {remote}: {', '.join(map(str, fresh))}"
            if by_hand:
                self._log.warning("%s: %s", line, TO_KEEP)
            else:
                (first if foreign else others).append(line)
        for line in first[:LINES_SHOWN]:
            self._log.warning("%s: %s", line, TO_KEEP)
        for line in others[: max(LINES_SHOWN - len(first), 0)]:
            self._log.info("%s", line)
        if (more := len(first) + len(others) - LINES_SHOWN) > 0:
            self._log.warning("configs of %s were changed", plural(more, "more topic"))
        return logged

    def _is_foreign(self, remote: str, diff: ConfigDiff) -> bool:
        """Return True if the old value was set on the target and is not an earlier source value."""
        if remote not in self._own:
            return diff.was_own
        return self._own[remote].get(diff.name) != (diff.old if diff.was_own else None)


def config_sync(flow: LedFlow) -> ConfigSync | None:
    """Return the flow's duty, or None if config sync is not enabled."""
    config = flow.config
    wanted = config.config_sync.enabled and config.new_topics.enabled
    return ConfigSync(flow) if wanted else None
