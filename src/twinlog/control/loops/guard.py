"""Prevents a flow from copying records in a loop, or twice. The checks run before anything is
written, and again at every topic discovery.

There are four checks, two for the flow and two for each topic:

1. Are the flow's clusters different?
2. Are they the clusters between which the flow has always copied?
3. Were the topic's records on the target before (`mirror.state.copies`), or would the flows of this
   process copy them back (`control.loops.neighbours`)?
4. Does a flow of another name copy the same topic to the same cluster?

Two processes may start at the same time and form a loop, A->B and B->A. Each process first writes
its rows to its target, then reads the rows of its source. So at least the process that reads later
sees the other process's rows. At worst both do. Then neither copies, both withdraw their rows, and
check again later. In a longer loop, each flow passes a row's lineage (the clusters that the records
have passed) to the next flow only at a discovery. So the last flow may already copy when the
lineage has come round. It then finds the loop at its next discovery, and stops copying the topic. A
loop within one process is found in its configuration immediately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.control.duties.handed_topics import HandedTopics
from twinlog.control.duties.rounds import NotNow
from twinlog.control.loops.foreign_topics import empty_topics, foreign_topics, why_foreign
from twinlog.control.loops.neighbours import SiblingFlows
from twinlog.errors import CorruptData, Fate, FlowError, PartitionError, TwinlogError
from twinlog.mirror.names.filters import TopicSelector, policy_of
from twinlog.mirror.names.naming import STATE_TOPIC, DefaultReplicationPolicy
from twinlog.mirror.names.renaming import is_renamed, refused_names
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, Flow, TopicId
from twinlog.survey.cluster_state import (
    ClusterState,
    changed_error,
    cluster_state,
    with_maps,
    write_copies,
)
from twinlog.survey.copied_topics import CopiedTopic
from twinlog.survey.discovery import TopicVerdicts, mirrored_topics, selected_topics
from twinlog.survey.ends import empty_logs

Topics = Mapping[str, TopicMetadata]


@dataclass(slots=True, kw_only=True)
class LoopGuard:
    """Runs the checks of one flow, and writes the rows of the topics that pass them."""

    config: FlowConfig
    policy: DefaultReplicationPolicy
    neighbours: SiblingFlows
    log_once: Callable[[str], None]
    handed: HandedTopics | None = None
    """The topics that lanes copy. None with `--once`, because topics are then checked before lanes
    start, by the offset map and the logs.
    """
    refuses_foreign_topics: bool = True
    """If False, topics with records of other clients are not refused, as during an adoption."""
    still_leads: Callable[[ClusterClient], bool] = lambda _target: True
    """Returns True if this process leads, and intents are the same as at the discovery's begin."""
    before_begin: Callable[[Mapping[str, str]], None] = lambda _: None
    """Called with empty topics (remote topic by source topic) before their rows say that they are
    begun. If the process dies before this call returns, the next discovery calls it again.
    """
    _begun: frozenset[str] = frozenset()
    """Remote topics to which lanes may have written before the last discovery."""

    # -- before anything is written ------------------------------------------------------------

    def before_anything(self, source: ClusterClient, target: ClusterClient) -> None:
        """Raise FlowError if the flow must not start. Writes nothing."""
        source_metadata, target_metadata = source.metadata(None), target.metadata(None)
        verdict = self.check(source, target, source_metadata, target_metadata)
        for note in verdict.notes:
            self.log_once(note)
        if verdict.errors and not verdict.rows:
            first = next(iter(verdict.errors.values()))
            raise no_topic_left_error(self.config, first, len(verdict.errors) - 1)

    def check(
        self,
        source: ClusterClient,
        target: ClusterClient,
        source_metadata: ClusterMetadata,
        target_metadata: ClusterMetadata,
    ) -> TopicVerdicts:
        """Return the verdict on each topic, writing nothing. Raises FlowError if the flow must not
        run.
        """
        flow = self.config.flow
        ids = {
            flow.source: source_metadata.cluster_id or "",
            flow.target: target_metadata.cluster_id or "",
        }
        self.neighbours.learn(ids)
        self.neighbours.query_unknown()
        if (
            source_metadata.cluster_id
            and source_metadata.cluster_id == target_metadata.cluster_id
            and self._copies_its_copies(source_metadata)
        ):
            raise same_cluster_error(self.config, source_metadata.cluster_id)
        states = self._states(source, target, source_metadata, target_metadata)
        self._check_claims(*states)
        selected = selected_topics(self.config, source_metadata)
        unnamed = refused_names(self.config, selected)
        named = {name: topic for name, topic in selected.items() if name not in unnamed}
        verdict = self._verdicts_of(named, target_metadata, *states)
        verdict.errors.update(unnamed)
        if not verdict.rows and not verdict.errors:
            verdict.errors.update(self._looping_topics(target_metadata))
        if unknown := [alias for alias, cluster_id in ids.items() if not cluster_id]:
            verdict.notes.append(unknown_ids(self.config, unknown))
        return verdict

    def _copies_its_copies(self, source_metadata: ClusterMetadata) -> bool:
        """Return True if a flow whose source is its target would copy its own copies, or would
        write to the originals. Otherwise such a flow is permitted, as in MirrorMaker 2, because
        each topic gets one copy under another name.
        """
        if self.config.policy.kind is PolicyKind.IDENTITY:
            return True
        selector = TopicSelector.of(self.config)
        format_remote, alias = self.policy.format_remote_topic, self.config.source_alias
        return any(selector.selects(format_remote(alias, name)) for name in source_metadata.topics)

    def _check_claims(self, source_state: ClusterState, target_state: ClusterState) -> None:
        """Raise FlowError if the clusters are not those in the flow's claims, which name the IDs of
        source and target.

        If both clusters have a claim with the flow's name, there are two flows of this name, in two
        files with swapped aliases. Then each topic is decided separately.
        """
        name = str(self.config.flow)
        other, last = source_state.claims.get(name), target_state.claims.get(name)
        if (
            other is not None
            and last is None
            and source_state.cluster_id
            and target_state.cluster_id
        ):
            was = other.source_cluster_id, other.target_cluster_id
            if was == (target_state.cluster_id, source_state.cluster_id):
                raise clusters_swapped_error(self.config)
        if changed := changed_error(self.config, last, source_id=source_state.cluster_id):
            raise changed

    def _looping_topics(
        self, target_metadata: ClusterMetadata
    ) -> Iterator[tuple[str, TwinlogError]]:
        """Yield topics that another flow would copy to the source, and this flow back to the
        target.
        """
        for other in self.neighbours.leading_from(self.config.flow.target):
            policy = policy_of(other)
            for name in mirrored_topics(other, target_metadata):
                remote = policy.format_remote_topic(other.source_alias, name)
                way = self.neighbours.return_path(other, remote)
                if str(self.config.flow) in way:
                    yield name, loop_error(self.config, name, way)

    # -- at every discovery --------------------------------------------------------------------

    def admit(
        self,
        source: ClusterClient,
        target: ClusterClient,
        topics: Topics,
        source_metadata: ClusterMetadata,
        target_metadata: ClusterMetadata,
    ) -> TopicVerdicts:
        """Return the topics that may be copied now, after writing their rows to the target.

        `mirror.state.copies` describes what happens if the process dies after it has written the
        rows. Rows of topics that are not copied are withdrawn, including rows of an earlier process
        that died during this call. A row is not withdrawn once lanes may have written to its topic.
        """
        states = self._states(source, target, source_metadata, target_metadata)
        self._check_claims(*states)
        verdict = self._verdicts_of(topics, target_metadata, *states)
        if self.refuses_foreign_topics:
            verdict.exclude(
                foreign_topics(self.config, verdict.rows.values(), target_metadata, target)
            )
        self._begun = frozenset(row.topic for row in verdict.rows.values() if row.begun)
        known = states[1].rows
        fresh = [row for row in verdict.rows.values() if known.get(_key(row)) != row]
        may_write = not fresh or self._has_noted(target, verdict, fresh)
        if fresh and may_write:
            states = self._states(source, target, source_metadata, target_metadata)
            unrelated_topics, verdict = (
                verdict.unrelated_topics,
                self._verdicts_of(topics, target_metadata, *states),
            )
            verdict.exclude(unrelated_topics)
        if may_write:
            self._take_back(target, verdict, states[1])
        own = states[1].copied_by(str(self.config.flow))
        verdict.copied = frozenset(row.source_topic for row in own if row.begun)
        return verdict

    def _has_noted(
        self, target: ClusterClient, verdict: TopicVerdicts, fresh_rows: list[CopyRow]
    ) -> bool:
        """Write the rows of topics whose copies begin, and return True. If the intents cannot be
        read, write nothing, exclude these topics, and return False; running copies continue. Raises
        NotNow if this process no longer leads or the intents have changed.
        """
        try:
            self._write(target, fresh_rows)
        except CorruptData as error:
            why = PartitionError(
                f"new topics are not copied: {error}",
                flow=self.config.flow,
                code=error.code,
                fate=Fate.RETRIABLE,
            )
            verdict.exclude({row.source_topic: why for row in fresh_rows if not row.begun})
            return False
        return True

    def growth_refusal(
        self, topic: TopicMetadata, remote: TopicMetadata, target: ClusterClient
    ) -> TwinlogError | None:
        """Return an error if partitions must not be added to a remote topic now, else None.

        Possible reasons: No lane has verified that the begun topic is the copy of this source
        topic. Other clients write to it, so their keys would move to other partitions. This process
        no longer leads. The topic was re-created.
        """
        copied = CopiedTopic(
            source=topic.name,
            target=remote.name,
            source_id=topic.topic_id,
            target_id=remote.topic_id,
        )
        why, code = self._why_not_extended(copied, remote, target)
        if not why:
            why = self._why_no_lead(target)
        if not why:  # the fastest check is last, so that little time passes before the change
            now = target.metadata([remote.name]).topics[remote.name]
            if now.error or now.topic_id != remote.topic_id:
                why = "it was just deleted or re-created"
        if not why:
            return None
        return PartitionError(
            f"{remote.name} gets no more partitions, because {why}. This flow may not be allowed "
            "to change the topic. If more partitions are correct, add them by hand",
            flow=self.config.flow,
            code=code or "TARGET_TOPIC_TOO_SMALL",
            fate=Fate.RETRIABLE,
        )

    def _why_not_extended(
        self, topic: CopiedTopic, remote: TopicMetadata, target: ClusterClient
    ) -> tuple[str, str]:
        """Return why this flow must not add partitions to a remote topic, and the error code. Both
        are empty if it may add them. Only the code is empty if the reason has no code of its own.
        """
        if topic.target not in self._begun:
            is_identity = self.config.policy.kind is PolicyKind.IDENTITY
            if not is_identity or empty_logs(target, remote.tps) == {*remote.tps}:
                return "", ""
            return "it holds records that this flow did not write", ""
        if self.handed is None:
            return why_foreign(self.config, topic, remote, target)
        if topic.target in self.handed.with_others:
            return "other clients write to it", ""
        if topic in self.handed.ours:
            return "", ""
        code = self.handed.left_alone.get(topic.target, "")
        return (f"it failed with {code}" if code else "its other partitions were not begun"), code

    def _take_back(
        self, target: ClusterClient, verdict: TopicVerdicts, target_state: ClusterState
    ) -> None:
        name = str(self.config.flow)
        void = [
            structs.replace(row, ended=True)
            for (flow, _), row in target_state.rows.items()
            if flow == name and not row.begun and not row.ended
            if row.source_topic not in verdict.rows
        ]
        if void:
            self._write(target, void)

    def on_planned(
        self, target: ClusterClient, verdict: TopicVerdicts, plans: Iterable[PartitionPlan]
    ) -> None:
        """Write rows, with the topic ID, for topics whose copies begin or that were re-created."""
        rows: dict[tuple[str, str], CopyRow] = {}
        for plan in plans:
            row = verdict.rows.get(plan.source.topic)
            if row is not None and (not row.begun or row.topic_id != plan.target_topic_id):
                rows[_key(row)] = structs.replace(row, topic_id=plan.target_topic_id, begun=True)
        begun = self._begun
        begins = {row.source_topic: row.topic for row in rows.values() if row.topic not in begun}
        if begins:
            empty = empty_topics(target, begins.values())
            self.before_begin({name: begin for name, begin in begins.items() if begin in empty})
        if rows:
            self._write(target, rows.values())

    def _why_no_lead(self, target: ClusterClient) -> str:
        try:
            leads = self.still_leads(target)
        except CorruptData as error:
            return str(error)
        return "" if leads else "this process does not lead any more, or the intents have changed"

    def _write(self, target: ClusterClient, rows: Iterable[CopyRow]) -> None:
        if not self.still_leads(target):  # the error ends this discovery, so it creates no topic
            raise NotNow(f"{self.config.flow}: another process leads, or the intents have changed")
        write_copies(target, [*rows])

    # -- verdicts ------------------------------------------------------------------------------

    def _states(
        self,
        source: ClusterClient,
        target: ClusterClient,
        source_metadata: ClusterMetadata,
        target_metadata: ClusterMetadata,
    ) -> tuple[ClusterState, ClusterState]:
        source_id, target_id = source_metadata.cluster_id or "", target_metadata.cluster_id or ""
        source_state = with_maps(
            source, cluster_state(source), lambda claim: claim.source_cluster_id == target_id != ""
        )
        target_state = with_maps(
            target, cluster_state(target), lambda claim: claim.source_cluster_id == source_id != ""
        )
        return source_state, target_state

    def _verdicts_of(
        self,
        topics: Topics,
        target_metadata: ClusterMetadata,
        source_state: ClusterState,
        target: ClusterState,
    ) -> TopicVerdicts:
        out = TopicVerdicts()
        policy = self.config.policy
        names_have_origins = policy.kind is PolicyKind.DEFAULT and not (
            policy.custom or policy.renames.routers
        )
        if source_state.unread is not None and not names_have_origins:
            out.notes.append(unseen_origins(self.config))
        others = target.copied_by_other_flows(str(self.config.flow))
        begun = BegunCopies(self.config, target_metadata, target)
        for name, topic in topics.items():
            if self.neighbours.is_named_copy(self.config, name):
                continue
            copies = source_state.copies_of(name, topic.topic_id)
            home = next((row for row in copies if target.cluster_id in row.origins), None)
            if home is not None and names_have_origins:
                out.notes.append(not_copied_back(self.config, name, home))
                continue
            row = self._row(topic, copies, target_metadata, source_state, target)
            if home is not None:
                out.errors[name] = copied_back_error(self.config, name, home, target.cluster_id)
            elif (
                error := self._renaming_error(row, target_metadata, begun, target)
            ) is not None or (
                error := self._refusal(row, others.get(name, ()), target_metadata)
            ) is not None:
                out.errors[name] = error
            else:
                out.rows[name] = row
        return out

    def _row(
        self,
        topic: TopicMetadata,
        copies: Iterable[CopyRow],
        target_metadata: ClusterMetadata,
        source_state: ClusterState,
        target: ClusterState,
    ) -> CopyRow:
        remote = self.policy.format_remote_topic(self.config.source_alias, topic.name)
        remote_topic = target_metadata.topics.get(remote)
        topic_id = NO_TOPIC_ID if remote_topic is None else remote_topic.topic_id
        flow, alias = str(self.config.flow), self.config.source_alias
        lineage = frozenset().union(*(row.origins for row in copies)) - {source_state.cluster_id}
        return CopyRow(
            ended=False,
            flow=flow,
            topic=remote,
            topic_id=topic_id,
            target_cluster_id=target.cluster_id,
            source_cluster_id=source_state.cluster_id,
            source_topic=topic.name,
            source_topic_id=topic.topic_id,
            lineage=tuple(sorted(lineage)),
            begun=remote_topic is not None and target.is_begun(flow, remote, topic_id),
            source_alias="" if alias == self.config.flow.source else alias,
            renamed=is_renamed(self.config, topic.name),
        )

    def _renaming_error(
        self,
        row: CopyRow,
        target_metadata: ClusterMetadata,
        begun: BegunCopies,
        target: ClusterState,
    ) -> TwinlogError | None:
        """Return an error if a topic cannot have its new name, else None. There are two reasons:
        the topic was copied under another name before, or the new name belongs to the copy of
        another topic, which exists or is about to begin. Both remote topics are left as they are.
        """
        topic, before, holds = row.source_topic, "", ""
        for other in begun.related(row):
            where = _current_topic_of(other, row, target_metadata)
            if where == row.topic and other.source_topic != topic:
                holds = other.source_topic
            is_same = other.is_from(row.source_cluster_id, topic, row.source_topic_id)
            if is_same and where not in {"", row.topic}:
                before = where
        # two leaders may have begun the topic under two names; the copy with this name continues
        if before and (holds or not row.begun):
            return rename_changed_error(self.config, topic, before, row.topic)
        if row.renamed and not row.begun and self.config.policy.kind is not PolicyKind.IDENTITY:
            source = row.source_cluster_id, topic, row.source_topic_id
            for other in target.copies_of(row.topic, row.topic_id):
                if other.flow != row.flow and not other.is_from(*source):
                    holds = f"{other.source_topic} by {other.flow}"
        return rename_taken_error(self.config, topic, row.topic, holds) if holds else None

    def _refusal(
        self, row: CopyRow, others: Iterable[CopyRow], target_metadata: ClusterMetadata
    ) -> TwinlogError | None:
        topic = row.source_topic
        for other in others:
            if not other.is_from(row.source_cluster_id, topic, row.source_topic_id):
                continue
            remote = _current_topic_of(other, row, target_metadata)
            may_differ = row.begun or self.neighbours.is_beside(self.config, Flow.of(other.flow))
            if remote and not (may_differ and remote != row.topic):
                return copied_already_error(self.config, topic, other, remote)
        if row.begun:
            return None  # this copy was first, so the other flow that closes the loop is refused
        if twin := self.neighbours.duplicate_of(self.config, topic):
            return same_clusters_error(self.config, topic, twin)
        way = self.neighbours.return_path(self.config, row.topic)
        return loop_error(self.config, topic, way) if way else None


