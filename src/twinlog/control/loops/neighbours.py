"""The flows of one process, and where they lead together: loops that the configuration shows before
anything is written.

A cluster is identified by its ID if it could be queried, else by its alias. So two flows that are
the same under other aliases are found, and so is a loop by which a topic comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.errors import TwinlogError
from twinlog.mirror.names.filters import TopicSelector, policy_of
from twinlog.model import Flow

ANSWERS_WITHIN_S: Final = 2.0
"""A cluster of another flow that is down delays a start no longer than this."""


class SiblingFlows:
    """All flows of a process; the configuration may change while it is used."""

    def __init__(
        self,
        flows: Iterable[FlowConfig] = (),
        settings: Mapping[str, ClusterSettings] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._flows = tuple(flows)
        self._settings = dict(settings or {})
        self._ids: dict[str, str] = {}

    def change(self, flows: Iterable[FlowConfig], settings: Mapping[str, ClusterSettings]) -> None:
        """Apply a reloaded configuration, in which an alias may be another cluster."""
        with self._lock:
            for alias, changed in settings.items():
                if self._settings.get(alias) != changed:
                    self._ids.pop(alias, None)
            self._flows = tuple(flows)
            self._settings.update(settings)

    def learn(self, ids: Mapping[str, str]) -> None:
        """Note the IDs of clusters that were queried; empty ones are unknown."""
        with self._lock:
            self._ids.update({alias: cluster_id for alias, cluster_id in ids.items() if cluster_id})

    def query_unknown(self) -> None:
        """Query the unknown IDs; a cluster that is down stays unknown."""
        with self._lock:
            used = {a for flow in self._flows for a in (flow.flow.source, flow.flow.target)}
            unknown = [
                self._settings[a] for a in sorted(used - {*self._ids}) if a in self._settings
            ]
        if not unknown:
            return
        with ThreadPoolExecutor(len(unknown)) as pool:
            for settings, cluster_id in zip(unknown, pool.map(_id_of, unknown), strict=True):
                self.learn({settings.alias: cluster_id})

    def duplicate_of(self, flow: FlowConfig, topic: str) -> FlowConfig | None:
        """Return another flow, with other aliases, that copies this topic between the same two
        clusters, or None. A flow beside this one counts only if both give the topic one name.
        """
        with self._lock:
            flows, ids = self._flows, dict(self._ids)

        def ends(flow: FlowConfig) -> tuple[str | None, str | None]:
            return ids.get(flow.flow.source), ids.get(flow.flow.target)

        own = ends(flow)
        if None in own:
            return None
        same = (other for other in flows if other.flow != flow.flow and ends(other) == own)
        for other in same:
            may_differ = self.is_beside(flow, other.flow)
            differs = may_differ and _remote(flow, topic) != _remote(other, topic)
            if not differs and self._copies(other, topic):
                return other
        return None

    def is_beside(self, flow: FlowConfig, other: Flow) -> bool:
        """Return True if one of two flows lists the other one in `twinlog.beside`."""
        return other in flow.beside or any(
            config.flow == other and flow.flow in config.beside for config in self._flows
        )

    def leading_from(self, alias: str) -> tuple[FlowConfig, ...]:
        """Return the flows whose source is the cluster of that alias."""
        with self._lock:
            known = self._ids.get(alias)
            return tuple(
                flow
                for flow in self._flows
                if flow.flow.source == alias or (known and self._ids.get(flow.flow.source) == known)
            )

    def is_named_copy(self, flow: FlowConfig, topic: str) -> bool:
        """Return True if its name shows that a topic was on the target, by any flow's separator
        after the target's alias.
        """
        prefixed = [other for other in self._flows if _puts_alias_in_front(other)]
        before = {other.policy.separator for other in prefixed}
        for other in prefixed:
            if other.flow.source != flow.flow.target or other.flow == flow.flow:
                continue
            separator = other.policy.separator
            mark = f"{other.source_alias}{separator}"
            if _has_name_after(topic, mark, separator) or any(
                f"{s}{mark}" in topic for s in before
            ):
                return True
        return False

    def return_path(self, flow: FlowConfig, remote: str) -> tuple[str, ...]:
        """Return the flows by which a topic that this flow writes would come back to its source;
        empty if it does not.

        Names are decided as in each of those flows. If all of them prefix an alias, and none
        removes one by `twinlog.rename` or a router, nothing comes back. The search ends, since no
        way enters a cluster twice.
        """
        with self._lock:
            flows, ids = self._flows, dict(self._ids)
        if all(_puts_alias_in_front(o) and not o.policy.renames for o in flows):
            return ()

        def cluster(alias: str) -> str:
            return ids.get(alias) or f"alias {alias}"

        home, begin = cluster(flow.flow.source), cluster(flow.flow.target)
        ways: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
            ((begin,), remote, (str(flow.flow),))
        ]
        while ways:
            clusters, topic, way = ways.pop()
            for other in flows:
                if cluster(other.flow.source) != clusters[-1] or not self._copies(other, topic):
                    continue
                end, longer = cluster(other.flow.target), (*way, str(other.flow))
                if end == home:
                    return longer
                if end not in clusters:
                    ways.append(((*clusters, end), _remote(other, topic), longer))
        return ()

    def _copies(self, flow: FlowConfig, topic: str) -> bool:
        return TopicSelector.of(flow).selects(topic) and not self.is_named_copy(flow, topic)


def _remote(flow: FlowConfig, topic: str) -> str:
    return policy_of(flow).format_remote_topic(flow.source_alias, topic)


def _puts_alias_in_front(flow: FlowConfig) -> bool:
    policy = flow.policy
    return policy.kind is PolicyKind.DEFAULT and not policy.custom and bool(policy.separator)


def _has_name_after(topic: str, mark: str, separator: str) -> bool:
    """Return True if the topic begins with the mark, and more than separators follow, as in
    `naming.topic_source`.
    """
    return topic.startswith(mark) and bool(topic[len(mark) :].replace(separator, ""))


def _id_of(settings: ClusterSettings) -> str:
    try:
        with ClusterClient(settings, api_timeout_s=ANSWERS_WITHIN_S) as client:
            return client.metadata([], timeout_s=ANSWERS_WITHIN_S).cluster_id or ""
    except TwinlogError:
        return ""  # the cluster's own flows report the error
