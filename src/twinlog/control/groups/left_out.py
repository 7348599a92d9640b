"""Reports groups of the source that would not resume on the target where they stopped on the
source. The reason is a missing permission, a topic that is partitioned by key (reported by a duty),
or a remote topic to which several flows copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import hidden_groups, list_groups
from twinlog.cluster.groups.group_offsets import GroupOffsets, fetch_offsets
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.cluster_info import describe_cluster
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.rounds import Duty, LedFlow
from twinlog.errors import TwinlogError
from twinlog.quantities import first_few, plural
from twinlog.survey.cluster_state import cluster_state

NO_SUCH_GROUP: Final = "twinlog-no-such-group"


def lists_groups(source: ClusterClient) -> bool:
    """Return True if this user is permitted to list groups, or if the brokers do not report
    permissions. If False, groups may exist although none is listed.
    """
    rights = describe_cluster(source).operations
    if rights is None or Operation.DESCRIBE in rights:
        return True
    return not hidden_groups(source, [NO_SUCH_GROUP])


def hidden_groups_line(flow: FlowConfig) -> str:
    """Return the message for a source on which this user sees no group."""
    return (
        f"{flow.flow}: no group of {flow.flow.source} is visible, so none gets checkpoints: grant "
        "DESCRIBE on group * to this user, or on the groups to be translated; or set "
        "emit.checkpoints.enabled=false [GROUP_UNAUTHORIZED]"
    )


def refused_line(flow: FlowConfig, refused: Mapping[str, TwinlogError]) -> str:
    """Return the message for groups whose offsets could not be read. `refused`: error by group."""
    return (
        f"{flow.flow}: offsets of {plural(len(refused), 'group')} of {flow.flow.source} are not "
        f"read ({first_few(sorted(refused))}): {refused[min(refused)]}"
    )


def readable(
    flow: LedFlow, answers: Mapping[str, GroupOffsets | TwinlogError]
) -> dict[str, GroupOffsets]:
    """Return the offsets of the groups that could be read. Log the failed groups in one line."""
    refused = {name: error for name, error in answers.items() if isinstance(error, TwinlogError)}
    if refused:
        flow.log_once(refused_line(flow.config, refused))
    return {
        name: offsets for name, offsets in answers.items() if not isinstance(offsets, TwinlogError)
    }


def group_notes(flow: FlowConfig, source: ClusterClient) -> list[str]:
    """Return the notes that `check` prints about the selected groups. Writes nothing."""
    if flow.groups.checkpoints_s is None and flow.groups.sync_s is None:
        return []
    offsets = selected_offsets(flow, source)
    if offsets is None:
        return [] if lists_groups(source) else [hidden_groups_line(flow)]
    refused = {name: answer for name, answer in offsets.items() if isinstance(answer, TwinlogError)}
    return [refused_line(flow, refused)] if refused else []


def selected_offsets(
    flow: FlowConfig, source: ClusterClient
) -> Mapping[str, GroupOffsets | TwinlogError] | None:
    """Return the offsets of each selected group, or the error of reading them. Return None if the
    source lists no groups at all.
    """
    coordinators = Coordinators(source)
    groups = list_groups(coordinators)
    chosen = [
        name for name, group in groups.items() if group.has_offsets and flow.groups.selects(name)
    ]
    return fetch_offsets(coordinators, chosen) if groups else None


# Groups in topics that are partitioned by key. The records of one source partition go to all
# partitions of such a topic, with other records in between. So no target offset corresponds to a
# source offset, and a group that moves to the target has no offset to continue from. Operators must
# see these groups before they move them.

SOONEST_S: Final = 1


def keyed_groups(flow: LedFlow) -> Duty | None:
    """Return the duty, or None if no topic is partitioned by key or groups are not translated."""
    config = flow.config
    asked = [s for s in (config.groups.checkpoints_s, config.groups.sync_s) if s is not None]
    if not asked or not config.keyed_partitions:
        return None
    return KeyedGroups(flow, float(max(min(asked), SOONEST_S)))


class KeyedGroups(Duty):
    """Reports the groups of one flow that read topics partitioned by key. Sends no requests while
    the flow has no such topic.
    """

    name = "groups of topics placed by key"
    interval_s: float = SOONEST_S

    def __init__(self, flow: LedFlow, interval_s: float) -> None:
        self._flow = flow
        self.interval_s = interval_s

    def round(self) -> None:
        topics = {view.source.topic for view in self._flow.partitions() if view.is_keyed}
        by_group = self._committed(topics) if topics else {}
        self._flow.groups.untranslated = {
            group: f"records of {first_few(topics)} are partitioned by key, so offsets cannot be "
            "translated"
            for group, topics in by_group.items()
        }
        if by_group:
            concerned = sorted({topic for names in by_group.values() for topic in names})
            self._flow.log_once(
                f"{self._flow.name}: offsets of groups are not translated in "
                f"{plural(len(concerned), 'topic')} ({first_few(concerned)}): records are "
                "partitioned by key to another number of partitions, so offsets cannot be "
                "translated; `twinlog status` names the groups"
            )

    def _committed(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Return the groups that have offsets in these topics, each with its topics. Another duty
        reports groups whose offsets this user is not permitted to read.
        """
        wanted = set(topics)
        with ClusterClient(self._flow.source) as source:
            offsets = selected_offsets(self._flow.config, source) or {}
        out: dict[str, list[str]] = {}
        for group, answer in sorted(offsets.items()):
            names = set() if isinstance(answer, TwinlogError) else {tp.topic for tp in answer}
            if names & wanted:
                out[group] = sorted(names & wanted)
        return out


