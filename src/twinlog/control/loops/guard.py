"""Keeps a flow from copying what would come back or be there twice: asked before anything is
written, and again at every look for topics.

Four questions, the first two about the flow and the others about each topic:

1. Are its two clusters two?
2. Are they those that it has always been between?
3. Were the topic's records on the target before (`mirror.state.copies`), or would the flows of this
   process bring them back (`control.loops.neighbours`)?
4. Does a flow of another name copy the same topic to the same cluster?

Two processes may begin two halves of a circle at once. Each writes its rows on its own target
first, and reads its source's rows after that: whoever is second sees the first, and at the worst
both see each other, copy nothing, take their rows back and ask again later. In a longer circle a
row's lineage must have come round before the last one sees it: there an already running flow finds
it at its next look for topics, and copies no more of that topic. Within one process the
configuration says it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import empty_logs
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.control.duties.handed_topics import HandedTopics
from twinlog.control.duties.rounds import NotNow
from twinlog.control.loops.begun_copies import BegunCopies
from twinlog.control.loops.foreign_topics import empty_topics, foreign_topics, why_not_ours
from twinlog.control.loops.neighbours import Neighbours
from twinlog.control.loops.refusals import (
    clusters_swapped,
    copied_already,
    copied_back,
    not_copied_back,
    nothing_left,
    rename_changed,
    rename_taken,
    same_cluster,
    same_clusters,
    unknown_ids,
    unseen_origins,
    would_come_back,
)
from twinlog.errors import CorruptData, Fate, PartitionError, TwinlogError
from twinlog.mirror.names.filters import TopicSelector, policy_of
from twinlog.mirror.names.naming import ReplicationPolicy
from twinlog.mirror.names.renaming import is_renamed, refused_names
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID
from twinlog.survey.cluster_state import ClusterState, cluster_state, with_maps, write_copies
from twinlog.survey.copied_topics import CopiedTopic
from twinlog.survey.discovery import TopicVerdicts, mirrored_topics, selected_topics
from twinlog.survey.flow_clusters import source_changed

Topics = Mapping[str, TopicMetadata]


@dataclass(slots=True, kw_only=True)
class LoopGuard:
    """Asks for one flow."""

    config: FlowConfig
    policy: ReplicationPolicy
    neighbours: Neighbours
    log_once: Callable[[str], None]
    handed: HandedTopics | None = None
    """What the flow's lanes copy; None: with `--once`, which looks before they begin, and goes by
    the offset map and the logs.
    """
    judges_topics: bool = True
    """Whether a topic without a row of ours may be a stranger's."""
    still_leads: Callable[[ClusterClient], bool] = lambda _target: True
    """Whether this process leads now, and nothing else is wanted than when it began to look."""
    before_begin: Callable[[Mapping[str, str]], None] = lambda _: None
    """Called with topics that hold nothing yet, remote ones by source topic, before they count as
    begun: whoever dies in it, or before, leaves them so for the next survey.
    """
    _begun: frozenset[str] = frozenset()
    """Remote topics that were begun before the last survey."""

    # -- before anything is written ------------------------------------------------------------

    def before_anything(self, source: ClusterClient, target: ClusterClient) -> None:
        """Raises FlowError where the flow must not begin; nothing was written then."""
        here, there = source.metadata(None), target.metadata(None)
        verdict = self.check(source, target, here, there)
        for note in verdict.notes:
            self.log_once(note)
        if verdict.errors and not verdict.rows:
            first = next(iter(verdict.errors.values()))
            raise nothing_left(self.config, first, len(verdict.errors) - 1)

    def check(
        self,
        source: ClusterClient,
        target: ClusterClient,
        here: ClusterMetadata,
        there: ClusterMetadata,
    ) -> TopicVerdicts:
        """Everything, of both clusters as they are; raises FlowError for what concerns the flow."""
        flow = self.config.flow
        ids = {flow.source: here.cluster_id or "", flow.target: there.cluster_id or ""}
        self.neighbours.learn(ids)
        self.neighbours.ask()
        if here.cluster_id and here.cluster_id == there.cluster_id and self._feeds_itself(here):
            raise same_cluster(self.config, here.cluster_id)
        states = self._states(source, target, here, there)
        self._check_claims(*states)
        selected = selected_topics(self.config, here)
        unnamed = refused_names(self.config, selected)
        named = {name: topic for name, topic in selected.items() if name not in unnamed}
        verdict = self._judge(named, there, *states)
        verdict.errors.update(unnamed)
        if not verdict.rows and not verdict.errors:
            verdict.errors.update(self._to_come(there))
        if unknown := [alias for alias, cluster_id in ids.items() if not cluster_id]:
            verdict.notes.append(unknown_ids(self.config, unknown))
        return verdict

    def _feeds_itself(self, here: ClusterMetadata) -> bool:
        """On one cluster: a copy would be copied again, or is its original. Topics whose copies the
        flow does not take are copied under their other names once, as MirrorMaker 2 does it.
        """
        if self.config.policy.kind is PolicyKind.IDENTITY:
            return True
        selector = TopicSelector.of(self.config)
        format_remote, alias = self.policy.format_remote_topic, self.config.source_alias
        return any(selector.selects(format_remote(alias, name)) for name in here.topics)

    def _check_claims(self, here: ClusterState, there: ClusterState) -> None:
        """A claim names both clusters: the flow is the one that it was, or another.

        A flow that has claims on both sides was always two, of one name: each in a file that calls
        its clusters source and target. There the topics decide one by one.
        """
        name = str(self.config.flow)
        other, last = here.claims.get(name), there.claims.get(name)
        if other is not None and last is None and here.cluster_id and there.cluster_id:
            was = other.source_cluster_id, other.target_cluster_id
            if was == (there.cluster_id, here.cluster_id):
                raise clusters_swapped(self.config)
        if changed := source_changed(self.config, last, here.cluster_id):
            raise changed

    def _to_come(self, there: ClusterMetadata) -> Iterator[tuple[str, TwinlogError]]:
        """What other flows would bring to our source, and we back to where it was."""
        for other in self.neighbours.leading_from(self.config.flow.target):
            policy = policy_of(other)
            for name in mirrored_topics(other, there):
                remote = policy.format_remote_topic(other.source_alias, name)
                way = self.neighbours.way_back(other, remote)
                if str(self.config.flow) in way:
                    yield name, would_come_back(self.config, name, way)

    # -- at every look for topics --------------------------------------------------------------

    def admit(
        self,
        source: ClusterClient,
        target: ClusterClient,
        topics: Topics,
        here: ClusterMetadata,
        there: ClusterMetadata,
    ) -> TopicVerdicts:
        """What may be copied now; its rows are on the target when this returns.

        Dies behind the rows: see `mirror.state.copies`. What is not copied is taken back, also what
        a process wrote that died here, unless a lane may have heard of it: that is a copy for ever.
        """
        states = self._states(source, target, here, there)
        self._check_claims(*states)
        verdict = self._judge(topics, there, *states)
        self._leave_strangers(verdict, there, target)
        self._begun = frozenset(row.topic for row in verdict.rows.values() if row.begun)
        known = states[1].rows
        fresh = [row for row in verdict.rows.values() if known.get(_key(row)) != row]
        may_write = not fresh or self._has_noted(target, verdict, fresh)
        if fresh and may_write:
            states = self._states(source, target, here, there)
            strangers, verdict = verdict.strangers, self._judge(topics, there, *states)
            verdict.leave(strangers)
        if may_write:
            self._take_back(target, verdict, states[1])
        own = states[1].copied_by(str(self.config.flow))
        verdict.copied = frozenset(row.source_topic for row in own if row.begun)
        return verdict

    def _has_noted(
        self, target: ClusterClient, verdict: TopicVerdicts, fresh: list[CopyRow]
    ) -> bool:
        """Whether the rows could be written. Raises NotNow.

        While it cannot be read what is wanted, nothing new begins, and what runs continues.
        """
        try:
            self._write(target, fresh)
        except CorruptData as error:
            why = PartitionError(
                f"nothing new begins: {error}",
                flow=self.config.flow,
                code=error.code,
                fate=Fate.RETRIABLE,
            )
            verdict.leave({one.source_topic: why for one in fresh if not one.begun})
            return False
        return True

    def _leave_strangers(
        self, verdict: TopicVerdicts, there: ClusterMetadata, target: ClusterClient
    ) -> None:
        if self.judges_topics:
            verdict.leave(foreign_topics(self.config, verdict.rows.values(), there, target))

    def why_not_grown(
        self, topic: TopicMetadata, remote: TopicMetadata, target: ClusterClient
    ) -> TwinlogError | None:
        """Why a remote topic gets no more partitions now: it was begun, and no lane has found that
        it holds the copy of this very source topic; or others write to it, too, whose keys would
        go to other partitions; or it has changed hands since it was checked.
        """
        one = CopiedTopic(
            source=topic.name,
            target=remote.name,
            source_id=topic.topic_id,
            target_id=remote.topic_id,
        )
        why, code = self._found_against(one, remote, target)
        if not why:
            why = self._why_no_lead(target)
        if not why:  # last: it takes the least time
            now = target.metadata([remote.name]).topics[remote.name]
            if now.error or now.topic_id != remote.topic_id:
                why = "it was deleted or re-created a moment ago"
        if not why:
            return None
        return PartitionError(
            f"{remote.name} gets no more partitions while {why}: it may not be "
            "this flow's to change; where it may get more, add them by hand",
            flow=self.config.flow,
            code=code or "TARGET_TOPIC_TOO_SMALL",
            fate=Fate.RETRIABLE,
        )

    def _found_against(
        self, one: CopiedTopic, remote: TopicMetadata, target: ClusterClient
    ) -> tuple[str, str]:
        """Why a topic is not this flow's to grow, and with which code it stands; mostly empty."""
        if one.target not in self._begun:
            if self.config.policy.kind is not PolicyKind.IDENTITY or _is_empty(target, remote):
                return "", ""
            return "it holds records that this flow did not write", ""
        if self.handed is None:
            return why_not_ours(self.config, one, remote, target)
        if one.target in self.handed.with_others:
            return "others write to it, too", ""
        if one in self.handed.ours:
            return "", ""
        code = self.handed.left_alone.get(one.target, "")
        return (f"it stands with {code}" if code else "its other partitions were not begun"), code

    def _take_back(
        self, target: ClusterClient, verdict: TopicVerdicts, there: ClusterState
    ) -> None:
        name = str(self.config.flow)
        void = [
            replace(row, ended=True)
            for (flow, _), row in there.rows.items()
            if flow == name and not row.begun and not row.ended
            if row.source_topic not in verdict.rows
        ]
        if void:
            self._write(target, void)

    def planned(
        self, target: ClusterClient, verdict: TopicVerdicts, plans: Iterable[PartitionPlan]
    ) -> None:
        """Note what begins, with the ids of topics that were made; no lane has heard of it."""
        rows: dict[tuple[str, str], CopyRow] = {}
        for plan in plans:
            row = verdict.rows.get(plan.source.topic)
            if row is not None and (not row.begun or row.topic_id != plan.target_topic_id):
                rows[_key(row)] = replace(row, topic_id=plan.target_topic_id, begun=True)
        begun = self._begun
        begins = {one.source_topic: one.topic for one in rows.values() if one.topic not in begun}
        if begins:
            empty = empty_topics(target, begins.values())
            self.before_begin({name: one for name, one in begins.items() if one in empty})
        if rows:
            self._write(target, rows.values())

    def _why_no_lead(self, target: ClusterClient) -> str:
        try:
            leads = self.still_leads(target)
        except CorruptData as error:
            return str(error)
        return "" if leads else "this process does not lead any more, or something else is wanted"

    def _write(self, target: ClusterClient, rows: Iterable[CopyRow]) -> None:
        if not self.still_leads(target):  # nor does this survey make any topic then
            raise NotNow(
                f"{self.config.flow}: is led elsewhere, or something else is wanted of it by now"
            )
        write_copies(target, [*rows], int(time.time() * 1000))

    # -- judging -------------------------------------------------------------------------------

    def _states(
        self,
        source: ClusterClient,
        target: ClusterClient,
        here: ClusterMetadata,
        there: ClusterMetadata,
    ) -> tuple[ClusterState, ClusterState]:
        here_id, there_id = here.cluster_id or "", there.cluster_id or ""
        at_source = with_maps(
            source, cluster_state(source), lambda claim: claim.source_cluster_id == there_id != ""
        )
        at_target = with_maps(
            target, cluster_state(target), lambda claim: claim.source_cluster_id == here_id != ""
        )
        return at_source, at_target

    def _judge(
        self, topics: Topics, there: ClusterMetadata, here: ClusterState, target: ClusterState
    ) -> TopicVerdicts:
        out = TopicVerdicts()
        names_have_origins = (
            self.config.policy.kind is PolicyKind.DEFAULT and not self.config.policy.custom
        )
        if here.unread is not None and not names_have_origins:
            out.notes.append(unseen_origins(self.config))
        others = target.copied_by_others(str(self.config.flow))
        begun = BegunCopies(self.config, there, target)
        for name, topic in topics.items():
            if self.neighbours.is_named_copy(self.config, name):
                continue
            copies = here.copies_of(name, topic.topic_id)
            home = next((row for row in copies if target.cluster_id in row.origins), None)
            if home is not None and names_have_origins:
                out.notes.append(not_copied_back(self.config, name, home))
                continue
            row = self._row(topic, copies, there, here, target)
            if home is not None:
                out.errors[name] = copied_back(self.config, name, home, target.cluster_id)
            elif (error := self._other_name(row, there, begun)) is not None or (
                error := self._refusal(row, others.get(name, ()), there)
            ) is not None:
                out.errors[name] = error
            else:
                out.rows[name] = row
        return out

    def _row(
        self,
        topic: TopicMetadata,
        copies: Iterable[CopyRow],
        there: ClusterMetadata,
        here: ClusterState,
        target: ClusterState,
    ) -> CopyRow:
        remote = self.policy.format_remote_topic(self.config.source_alias, topic.name)
        found = there.topics.get(remote)
        topic_id = NO_TOPIC_ID if found is None else found.topic_id
        flow, alias = str(self.config.flow), self.config.source_alias
        lineage = frozenset().union(*(row.origins for row in copies)) - {here.cluster_id}
        return CopyRow(
            flow=flow,
            topic=remote,
            topic_id=topic_id,
            target_cluster_id=target.cluster_id,
            source_cluster_id=here.cluster_id,
            source_topic=topic.name,
            source_topic_id=topic.topic_id,
            lineage=tuple(sorted(lineage)),
            begun=found is not None and target.is_begun(flow, remote, topic_id),
            source_alias="" if alias == self.config.flow.source else alias,
            renamed=is_renamed(self.config, topic.name),
        )

    def _other_name(
        self, row: CopyRow, there: ClusterMetadata, begun: BegunCopies
    ) -> TwinlogError | None:
        """Why a topic cannot have its new name: it was copied under another one, or the topic of
        that name holds the copy of another. Both stay what they are.
        """
        topic, before, holds = row.source_topic, "", ""
        for other in begun.beside(row):
            where = _where(other, row, there)
            if where == row.topic and other.source_topic != topic:
                holds = other.source_topic
            is_same = other.is_from(row.source_cluster_id, topic, row.source_topic_id)
            if is_same and where not in {"", row.topic}:
                before = where
        # begun under both names, by two leaders at once: the copy of this name continues
        if before and (holds or not row.begun):
            return rename_changed(self.config, topic, before, row.topic)
        return rename_taken(self.config, topic, row.topic, holds) if holds else None

    def _refusal(
        self, row: CopyRow, others: Iterable[CopyRow], there: ClusterMetadata
    ) -> TwinlogError | None:
        topic = row.source_topic
        for other in others:
            if not other.is_from(row.source_cluster_id, topic, row.source_topic_id):
                continue
            remote = _where(other, row, there)
            if remote and not (row.begun and remote != row.topic):
                return copied_already(self.config, topic, other, remote)
        if row.begun:
            return None  # it was here first: the flow that would close the circle is refused
        if twin := self.neighbours.twin(self.config, topic):
            return same_clusters(self.config, topic, twin)
        way = self.neighbours.way_back(self.config, row.topic)
        return would_come_back(self.config, topic, way) if way else None


def _key(row: CopyRow) -> tuple[str, str]:
    return row.flow, row.topic


def _where(other: CopyRow, row: CopyRow, there: ClusterMetadata) -> str:
    """The topic that another flow's row speaks of, where it is there still, or is about to be."""
    if other.topic == row.topic and NO_TOPIC_ID in (other.topic_id, row.topic_id):
        return other.topic
    names = [other.topic] if other.topic else there.topics
    for name in names:
        found = there.topics.get(name)
        if found is not None and other.is_of(name, found.topic_id):
            return name
    return ""


def _is_empty(target: ClusterClient, topic: TopicMetadata) -> bool:
    """Whether it surely holds no record: one whose leader does not answer may hold some."""
    return empty_logs(target, topic.tps) == {*topic.tps}
