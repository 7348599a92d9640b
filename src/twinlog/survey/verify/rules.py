"""The operator's decisions about records of a partition, which are no differences for a
verification.
"""

from __future__ import annotations

from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.verify.walk import Rules
from twinlog.model import TopicId, TopicPartition


def rules_of(
    intents: FlowIntents,
    source: tuple[TopicPartition, TopicId],
    target: tuple[TopicPartition, TopicId],
    *,
    is_shared: bool,
    is_deep: bool = False,
) -> Rules:
    """Return the rules by the current intents. Partitions are given with the IDs of their
    topics.
    """
    return Rules(
        skips=tuple(one.skip for one in intents.skips if one.is_of(*source)),
        accepted=tuple(
            one
            for wanted in intents.accepted
            if wanted.is_of(*target)
            for one in wanted.accepted.ranges
        ),
        is_shared=is_shared,
        is_deep=is_deep,
    )
