"""Reads from a cluster's state topic which flows wrote to it, and which of its topics are copies.

A flow reads the state topics of both clusters: its target, to which it also writes, and its source,
which may be another flow's target. At the source, the permission to read may be missing, because
MirrorMaker 2 does not need it. The missing permission is reported, and copies are recognized by
topic names as far as possible.

Earlier releases wrote no rows for copies. Such copies are found by topic ID in the offset map of
their flow, as long as the state topic has no rows for copies of the flow.

**Same clusters.** With a claim, a process becomes a flow's leader (`mirror.state.generations`). The
flow's source and target must be the clusters that its newest claim names (`changed_error`). Cluster
IDs are compared, never addresses. An address may lead to another cluster than at the time of the
claim. For example, the address moved, a variable came from another shell, or a cluster was
re-created with empty disks. If the ID of the cluster or the ID in the claim is empty, no error is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import ConfigError, CorruptData, FlowError, Unauthorized
from twinlog.mirror.names.naming import STATE_TOPIC, map_topic_of
from twinlog.mirror.state.copies import CopyRow
from twinlog.mirror.state.generations import CLAIMS, Claim, winning_claims
from twinlog.model import Flow, TopicId
from twinlog.survey.map_reader import map_reader
from twinlog.survey.rights import denied_error, is_permitted
from twinlog.survey.state_reader import STATE_PARTITION, state_rows
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

SEPARATORS: Final = "._-"
"""The characters of topic names that are neither letters nor digits."""


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    cluster_id: str
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """The newest claim (`mirror.state.generations`) of each flow that wrote to the cluster, by
    flow.
    """
    rows: Mapping[tuple[str, str], CopyRow] = field(default_factory=dict)
    older: tuple[CopyRow, ...] = ()
    """Copies of flows that have no rows in the state topic, read from their offset maps."""
    unread: Unauthorized | None = None

    def copies_of(self, topic: str, topic_id: TopicId) -> list[CopyRow]:
        """Return the rows of the flows that write, or are about to write, a copy to this topic."""
        named = self._by_topic.get(topic, ())
        return [
            row
            for row in (*named, *self.older)
            if self._is_current(row) and row.is_of(topic, topic_id)
        ]

    def copied_by_other_flows(self, flow: str) -> dict[str, list[CopyRow]]:
        """Return the copies that other flows write to this cluster, by the source topic's name."""
        out: dict[str, list[CopyRow]] = {}
        for row in (*self.rows.values(), *self.older):
            if row.flow != flow and self._is_current(row):
                out.setdefault(row.source_topic, []).append(row)
        return out

    def copied_by(self, flow: str) -> list[CopyRow]:
        """Return the copies that one flow writes to this cluster."""
        rows = (*self.rows.values(), *self.older)
        return [row for row in rows if row.flow == flow and self._is_current(row)]

    def is_begun(self, flow: str, topic: str, topic_id: TopicId) -> bool:
        rows = self.copies_of(topic, topic_id)
        return any(row.begun for row in rows if row.flow == flow)

    def _is_current(self, row: CopyRow) -> bool:
        # a cluster that was cloned from the disks of a second cluster also has the rows of the
        # second one, which do not count
        return not row.ended and row.target_cluster_id in ("", self.cluster_id)

    @cached_property
    def _by_topic(self) -> dict[str, list[CopyRow]]:
        out: dict[str, list[CopyRow]] = {}
        for row in self.rows.values():
            out.setdefault(row.topic, []).append(row)
        return out


def cluster_state(client: ClusterClient) -> ClusterState:
    """Read the state of a cluster. Without a readable state topic, the result has no claims or
    rows, and `unread` has the error if reading is denied.
    """
    seen = client.metadata([STATE_TOPIC])
    cluster_id = seen.cluster_id or ""
    topic = seen.topics[STATE_TOPIC]
    if topic.error == TOPIC_AUTHORIZATION_FAILED or (
        not topic.error and not is_permitted(seen, STATE_TOPIC, Operation.READ)
    ):
        missing = denied_error(client.alias, Operation.READ.name, STATE_TOPIC)
        return ClusterState(cluster_id=cluster_id, unread=missing)
    if topic.error or not topic.partitions:
        return ClusterState(cluster_id=cluster_id)
    records = state_rows(client)
    winning = winning_claims(records.of_kinds(*CLAIMS))
    claims = {name: history.latest for name, history in winning.items()}
    return ClusterState(
        cluster_id=cluster_id,
        claims={name: claim for name, claim in claims.items() if claim is not None},
        rows=records.copies,
    )


