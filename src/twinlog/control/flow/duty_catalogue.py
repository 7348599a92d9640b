"""The duties of a led flow, in the order in which `--once` runs the last round of each, and the
view of the flow that they get.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.control.duties.acl_sync import acl_sync
from twinlog.control.duties.config_sync import config_sync
from twinlog.control.duties.heartbeats import into_source, into_target
from twinlog.control.duties.map_pruning import MapPruning
from twinlog.control.duties.mm2_positions import mm2_positions
from twinlog.control.duties.offset_syncs import offset_syncs
from twinlog.control.duties.own_topics import OwnTopics
from twinlog.control.duties.producer_quota import producer_quota
from twinlog.control.duties.publication import publication
from twinlog.control.duties.rounds import Duty, DutyFactory, LedFlow, PartitionView
from twinlog.control.duties.source_group import group_commits
from twinlog.control.duties.verification import verification
from twinlog.control.flow.flow_setup import PreparedFlow
from twinlog.control.groups.checkpoints import checkpoints
from twinlog.control.groups.keyed_groups import keyed_groups
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published_events import PublishedEvents

CLAIMS_WITHIN_S: Final = 5.0
"""Timeout of a duty's reads of the state topic, before each change."""

DUTIES: Final[tuple[DutyFactory, ...]] = (
    config_sync,
    acl_sync,
    offset_syncs,
    into_target,
    into_source,
    checkpoints,
    keyed_groups,
    group_commits,
    mm2_positions,
    MapPruning,
    OwnTopics,
    producer_quota,
    verification,
    publication,
)


def duties_of(flow: LedFlow) -> list[Duty]:
    """Return the duties for which the flow's configuration asks."""
    made = (factory(flow) for factory in DUTIES)
    return [duty for duty in made if duty is not None]


def led_flow(
    prepared: PreparedFlow,
    *,
    partitions: Callable[[], tuple[PartitionView, ...]],
    snapshot: Callable[[], FlowSnapshot],
    intents: Callable[[], FlowIntents],
    synced: SyncedOffsets,
    events: Callable[[], PublishedEvents | None],
) -> LedFlow:
    """Return the flow as its duties see it.

    A duty acts on the partitions that it was given. So the intents must be the same as when its
    thread got them, however long ago that was.
    """
    setup, reader, asked = prepared.setup, prepared.map_reader, threading.local()

    def views() -> tuple[PartitionView, ...]:
        asked.intents = intents()
        return partitions()

    def may_act() -> bool:
        then = getattr(asked, "intents", None)
        with ClusterClient(setup.target, api_timeout_s=CLAIMS_WITHIN_S) as target:
            is_same = setup.claims.is_latest(target, prepared.generation, then or intents())
        return is_same and not prepared.lost_lead  # last, as the read may be older than a freeze

    return LedFlow(
        config=setup.config,
        policy=setup.policy,
        generation=prepared.generation,
        source=setup.source,
        target=setup.target,
        partitions=views,
        read_map=reader.read,
        snapshot=snapshot,
        may_act=may_act,
        claim=setup.claims.mine,
        intents=intents,
        leads=lambda: not prepared.lost_lead,
        log_once=setup.log_once,
        adopted=setup.adopts,
        synced=synced,
        events=events,
        has_held_producers=prepared.news.has_held_producers,
    )