def _key(row: CopyRow) -> tuple[str, str]:
    return row.flow, row.topic


def _current_topic_of(other: CopyRow, row: CopyRow, target_metadata: ClusterMetadata) -> str:
    """Return the current name of the remote topic of `other`, or an empty string if the topic does
    not exist. A topic that is about to be created for `row` or `other` counts as existing.
    """
    if other.topic == row.topic and NO_TOPIC_ID in (other.topic_id, row.topic_id):
        return other.topic
    names = [other.topic] if other.topic else target_metadata.topics
    for name in names:
        topic = target_metadata.topics.get(name)
        if topic is not None and other.is_of(name, topic.topic_id):
            return name
    return ""


# A discovery compares every topic with the flow's begun copies. They are indexed by name, because a
# search through all rows for each topic would take quadratic time.


class BegunCopies:
    """The rows of one flow's begun copies that may conflict with a renamed topic."""

    def __init__(
        self, config: FlowConfig, target_metadata: ClusterMetadata, target: ClusterState
    ) -> None:
        self._by_remote: defaultdict[str, list[CopyRow]] = defaultdict(list)
        self._by_source: defaultdict[str | TopicId, list[CopyRow]] = defaultdict(list)
        rows = [row for row in target.copied_by(str(config.flow)) if row.begun]
        if not config.policy.renames:
            rows = [row for row in rows if row.renamed]
        for row in _with_names(rows, target_metadata):
            self._by_remote[row.topic].append(row)
            self._by_source[row.source_topic].append(row)
            if row.source_topic_id != NO_TOPIC_ID:
                self._by_source[row.source_topic_id].append(row)

    def related(self, row: CopyRow) -> Iterator[CopyRow]:
        """Yield the rows with the same remote or source topic as `row`. A row may occur twice."""
        for other in (
            *self._by_remote.get(row.topic, ()),
            *self._by_source.get(row.source_topic, ()),
            *self._by_source.get(row.source_topic_id, ()),
        ):
            if row.renamed or other.renamed:
                yield other


