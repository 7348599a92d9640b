"""Finds the end of each partition's copy, by the target's logs and the offset map, and the records
that are not copied yet, if the source responds.

The target's rows decide which partitions there are. So a partition that was copied is returned,
even if the source does not list it, lists it with another topic ID, or no longer has the records.

`survey.picture` reads the source's ends before those of the target, and the map last. So a copy
that is found complete reached the source's end of that moment. `survey.replica` finds where each
copy ends. A switchover needs its exact end: if the copy of a promoted topic is only known to reach
some offset, its end counts as unknown, and nothing of it is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.client.export import first_records
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.scope import CutoverScope
from twinlog.mirror.findings import Span
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.renaming import plain_upstream
from twinlog.mirror.plan import Pairing
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition
from twinlog.survey.ends import Want, read_ends
from twinlog.survey.picture import read_flow
from twinlog.survey.replica import Certainty, Replica
from twinlog.survey.stale_metadata import require_gone
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

# The source's names of a flow's remote topics, by the rows of copies on the target.
#
# A remote name cannot be mapped back by rule: several source topics may be renamed to one, and the
# rules may have changed since. So a row has the source's name of each topic that was copied
# (`mirror.state.copies`), by topic ID. It is stored on the target, and is available if the source
# is lost.
#
# A remote topic without a row has a name from the policy, and that counts only if the flow would
# name the topic so today. So a topic `A.eu-orders` that another rule created is never taken for a
# copy of `eu-orders`.


@dataclass(frozen=True, slots=True)
class FlowUpstreams:
    """The source's topic names of one flow, by the rows that were read."""

    config: FlowConfig
    rows: dict[str, CopyRow]
    """Rows of copies, by remote topic. Ended rows are included, because their topics are still
    copies."""

    @classmethod
    def of(cls, config: FlowConfig, rows: Iterable[CopyRow]) -> FlowUpstreams:
        flow = str(config.flow)
        return cls(config, {row.topic: row for row in rows if row.flow == flow and row.topic})

    def name(self, remote: str, topic_id: TopicId) -> str | None:
        """Return the source's name of a remote topic, or None if the topic is not a copy from the
        source."""
        row = self._row(remote, topic_id)
        return plain_upstream(self.config, remote) if row is None else row.source_topic

    def copies(self, there: Mapping[str, TopicMetadata]) -> dict[str, str]:
        """Return the source's names of all existing remote topics. Each source topic has one remote
        topic.

        A topic may have had other remote names (another policy, a changed rule, a re-created
        source topic), and those copies remain. A copy that was begun wins, then the current name,
        because groups of a stale copy would resume where nothing is written any more.
        """
        policy, alias = policy_of(self.config), self.config.source_alias
        best: dict[str, tuple[bool, bool, str]] = {}
        for remote, topic in there.items():
            upstream = self.name(remote, topic.topic_id)
            if upstream is None:
                continue
            row = self._row(remote, topic.topic_id)
            is_begun = row is not None and row.begun
            is_now = remote == policy.format_remote_topic(alias, upstream)
            one = is_begun, is_now, remote
            best[upstream] = max(one, best.get(upstream, one))
        return {remote: upstream for upstream, (_, _, remote) in best.items()}

    def _row(self, remote: str, topic_id: TopicId) -> CopyRow | None:
        row = self.rows.get(remote)
        return row if row is not None and row.is_of(remote, topic_id) else None


