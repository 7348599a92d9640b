"""The copy position of a partition, from the offset map and its target's log end, without querying
a lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.mirror.copy.fan_out import next_upstream
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, run_at
from twinlog.mirror.map.runs import k_at
from twinlog.mirror.plan import PartitionPlan


def position_of(
    plan: PartitionPlan,
    maps: Mapping[PartitionKey, PartitionMap],
    target_end: int,
    *,
    is_shared: bool,
) -> tuple[int, int] | None:
    """Return (records copied, next upstream offset), or None if it was never copied."""
    if plan.targets:
        return fan_position(plan.map_key, plan.targets, maps)
    return position(maps.get(plan.map_key), target_end, is_shared=is_shared)


def position(
    known: PartitionMap | None, target_end: int, *, is_shared: bool
) -> tuple[int, int] | None:
    """Return the same from one map. With `is_shared` other clients may write to the target, so the
    map's last mark is used instead of the log end.
    """
    if known is None or not known.runs:
        return None
    first = known.runs[0]
    if not is_shared:
        ordinal = target_end - k_at(known.runs, target_end)
    elif known.mark is not None:
        ordinal = known.mark.ordinal
    else:
        ordinal = known.runs[-1].ordinal
    run = run_at(known.runs, ordinal)
    return (ordinal, (run or first).upstream_of(ordinal))


def fan_position(
    key: PartitionKey, targets: int, maps: Mapping[PartitionKey, PartitionMap]
) -> tuple[int, int] | None:
    """Return the same for a partition whose records go to several target partitions by key, from
    the marks of its branches.
    """
    records, upstreams = 0, []
    for number in range(targets):
        known = maps.get(key._replace(branch=number, branches=targets))
        if known is None or not known.runs:
            return None
        ordinal = known.runs[0].ordinal if known.mark is None else known.mark.ordinal
        upstream = next_upstream(known.runs, ordinal)
        records += ordinal
        upstreams.append(known.runs[0].upstream if upstream is None else upstream)
    return records, min(upstreams)


def was_begun(plan: PartitionPlan, maps: Mapping[PartitionKey, PartitionMap]) -> bool:
    """Return True if the map has rows of the copy, even of only one of several branches."""
    keys = [plan.map_key]
    if plan.targets:
        numbers = range(plan.targets)
        keys = [plan.map_key._replace(branch=one, branches=plan.targets) for one in numbers]
    return any(one.runs for one in map(maps.get, keys) if one is not None)