def _with_names(rows: Iterable[CopyRow], target_metadata: ClusterMetadata) -> Iterator[CopyRow]:
    """Yield rows with the name of their remote topic. Rows of earlier releases have only a topic
    ID; they are left out if no topic has this ID.
    """
    names: dict[TopicId, str] | None = None
    for row in rows:
        if row.topic:
            yield row
            continue
        if names is None:
            names = {topic.topic_id: name for name, topic in target_metadata.topics.items()}
        if row.topic_id != NO_TOPIC_ID and row.topic_id in names:
            yield structs.replace(row, topic=names[row.topic_id])


# Messages of `twinlog check`, and of a flow's start, about configurations that would copy records
# twice or in a loop.


def same_cluster_error(flow: FlowConfig, cluster_id: str) -> FlowError:
    """Return the error for a flow whose source and target are the same cluster."""
    source, target = flow.flow.source, flow.flow.target
    return FlowError(
        f"{source} and {target} are the same cluster ({cluster_id}), so every record would be "
        "copied again and again. Correct "
        f"{target}.bootstrap.servers or {source}.bootstrap.servers",
        flow=flow.flow,
        code="SAME_CLUSTER",
    )


def _left_out_error(flow: FlowConfig, code: str, why: str) -> PartitionError:
    return PartitionError(why, flow=flow.flow, code=code, fate=Fate.RETRIABLE)


