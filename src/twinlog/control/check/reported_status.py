"""What the process that leads a flow, on whatever host, wrote to the target a moment ago."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import list_offsets
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.codes import FlowState
from twinlog.control.check.last_run import lives_here
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import STATE_TOPIC, STATUS_TOPIC
from twinlog.mirror.state.generations import FlowHistory, winning_claims
from twinlog.mirror.state.intents import FlowIntents, flow_intents
from twinlog.mirror.state.published import PublishedStatus, published_status
from twinlog.model import TopicPartition
from twinlog.survey.rights import may
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

WRITTEN_WITHIN_MS: Final = 600_000
"""Rows of the status topic: far longer than one is of now, whatever the hosts' clocks say."""

_NOT_SEEN: Final = (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED)

Rows = Sequence[tuple[bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Of one flow: what its leader says, and what people want of it."""

    status: PublishedStatus | None
    """None: nobody leads it, or its leader tells nothing."""
    intents: FlowIntents


def reports_of(
    flows: Iterable[str], target: ClusterSettings, now_ms: int, give_up_s: float
) -> dict[str, Reported]:
    """Of flows into one cluster, by name; raises TwinlogError where it cannot be asked."""
    with ClusterClient(target, api_timeout_s=give_up_s) as client:
        # by name: every page that is open asks again and again, also of clusters with many topics
        there = client.metadata([STATE_TOPIC, STATUS_TOPIC])
        is_seen = there.topics[STATE_TOPIC].error not in _NOT_SEEN
        state = state_rows(client) if is_seen else []
        status = status_rows(client, there, now_ms)
    claims = winning_claims(state)
    return {
        flow: Reported(
            status=report_of_now(flow, status, claims.get(flow), now_ms),
            intents=flow_intents(flow, state),
        )
        for flow in flows
    }


def state_rows(target: ClusterClient) -> Rows:
    """All of the state topic, which must be there."""
    return [(row.key, row.value) for row in read_to_end(target, STATE_TOPIC, 0)]


def status_rows(target: ClusterClient, there: ClusterMetadata, now_ms: int) -> Rows:
    """The last minutes of the status topic; none where it is not there or may not be read."""
    if not may(there, STATUS_TOPIC, Operation.READ):
        return []
    home = TopicPartition(STATUS_TOPIC, 0)
    begin = list_offsets(target, [home], now_ms - WRITTEN_WITHIN_MS)[home]
    if isinstance(begin, TwinlogError) or begin.offset < 0:
        return []
    return [(row.key, row.value) for row in read_to_end(target, STATUS_TOPIC, 0, begin.offset)]


def report_of_now(
    flow: str, rows: Rows, history: FlowHistory | None, now_ms: int
) -> PublishedStatus | None:
    """What the leader of now says; None where it has ended, or has not written for too long."""
    return of_now(published_status(flow, rows), history, now_ms)


def of_now(
    told: PublishedStatus | None, history: FlowHistory | None, now_ms: int
) -> PublishedStatus | None:
    """The newest row, where who wrote it leads the flow now."""
    if told is None or told.state == FlowState.STOPPED or abs(now_ms - told.at_ms) > told.lives_ms:
        return None
    # a process of this host writes on time, or can be seen to be gone
    is_late = now_ms - told.at_ms > 2 * told.every_ms
    if is_late and lives_here(told.host, told.pid, told.at_ms) is False:
        return None
    # another took the lead since, and has not written yet
    latest = None if history is None else history.latest
    return told if latest is None or told.generation >= latest.generation else None
