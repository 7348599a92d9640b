"""Finds loops and duplicate flows in the configuration of one process, before anything is written.

A cluster is identified by its ID if it could be queried, else by its alias. So duplicates and loops
are also found if the same cluster has several aliases.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.errors import TwinlogError
from twinlog.mirror.names.filters import TopicSelector, policy_of
from twinlog.model import Flow
from twinlog.threads import THREADS

ANSWERS_WITHIN_S: Final = 2.0
"""Timeout in seconds for queries of other flows' clusters, so that they hardly delay a start."""


class SiblingFlows:
    """All flows of a process, and the IDs of their clusters. A reload may change the flows."""

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
        """Apply a reloaded configuration, and forget the IDs of clusters with changed settings."""
        with self._lock:
            for alias, changed in settings.items():
                if self._settings.get(alias) != changed:
                    self._ids.pop(alias, None)
            self._flows = tuple(flows)
            self._settings.update(settings)

    def learn(self, ids: Mapping[str, str]) -> None:
        """Store the cluster IDs by alias. An empty ID means unknown, and is not stored."""
        with self._lock:
            self._ids.update({alias: cluster_id for alias, cluster_id in ids.items() if cluster_id})

    def query_unknown(self) -> None:
        """Query the cluster IDs that are unknown. Unreachable clusters remain unknown."""
        with self._lock:
            used = {a for flow in self._flows for a in (flow.flow.source, flow.flow.target)}
            unknown = [
                self._settings[a] for a in sorted(used - {*self._ids}) if a in self._settings
            ]
        asked = {
            settings.alias: THREADS.submit("twinlog-ask", partial(_id_of, settings))
            for settings in unknown
        }
        self.learn({alias: answer.result() for alias, answer in asked.items()})

    def duplicate_of(self, flow: FlowConfig, topic: str) -> FlowConfig | None:
        """Return a flow with other aliases that copies this topic between the same two clusters, or
        None. If `twinlog.beside` lists the flow, it is returned only if both flows give the topic's
        copy the same name.
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
        """Return True if either flow lists the other flow in `twinlog.beside`."""
        return other in flow.beside or any(
            config.flow == other and flow.flow in config.beside for config in self._flows
        )

    def leading_from(self, alias: str) -> tuple[FlowConfig, ...]:
        """Return the flows whose source is the cluster with this alias or with its ID."""
        with self._lock:
            known = self._ids.get(alias)
            return tuple(
                flow
                for flow in self._flows
                if flow.flow.source == alias or (known and self._ids.get(flow.flow.source) == known)
            )

    def is_named_copy(self, flow: FlowConfig, topic: str) -> bool:
        """Return True if a topic's name shows that it is a copy of a topic of this flow's target.
        The name then contains the target's alias and a separator of any flow.
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
        """Return the flows that would copy `remote`, which this flow writes, back to this flow's
        source. Return an empty tuple if it would not come back.

        Topic names follow the policy of each flow. No topic comes back if all flows prefix an alias
        and none renames topics by `twinlog.rename` or a router. The search ends because no path
        enters a cluster twice.
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
    """Return True if the topic's name begins with `mark`, and anything but separators follows. The
    rule is that of `naming.topic_source`.
    """
    return topic.startswith(mark) and bool(topic[len(mark) :].replace(separator, ""))


def _id_of(settings: ClusterSettings) -> str:
    try:
        with ClusterClient(settings, api_timeout_s=ANSWERS_WITHIN_S) as client:
            return client.metadata([], timeout_s=ANSWERS_WITHIN_S).cluster_id or ""
    except TwinlogError:
        return ""  # not reported here, because the cluster's own flows report the error