def same_clusters_error(flow: FlowConfig, topic: str, other: FlowConfig) -> PartitionError:
    """Return the error for a topic that two flows select, if their clusters are the same."""
    return _left_out_error(
        flow,
        "SAME_CLUSTER",
        f"{other.flow} connects the same two clusters under other aliases, so topic {topic} would "
        "be copied twice. Correct bootstrap.servers, or exclude the topic from one of the flows "
        f"({other.flow}.topics.exclude). If each flow copies a part of the records to a topic of "
        f"its own, add {flow.flow}.twinlog.beside = {other.flow}",
    )


def clusters_swapped_error(flow: FlowConfig) -> FlowError:
    """Return the error for a flow that has copied before from its current target to its source."""
    source, target = flow.flow.source, flow.flow.target
    return FlowError(
        f"this flow has copied before, from the cluster that is now {target} to the cluster that "
        f"is now {source}. Their addresses were swapped, so every copy would be appended to its "
        f"original. If this is an error, swap {source}.bootstrap.servers and "
        f"{target}.bootstrap.servers back. If this is meant to be a flow in the other direction, "
        "give its clusters other aliases",
        flow=flow.flow,
        code="CLUSTERS_SWAPPED",
    )


def copied_back_error(flow: FlowConfig, topic: str, row: CopyRow, target_id: str) -> PartitionError:
    """Return the error for a topic of the source whose records came from the target."""
    source, target = flow.flow.source, flow.flow.target
    what = f"a copy of {row.source_topic} of {target}"
    if row.source_cluster_id != target_id:
        what = f"a copy of records that were on {target} before, by way of other clusters"
    return _left_out_error(
        flow,
        "COPIED_BACK",
        f"topic {topic} of {source} is {what} (written by {row.flow}). If it were copied back, its "
        "records would be duplicated, or copied in a loop. Exclude the topic with "
        f"{flow.flow}.topics.exclude, or disable one of these flows",
    )


