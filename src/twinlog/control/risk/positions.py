"""How far a partition is copied, by the offset map and its target's log end: no lane is asked."""

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
    """(records copied, next upstream offset); None for a partition that was never copied."""
    if plan.targets:
        return fan_position(plan.map_key, plan.targets, maps)
    return position(maps.get(plan.map_key), target_end, is_shared=is_shared)


def position(
    known: PartitionMap | None, target_end: int, *, is_shared: bool
) -> tuple[int, int] | None:
    """The same of one map. `is_shared`: others may write to the target, so its last mark counts."""
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
    """The same of a partition whose records go to several by key, as of its branches' marks."""
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
    """Whether the map knows of a copy, were it of one branch of several."""
    keys = [plan.map_key]
    if plan.targets:
        numbers = range(plan.targets)
        keys = [plan.map_key._replace(branch=one, branches=plan.targets) for one in numbers]
    return any(one.runs for one in map(maps.get, keys) if one is not None)
