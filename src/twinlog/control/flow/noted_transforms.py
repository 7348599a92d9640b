"""Records in the state topic which topics have transforms, for processes of the flow with another
file (`mirror.state.transformed`, ADR 40).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.config.flow.transforms import TransformsConfig
from twinlog.config.keys.key_table import TRANSFORMS_REMOVED
from twinlog.mirror.plan import PartitionPlan, Refusal
from twinlog.mirror.state.transformed import TRANSFORMED, TransformedTopics, transformed_topics
from twinlog.survey.state_reader import HOME, state_rows


def note_transforms(target: ClusterClient, flow: str, config: TransformsConfig) -> None:
    """Write a row for each pattern of the configuration that has none yet. Raises TwinlogError."""
    if not config.entries:
        return
    now_ms = int(time.time() * 1000)
    known = {(one.topics, one.compares) for one in _noted(target, flow)}
    missing = {(one.topics, one.compares) for one in config.entries} - known
    if missing:
        rows = [TransformedTopics.of(flow, *topics, now_ms).encode() for topics in missing]
        append_rows(target, HOME, rows, now_ms)


def with_noted_transforms(
    target: ClusterClient, flow: str, config: TransformsConfig, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """Return the plans. Topics that are transformed only by other files of the flow get a refusal,
    so that their copy does not begin. Raises TwinlogError.
    """
    noted = _noted(target, flow)
    return [_with_refusal(plan, noted, config) for plan in plans]


def _with_refusal(
    plan: PartitionPlan, noted: Iterable[TransformedTopics], config: TransformsConfig
) -> PartitionPlan:
    topic = plan.source.topic
    found = next((row for row in noted if row.matches(topic)), None)
    if plan.transform or found is None or config.removed.matches(topic):
        return plan
    message = (
        f"{plan.source}: it is new, and this may be the wrong configuration: another process of "
        f"the flow has a transform for {found.topics}; if this is intended, list {topic} in "
        f"{TRANSFORMS_REMOVED}"
    )
    refusal = Refusal(code="TRANSFORMS_DIFFER", message=message, is_retriable=False)
    return replace(plan, refusal=refusal)


def _noted(target: ClusterClient, flow: str) -> list[TransformedTopics]:
    return transformed_topics(state_rows(target).of(flow, TRANSFORMED))