def loop_error(flow: FlowConfig, topic: str, way: Sequence[str]) -> PartitionError:
    """Return the error for a topic that the flows `way`, in this order, would copy in a loop."""
    return _left_out_error(
        flow,
        "COPIED_BACK",
        f"topic {topic} would be copied back to its source through {', '.join(way)}, so every "
        "record would be copied endlessly. Exclude the topic from one of these flows "
        f"({way[-1]}.topics.exclude), or disable one of them",
    )


def copied_already_error(flow: FlowConfig, topic: str, row: CopyRow, remote: str) -> PartitionError:
    """Return the error for a topic that a flow of another name copies to the same cluster."""
    source, target = flow.flow.source, flow.flow.target
    return _left_out_error(
        flow,
        "COPIED_TWICE",
        f"topic {topic} of {source} is already copied to {remote} of {target} by {row.flow}, which "
        "connects the same clusters under other aliases, so all records would be copied again. To "
        f"resume that copy at its position, use the aliases of {row.flow}. If each flow copies a "
        "part of the records to a topic of its own, add "
        f"{flow.flow}.twinlog.beside = {row.flow}",
    )


def rename_changed_error(flow: FlowConfig, topic: str, old: str, new: str) -> PartitionError:
    """Return the error for a topic that was copied under another name than it now has."""
    target = flow.flow.target
    return _left_out_error(
        flow,
        "RENAME_CHANGED",
        f"topic {topic} of {flow.flow.source} was copied to {old} of {target}, but the file now "
        f"names the remote topic {new}. Nothing is copied, because {new} would begin with the "
        f"records that the source still has, and readers of {old} would get no more records. To "
        f"resume the copy, restore the name {old} in the file. To keep {old} as it is, exclude "
        f"the topic with {flow.flow}.topics.exclude",
    )


