"""Writes to the state topic which topics have transforms, (`mirror.state.transformed`, ADR 40). A
process of the flow with another file then does not copy their records unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.config.flow.transforms import TransformsConfig
from twinlog.config.keys.key_table import TRANSFORMS_REMOVED
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.regex.reader import RegexProblem
from twinlog.config.values.renames import RemoteName
from twinlog.mirror.plan import PartitionPlan, Refusal
from twinlog.mirror.state.transformed import TRANSFORMED, TransformedTopics, transformed_topics
from twinlog.survey.state_reader import STATE_PARTITION, state_rows


def note_transforms(target: ClusterClient, flow: str, config: TransformsConfig) -> None:
    """Write a row for each configured topic pattern that has no row yet. Raises TwinlogError."""
    if not config.entries:
        return
    now_ms = int(time.time() * 1000)
    rows = {
        TransformedTopics.of(flow, transform.topics, transform.compares, now_ms)
        for transform in config.entries
    }
    missing = rows - {structs.replace(row, at_ms=now_ms) for row in _noted(target, flow)}
    if missing:
        append_rows(target, STATE_PARTITION, [row.encode() for row in missing])


def with_noted_transforms(
    target: ClusterClient, flow: str, config: TransformsConfig, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """Return the plans. If only another process's file has transforms for a topic, the topic's
    plans get a refusal, so that its copy does not begin. Raises TwinlogError.
    """
    try:
        noted = [(row.topics, row.compares) for row in _noted(target, flow)]
        return [_with_refusal(plan, noted, config) for plan in plans]
    except RegexProblem as problem:  # written by a later release, which accepts more expressions
        raise TransformedTopics.corrupt_error(problem) from problem


def _with_refusal(
    plan: PartitionPlan,
    noted: Iterable[tuple[NamePattern, RemoteName]],
    config: TransformsConfig,
) -> PartitionPlan:
    topic = plan.source.topic
    if plan.transform or config.removed.matches(topic):
        return plan
    found = next((topics for topics, name in noted if topics.matches(name.of(topic))), None)
    if found is None:
        return plan
    message = (
        f"{plan.source} is new and has no transform, but another process of the flow has one for "
        f"{found}, so this may be the wrong configuration. If no transform is intended, list "
        f"{topic} in {TRANSFORMS_REMOVED}"
    )
    refusal = Refusal(code="TRANSFORMS_DIFFER", message=message, is_retriable=False)
    return replace(plan, refusal=refusal)


def _noted(target: ClusterClient, flow: str) -> list[TransformedTopics]:
    return transformed_topics(state_rows(target).of(flow, TRANSFORMED))
