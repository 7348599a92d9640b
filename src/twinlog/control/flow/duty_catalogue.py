"""Which duties a led flow has, in the order in which `--once` ends with a round of each."""

from __future__ import annotations

from typing import Final

from twinlog.control.duties.acl_sync import acl_sync
from twinlog.control.duties.config_sync import config_sync
from twinlog.control.duties.heartbeats import into_source, into_target
from twinlog.control.duties.map_pruning import map_pruning
from twinlog.control.duties.mm2_positions import mm2_positions
from twinlog.control.duties.offset_syncs import offset_syncs
from twinlog.control.duties.own_topics import own_topics
from twinlog.control.duties.producer_quota import producer_quota
from twinlog.control.duties.publication import publication
from twinlog.control.duties.rounds import Duty, DutyFactory, LedFlow
from twinlog.control.duties.source_group import group_commits
from twinlog.control.duties.verification import verification
from twinlog.control.groups.checkpoints import checkpoints
from twinlog.control.groups.keyed_groups import keyed_groups

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
    map_pruning,
    own_topics,
    producer_quota,
    verification,
    publication,
)


def duties_of(flow: LedFlow) -> list[Duty]:
    """Those that the flow's configuration asks for."""
    made = (factory(flow) for factory in DUTIES)
    return [duty for duty in made if duty is not None]
