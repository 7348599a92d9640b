"""Why groups of the source have no counterpart on the target, as text for `twinlog status`.

Operators must see before a failover which applications will have no offset to resume from, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twinlog.control.duties.rounds import PartitionView
from twinlog.mirror.state.intents import FlowIntents, IntentKind, topic_promoted
from twinlog.model import TopicPartition
from twinlog.quantities import first_few

NOTHING_COMMITTED = "no offsets are committed"


def reasons(
    committed: Mapping[str, Iterable[TopicPartition]],
    views: Iterable[PartitionView],
    intents: FlowIntents,
) -> dict[str, str]:
    """Return a reason by group. `committed`: partitions of groups of which none has a counterpart.

    Partitions that are written by key are left out, because another duty reports them.
    """
    mirrored = {view.source: view for view in views}
    return {
        group: reason
        for group, tps in sorted(committed.items())
        if (reason := _reason(sorted(tps), mirrored, intents))
    }


def _reason(
    tps: Sequence[TopicPartition],
    mirrored: Mapping[TopicPartition, PartitionView],
    intents: FlowIntents,
) -> str:
    by_reason: dict[str, dict[str, None]] = {}
    if not tps:
        return NOTHING_COMMITTED
    for tp in tps:
        view = mirrored.get(tp)
        if view is not None and view.is_keyed:
            continue
        by_reason.setdefault(why_no_counterpart(tp, view, intents), {})[tp.topic] = None
    return "; ".join(f"{first_few([*topics])}: {why}" for why, topics in by_reason.items())


def why_no_counterpart(tp: TopicPartition, view: PartitionView | None, intents: FlowIntents) -> str:
    """Return why one partition that is not written by key has no counterpart. `view`: None if the
    flow does not mirror it.
    """
    promotion = intents.get(IntentKind.PROMOTE, tp.topic)
    if promotion is not None:
        return topic_promoted(promotion)
    if view is None:
        return "not mirrored by this flow"
    if view.is_broken:
        return "has stopped, with a code"
    return "no lane has checked it yet" if view.is_unseen else "nothing is copied yet"
