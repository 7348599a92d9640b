"""Offset ranges as Spark tasks: split into more tasks, or cut at a limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from twinlog.model import TopicPartition
from twinlog.records.gaps import OffsetRange


def split(ranges: Sequence[OffsetRange], least: int | None) -> list[OffsetRange]:
    """Return the non-empty ranges, split into at least `least` parts if there are enough offsets.

    Like Spark's `minPartitions`, larger ranges get more parts.
    """
    filled = [one for one in ranges if one.size]
    if least is None or len(filled) >= least:
        return filled
    total = sum(one.size for one in filled)
    out: list[OffsetRange] = []
    for one in filled:
        parts = min(one.size, max(1, math.ceil(one.size / total * least)))
        bounds = [one.first + one.size * part // parts for part in range(parts + 1)]
        out += (OffsetRange(tp=one.tp, first=first, end=end) for first, end in pairwise(bounds))
    return out


MOST_TOGETHER: Final = 16
"""Maximum number of ranges per task. A task reads them one after another, and each needs at least
one round trip.
"""


def joined(ranges: Iterable[OffsetRange], most: int) -> list[list[OffsetRange]]:
    """Return the ranges in order; neighbours share a group of up to `most` offsets."""
    groups: list[list[OffsetRange]] = []
    size = 0
    for one in ranges:
        if groups and size + one.size <= most and len(groups[-1]) < MOST_TOGETHER:
            groups[-1].append(one)
            size += one.size
        else:
            groups.append([one])
            size = one.size
    return groups


def limited(
    ranges: Iterable[OffsetRange], most: int, weights: Mapping[TopicPartition, float] | None = None
) -> dict[TopicPartition, int]:
    """Return end offsets such that all ranges together have about `most` offsets (or bytes, by
    `weights`).

    Each range gets a share by its size, and at least one offset, so that small ranges beside large
    ones are not starved.
    """
    known = list(ranges)
    weight = {one.tp: 1.0 if weights is None else weights.get(one.tp, 1.0) for one in known}
    total = sum(one.size * weight[one.tp] for one in known)
    if total <= most:
        return {one.tp: max(one.first, one.end) for one in known}
    out: dict[TopicPartition, int] = {}
    for one in known:
        share = int(most * one.size / total)
        out[one.tp] = one.first + min(one.size, max(1, share)) if one.size else one.first
    return out