def rename_taken_error(flow: FlowConfig, topic: str, remote: str, other: str) -> PartitionError:
    """Return the error for a topic whose remote name belongs to the copy of another topic."""
    return _left_out_error(
        flow,
        "RENAME_CLASH",
        f"topic {topic} of {flow.flow.source} would be copied to {remote} on {flow.flow.target}, "
        f"which holds the copy of topic {other}. One topic cannot hold both copies, so nothing of "
        f"{topic} is copied. Give {topic} another name on the target (docs/rename.md), or exclude "
        f"it with {flow.flow}.topics.exclude",
    )


def no_topic_left_error(flow: FlowConfig, first: TwinlogError, others: int) -> FlowError:
    """Return the error for a flow that does not start because none of its topics may be copied."""
    more = f" (first of {others + 1} errors)" if others else ""
    what = f"no topic of this flow may be copied{more}: {first.what}"
    return FlowError(what, flow=flow.flow, code=first.code)


def not_copied_back(flow: FlowConfig, topic: str, row: CopyRow) -> str:
    """Return a note on a topic whose ID, but not its name, shows that it came from the target."""
    return (
        f"{flow.flow}: topic {topic} of {flow.flow.source} holds records of {flow.flow.target} "
        f"(copied by {row.flow} under another name), so it is not copied back"
    )


def unseen_origins(flow: FlowConfig) -> str:
    """Return a note on a flow that is not permitted to read its source's state topic."""
    source = flow.flow.source
    return (
        f"{flow.flow}: READ on topic {STATE_TOPIC} of {source} is not granted. Without it, copies "
        f"from {flow.flow.target} among the topics of {source} may not be recognized: grant READ, "
        "or make sure that no flow copies in the other direction"
    )


def unknown_ids(flow: FlowConfig, aliases: Sequence[str]) -> str:
    """Return a note on clusters that report no ID, because two of them may be one cluster."""
    return (
        f"{flow.flow}: {' and '.join(aliases)} report no cluster id, so it is unknown whether "
        "addresses were swapped or two aliases lead to one cluster: compare bootstrap.servers"
    )
