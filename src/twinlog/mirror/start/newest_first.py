"""Reading the end of a log newest records first, of brokers that read forwards only.

A Fetch answers with about 1 MB of whole batches from an offset on, and at least one. How many
records that is nobody knows before. So the first read begins at the oldest wanted offset: where
records are small it is the only one. Where it does not reach the end, later ones begin nearer to it
until one does, and then go back from there: what is left out when the bound is reached is the
oldest.

Wanted is what may be there, not what is: a log has holes. An answer that begins behind a wanted
offset says that nothing lies between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from twinlog.wire.record_batch import read_headers

MAX_READS: Final = 20
"""Of the newest records only: a hundred of 600 KB would be 60 MB."""

MAX_BYTES: Final = 24 << 20
"""A single batch may be larger than an answer usually is."""


class Newest(NamedTuple):
    """What was read; the answers overlap, and are in no order."""

    answers: list[memoryview]
    whole_from: int
    """Nothing from this wanted offset on was left out."""


def newest_first(
    read: Callable[[int], memoryview],
    wanted: Sequence[int],
    *,
    max_reads: int = MAX_READS,
    max_bytes: int = MAX_BYTES,
) -> Newest:
    """Answers that hold the newest of these offsets (rising), and older ones within the bounds."""
    answers: list[memoryview] = []
    top, step = len(wanted), len(wanted)
    done: list[tuple[int, int]] = []
    reads = size = 0
    while top > 0 and reads < max_reads and size < max_bytes:
        held = max((reached for _, reached in done if reached < top), default=0)
        at = max(held, top - step)
        raw = read(wanted[at])
        answers.append(raw)
        reads, size = reads + 1, size + len(raw)
        reached = _reached(raw, wanted)
        if reached >= top:
            top = at
            step = max(step, reached - at)
        else:
            done.append((at, reached))
            step = max(1, min(step // 2, reached - at))
        while older := next((one for one in done if one[0] < top <= one[1]), None):
            top = older[0]
    if top < len(wanted):
        return Newest(answers, wanted[top])
    return Newest(answers, wanted[-1] + 1 if wanted else 0)  # the bound came before the end


def _reached(raw: memoryview, wanted: Sequence[int]) -> int:
    """How many of the wanted offsets lie before the end of an answer."""
    after = -1
    for header, _ in read_headers(raw):
        after = header.next_offset
    return len(wanted) if after < 0 else bisect_left(wanted, after)