def with_maps(
    client: ClusterClient, state: ClusterState, is_wanted: Callable[[Claim], bool]
) -> ClusterState:
    """Add the copies of flows that earlier releases ran. An offset map is read only if `is_wanted`
    accepts the flow's claim, because a map may be large.
    """
    known = {flow for flow, _ in state.rows}
    wanted = [c for c in state.claims.values() if c.flow not in known and is_wanted(c)]
    older: list[CopyRow] = []
    for claim in wanted:
        name = map_topic_of(Flow.of(claim.flow))
        seen = client.metadata([name])
        if not is_permitted(seen, name, Operation.READ):
            continue
        maps = map_reader(client, seen.topics[name]).read(client)
        maps.require_all()  # an unread row may be about a topic that this flow would copy back
        copies = {(key[:2], known.topic) for key, known in maps.items()}
        older += (
            CopyRow(
                lineage=(),
                ended=False,
                flow=claim.flow,
                topic="",
                topic_id=target_id,
                target_cluster_id=claim.target_cluster_id,
                source_cluster_id=claim.source_cluster_id,
                source_topic=topic,
                source_topic_id=source_id,
                begun=True,
            )
            for (source_id, target_id), topic in sorted(copies)
        )
    return replace(state, older=tuple(older)) if older else state


class Upstream(NamedTuple):
    """A flow, and its source's alias in the names of remote topics.

    The source's name in the configuration file is part of the flow's name and of the offset map
    topic's name. The source's alias (`source.cluster.alias`, by default the name) is part of the
    names of remote topics and of the checkpoints topic, so users see the alias.
    """

    flow: Flow
    alias: str


def find_upstream(client: ClusterClient, name: str) -> Upstream | None:
    """Return the flow into this cluster whose source has this alias, or else this name.

    Returns None if the state topic has no such flow, or if this user is not permitted to read it.
    Raises ConfigError if several sources have the alias. For callers that know only the target.
    """
    rows = cluster_state(client).rows.values()
    known = sorted({Upstream(Flow.of(row.flow), _alias(row)) for row in rows if row.begun})
    sources = {upstream.flow.source: upstream for upstream in known if upstream.alias == name}
    if len(sources) > 1 and name not in sources:
        raise ConfigError(
            f"cluster {client.alias}: several sources have the alias {name} in remote topics: pass "
            f"the source's name in the mirror's configuration instead ({', '.join(sources)})"
        )
    upstream = sources.get(name) or next(iter(sources.values()), None)
    return upstream or next((upstream for upstream in known if upstream.flow.source == name), None)


def source_aliases(client: ClusterClient, flow: Flow) -> frozenset[str]:
    """Return the aliases of a flow's source in the names of its remote topics on this cluster.

    The result is empty if the flow copied nothing, or if its rows cannot be read.
    """
    try:
        rows = cluster_state(client).copied_by(str(flow))
    except CorruptData:
        return frozenset()  # a row that cannot be read may be of a newer release
    return frozenset(map(_alias, rows))


def _alias(row: CopyRow) -> str:
    """Return the source's alias. Rows of earlier releases lack the alias, but their topics' names
    contain it, unless the topics were renamed or the policy keeps names.
    """
    prefix = "" if row.renamed else row.topic.removesuffix(row.source_topic)
    return row.source_alias or prefix.rstrip(SEPARATORS) or Flow.of(row.flow).source


def write_copies(client: ClusterClient, rows: Sequence[CopyRow]) -> None:
    """Append rows for copies to the state topic. They are durable on return."""
    append_rows(client, STATE_PARTITION, [row.encode() for row in rows])


def never_led_error(flow: FlowConfig) -> FlowError:
    """Return the error for a flow without a claim on the target."""
    target = flow.flow.target
    return FlowError(
        f"no mirror has ever copied this flow to {target}, so nothing was changed; correct "
        f"{target}.bootstrap.servers if it names the wrong cluster, or start the flow with "
        "twinlog mirror FILE first",
        flow=flow.flow,
        code="NOT_COPIED",
    )


def changed_error(
    flow: FlowConfig, claim: Claim | None, *, source_id: str = "", target_id: str = ""
) -> FlowError | None:
    """Return the error if a cluster with one of these IDs is not the one that the claim names."""
    target_claim = "" if claim is None else claim.target_cluster_id
    source_claim = "" if claim is None else claim.source_cluster_id
    for alias, before, now in (
        (flow.flow.target, target_claim, target_id),
        (flow.flow.source, source_claim, source_id),
    ):
        if before and now and before != now:
            return FlowError(
                f"the state on {flow.flow.target} was written with cluster {before} as {alias}, "
                f"but {alias} is now cluster {now}: correct {alias}.bootstrap.servers; if it is "
                "another cluster, or was re-created, give it another alias; copied records are not "
                "changed",
                flow=flow.flow,
                code="CLUSTER_CHANGED",
            )
    return None