NOTHING: Final = "nothing of it was copied"
FORGOTTEN: Final = (
    "others may have written to it since it was promoted, and the brokers have forgotten where the "
    "copy ended"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The copy of one partition. Unknown offsets and times (ms) are None."""

    FIELDS = (
        "topic=source.topic partition=source.partition target_topic=target.topic "
        "copied_to=upstream source_end missing=left behind_ms newest_ms foreign_records=foreign "
        "deleted problem=any_problem?"
    )

    source: TopicPartition
    target: TopicPartition
    target_topic_id: TopicId = NO_TOPIC_ID
    source_topic_id: TopicId = NO_TOPIC_ID
    """ID of the topic that was copied, by the offset map."""
    replica: Replica | None = None
    """None if the end of the copy is unknown, or if nothing was copied."""
    upstream: int | None = None
    """All source records below this offset are on the target."""
    source_start: int | None = None
    source_end: int | None = None
    newest_ms: int | None = None
    """Timestamp of the newest record on the target."""
    source_newest_ms: int | None = None
    foreign: int = 0
    """Number of target offsets after the copy, written by other clients."""
    problem: str = ""
    """Why the state of the copy is unknown; empty if it is known."""
    unlisted: str = ""
    """Why the source does not list the partition although it responds, or empty if it does."""

    @property
    def is_copied(self) -> bool:
        """Return True if some of its records are on the target, and the end of the
        copy is known."""
        return self.upstream is not None

    @property
    def copied_to(self) -> int:
        """Return the source offset up to which it is known to be copied."""
        return self.upstream or 0

    @property
    def is_translated(self) -> bool:
        """Return True if its offsets can be translated. Those of keyed topics cannot."""
        return self.replica is not None and self.replica.copied.reach is not None

    @property
    def log(self) -> tuple[int, int]:
        """Return the start of the target's log, and the end of the copy."""
        return (0, 0) if self.replica is None else self.replica.log

    @property
    def held_from(self) -> int:
        """Return the first source offset whose record is on the target, or 0 if unknown. Earlier
        records were never copied, or the target's log has already deleted them.
        """
        first = None if self.replica is None else self.replica.to_source(self.log[0])
        return 0 if first is None else first.offset

    @property
    def left(self) -> int | None:
        """Return the number of source offsets that are not on the target, or None if unknown. It is
        also unknown if the source's log ends before the copy, because the source may have lost more
        records than that.
        """
        if self.source_end is None or self.source_end < self.copied_to:
            return None
        return self.source_end - self.copied_to

    @property
    def deleted(self) -> Span | None:
        """Return the offsets that the source deleted and that the map does not show as copied, or
        None. They may have had only markers; the mirror's status row shows that
        (`NewestStatus.missing`).
        """
        lost = Span(self.copied_to, self.source_start or 0)
        return None if lost.is_empty else lost

    @property
    def behind_ms(self) -> int | None:
        """Return by how much the source's newest record is newer than the target's, or None if
        unknown."""
        if self.left == 0:
            return 0
        if self.newest_ms is None or self.source_newest_ms is None:
            return None
        return max(0, self.source_newest_ms - self.newest_ms)

    def translate(self, offset: int) -> Translation | None:
        """Translate a source offset to a target offset, or return None if it has none."""
        return None if self.replica is None else self.replica.to_target(offset)

    @property
    def any_problem(self) -> str:
        return self.problem or self.unlisted


def copies(scope: CutoverScope, covers: Callable[[str], bool] | None = None) -> list[Copy]:
    """Return a `Copy` for every partition of the scope's topics that either side knows, sorted.

    `covers` selects other topics of the source than those of the scope. Raises BrokerRefused
    (BROKERS_DIFFER) if brokers of one cluster list different topics.
    """
    covers = covers or scope.covers
    rows = (row for row in scope.rows().copies.values() if row.flow == scope.name)
    begun = [row for row in rows if row.is_live and covers(row.source_topic)]
    here = None if scope.source_problem is not None else scope.source.metadata(None)
    listed = dict(_listed(here, covers))
    isolation = scope.config.isolation_level
    want = Want.STARTS | Want.TIMES
    ends = read_ends(scope.source, listed, want, isolation=isolation)
    there = scope.target.metadata(None)
    scope.require_same(here, there)
    pairs = dict(_pairs(scope, there, covers, listed))
    picture = read_flow(
        scope.target,
        [pair.target for pair in pairs.values()],
        want | Want.PRODUCERS,
        after=ends,
        is_shared=scope.setup.is_identity,
        new_owners=lambda: scope.intents().new_owners,
        maps=scope.config.flow,
        seen=there,
    )
    replicas = {tp: picture.replica(pair) for tp, pair in pairs.items()}
    # the copy has advanced since the target's ends were read, or the target lost the end of its log
    cut = {tp: one for tp, one in replicas.items() if one.log[1] < (one.copied.downstream or 0)}
    if cut:
        picture = picture.again(scope.target, [one.pair.target for one in cut.values()])
        replicas |= {tp: picture.replica(one.pair) for tp, one in cut.items()}
    for tp in listed.keys() - replicas:
        remote = TopicPartition(scope.remote(tp.topic), tp.partition)
        replicas[tp] = picture.replica(Pairing(tp, remote, listed[tp], NO_TOPIC_ID))
    found = {tp: _copy(one, is_shared=scope.setup.is_identity) for tp, one in replicas.items()}
    for row in _hidden_on_target(scope, there, begun):
        tp, target = TopicPartition(row.source_topic, 0), TopicPartition(row.topic, 0)
        if tp not in pairs:
            blank = found.get(tp, Copy(source=tp, target=target))
            right = f"grant DESCRIBE on topic {row.topic}"
            problem = f"this user may not see {row.topic} on {scope.target.alias}: {right}"
            found[tp] = replace(blank, target=target, problem=problem)
    if here is None:
        return [found[tp] for tp in sorted(found) if found[tp].is_copied or found[tp].problem]
    # the copy has advanced since the ends were read, or the source lost the end of its log
    short = [tp for tp in ends if found[tp].is_copied and found[tp].left is None]
    for tp, log in read_ends(scope.source, short, isolation=isolation).items():
        found[tp] = replace(found[tp], source_end=log.end)
    topics = {row.source_topic for row in begun if row.is_of(row.topic, _id(there, row.topic))}
    topics -= {tp.topic for tp in ends}
    unlisted = [tp for tp in found if tp not in ends]
    unlisted = [tp for tp in unlisted if found[tp].is_copied or tp.topic in topics]
    reasons = _why_unlisted(scope.source, here, {tp.topic for tp in unlisted})
    for tp in unlisted:
        found[tp] = replace(found[tp], unlisted=reasons[tp.topic])
    return [found[tp] for tp in sorted({*ends, *unlisted})]


def incomplete(
    scope: CutoverScope, found: Iterable[Copy], ends: Mapping[TopicPartition, int] | None = None
) -> list[Copy]:
    """Return the copies that lack a record of the source below these ends, by default the source's.
    Any other copy lacks at most markers, and records that were rolled back or compacted away.
    """
    listed = [one for one in found if not one.unlisted]
    known = {one.source: one.source_end or 0 for one in listed} | dict(ends or {})
    spans = {one.source: Span(one.copied_to, known[one.source]) for one in listed}
    lacking = records_in(scope, spans)
    return [one for one in listed if one.source in lacking]


def records_in(
    scope: CutoverScope, spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    """Return the first record in these ranges that the flow would copy, or might copy: its offset
    by partition.
    """
    with_aborted = scope.config.isolation_level is Isolation.READ_UNCOMMITTED
    return first_records(scope.source, spans, with_aborted=with_aborted)


# -- the source


def _listed(
    here: ClusterMetadata | None, covers: Callable[[str], bool]
) -> Iterator[tuple[TopicPartition, TopicId]]:
    """Yield the partitions that the source lists, with the IDs of their topics."""
    for name, topic in here.topics.items() if here is not None else ():
        if not topic.is_internal and covers(name):
            yield from ((tp, topic.topic_id) for tp in topic.tps)


def _why_unlisted(
    source: ClusterClient, here: ClusterMetadata, topics: Collection[str]
) -> dict[str, str]:
    """Return the reason why the source does not list each of these topics, or not with all of its
    partitions. Raises BrokerRefused (BROKERS_DIFFER) if another broker lists a missing one.
    """
    require_gone(source, here, topics)
    found = source.metadata(sorted(topics)).topics if topics else {}
    out = dict.fromkeys(topics, "it was copied, and the source does not list it: it was deleted")
    for name, topic in found.items():
        if topic.error == TOPIC_AUTHORIZATION_FAILED:
            out[name] = (
                "it was copied, and the source does not list it: it was deleted, or this user may "
                f"not see it: grant DESCRIBE on topic {name}"
            )
        elif topic.partitions:
            out[name] = f"it was copied, and the source lists {len(topic.partitions)} partitions"
    return out


# -- the target


def _pairs(
    scope: CutoverScope,
    there: ClusterMetadata,
    covers: Callable[[str], bool],
    listed: Mapping[TopicPartition, TopicId],
) -> Iterator[tuple[TopicPartition, Pairing]]:
    """Yield the partitions of remote topics, by their source partitions."""
    upstreams = FlowUpstreams.of(scope.config, scope.rows().copies.values())
    for name, upstream in upstreams.copies(there.topics).items():
        topic = there.topics[name]
        if not topic.is_internal and covers(upstream):
            for target in topic.tps:
                tp = TopicPartition(upstream, target.partition)
                source_id = listed.get(tp, NO_TOPIC_ID)
                yield tp, Pairing(tp, target, source_id, topic.topic_id)


def _hidden_on_target(
    scope: CutoverScope, there: ClusterMetadata, begun: Iterable[CopyRow]
) -> list[CopyRow]:
    """Return the rows of remote topics that this user may not see, so that they may still exist.
    Deleted remote topics are left out, because clients cannot move to them.
    """
    lacking = {row.topic: row for row in begun if row.topic not in there.topics}
    require_gone(scope.target, there, lacking)
    found = scope.target.metadata(sorted(lacking)).topics if lacking else {}
    return [
        lacking[name] for name, topic in found.items() if topic.error == TOPIC_AUTHORIZATION_FAILED
    ]


def _id(found: ClusterMetadata, topic: str) -> TopicId:
    return found.topics[topic].topic_id if topic in found.topics else NO_TOPIC_ID


def _copy(found: Replica, *, is_shared: bool) -> Copy:
    copied, problem = found.copied, ""
    if found.problem is not None:
        problem = str(found.problem) if found.key is None else found.problem.message
    elif copied.upstream is None:
        problem = NOTHING
    elif copied.reach is not None and copied.certainty is Certainty.AT_LEAST and not is_shared:
        problem = FORGOTTEN
    return Copy(
        source=found.pair.source,
        target=found.pair.target,
        target_topic_id=found.pair.target_topic_id,
        source_topic_id=NO_TOPIC_ID if found.key is None else found.key.source_topic_id,
        replica=None if problem else found,
        upstream=None if problem else copied.upstream,
        source_start=found.source.start,
        source_end=found.source.end,
        newest_ms=found.target.newest_ms,
        source_newest_ms=found.source.newest_ms,
        foreign=0 if problem else copied.foreign,
        problem=problem,
    )