# Groups that would skip records in a remote topic to which several flows copy.
#
# A group resumes on the target at the counterpart of its offset on one source. In a topic with
# copies from several sources, records of the other sources precede that offset. The group skips
# those records even if it has not read them. The group sync of each flow only moves offsets
# forwards, so a group that reads two sources resumes at the higher one of its two counterparts.


def other_flows(
    flow: FlowConfig, target: ClusterClient, remotes: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return, by topic, the other flows that have begun to copy to these topics of the target."""
    state, wanted = cluster_state(target), frozenset(remotes)
    named = {row.topic for row in state.rows.values() if row.begun and row.flow != str(flow.flow)}
    names = sorted(named & wanted)
    target_topics = target.metadata(names).topics if names else {}
    others = {
        name: frozenset(
            row.flow
            for row in state.copies_of(name, topic.topic_id)
            if row.begun and row.flow != str(flow.flow)
        )
        for name, topic in target_topics.items()
        if not topic.error
    }
    return {name: flows for name, flows in others.items() if flows}


def skipping_groups(
    flow: FlowConfig,
    remotes: Mapping[str, str],
    others: Mapping[str, Collection[str]],
    offsets: Mapping[str, GroupOffsets],
) -> Iterator[str]:
    """Yield messages about groups of the source that would skip records of other flows. There is
    one message for each set of other flows that copy to the same remote topics as this flow.

    `remotes`: remote topics by source topic. `others`: the other flows, by remote topic.
    """
    by_flows: dict[tuple[str, ...], tuple[set[str], set[str]]] = {}
    for group, of_group in offsets.items():
        for topic in {tp.topic for tp in of_group}:
            remote = remotes.get(topic, "")
            if flows := others.get(remote):
                topics, groups = by_flows.setdefault(tuple(sorted(flows)), (set(), set()))
                topics.add(remote)
                groups.add(group)
    for flows_, (topics, groups) in sorted(by_flows.items()):
        yield (
            f"{flow.flow}: {first_few(sorted(topics))} on {flow.flow.target} also gets the records "
            f"of {first_few(flows_)}. Offsets translated by {flow.flow} may be after unread "
            f"records of other flows, so groups ({first_few(sorted(groups))}) would skip these "
            "records: let these groups read all sources to the end before they move, or give each "
            "source its own topics (DefaultReplicationPolicy, twinlog.rename)"
        )
