"""Rules of the copy. Each mutant removes one rule, and a test must detect this.

Mutants of rule C of `mirror.map.offset_map` (a new term repeats the newest chunk) are in
`unit/mirror/test_map_histories.py`. Only real brokers show that a repeat is not an append
(`faults/test_h03_offset_map.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from msgspec import structs

from tests.support import memory_flow
from tests.support.memory_flow import MemoryFlow
from twinlog.lane.messages import HandOver
from twinlog.lane.reporting import hand_over
from twinlog.mirror.copy.batch_sizes import Splitter
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.copy.target_log import TargetLeader
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.map.offset_map import PartitionMap, Term
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail
from twinlog.mirror.start import cold_start
from twinlog.model import TopicPartition

PROGRAM_BYTES: Final = 800
Run = Callable[[bytes], MemoryFlow]
"""Type of a function that runs a program of steps, and raises an exception if a rule is broken."""

Ends = Mapping[TopicPartition, LogEnds]
States = Mapping[TopicPartition, ProducerTail] | None
one_moment: Final = cold_start.one_moment
begin: Final = PartitionCopy.__init__


class Mutant(NamedTuple):
    """A removed rule, and the seed of a program of steps that detects its absence."""

    rule: str
    seed: int
    where: object
    name: str
    instead: Any


def _believes_any_offset(self: PartitionCopy, batch: OutBatch, _distance: int, now_ms: int) -> None:
    self._clean(batch, self._k + batch.ordinal, now_ms)


def _without_late_requests(self: PartitionCopy, **given: Any) -> None:
    begin(self, **{**given, "late_requests": False})


def _without_old_lane(self: PartitionCopy, **given: Any) -> None:
    begin(self, **{**given, "old_lane": False})


def _cuts_nothing(_self: Splitter, batch: OutBatch) -> list[OutBatch]:
    return [batch]


def _looks_at_no_leader(self: TargetLeader, epoch: int, *, requested_epoch: int) -> None:
    del requested_epoch
    self.epoch = self.checked_epoch = epoch


def _end_of_a_record_ago(
    target: LogView, tps: set[TopicPartition], producer_id: int
) -> tuple[Ends, States, frozenset[TopicPartition]]:
    found, _, moving = one_moment(target, tps, producer_id)
    ends = {tp: max(one.log_start, one.log_end - 1) for tp, one in found.items()}
    late = {
        tp: replace(one, log_end=ends[tp], high_watermark=ends[tp]) for tp, one in found.items()
    }
    return late, {}, moving


def appends_anywhere(self: PartitionMap, entry: Any) -> None:
    self._entries.append(entry)
    self._runs = None


def hands_over_what_was_read(copy: PartitionCopy) -> HandOver | None:
    handed = hand_over(copy)
    if handed is None:
        return None
    start = replace(handed.start, upstream=copy.intake.position)
    return structs.replace(handed, start=start)


def always(answer: object) -> Callable[..., object]:
    return lambda *_, **__: answer


MUTANTS: Final = (
    Mutant("K: an answer's offset is compared", 44, PartitionCopy, "_off_by", _believes_any_offset),
    Mutant(
        "window: one at a time where we may be forgotten", 1, PartitionCopy, "_window", always(16)
    ),
    Mutant("window: nothing goes out after an error", 1, PartitionCopy, "stop", always(None)),
    Mutant("split: what is too large is cut", 1, Splitter, "parts", _cuts_nothing),
    Mutant("cut: a batch waits for its row", 16, PartitionCopy, "_ordinal_to_announce", always(-1)),
    Mutant("term: each start has its own", 2, MemoryFlow, "new_term", always(Term(0, 0))),
    Mutant("term: newer chunks void older ones", 6, PartitionMap, "_store_entry", appends_anywhere),
    Mutant("term: no row of unknown outcome twice", 384, MapTail, "on_lost", MapTail.on_refused),
    Mutant(
        "release: what is acknowledged is handed over",
        1,
        memory_flow,
        "hand_over",
        hands_over_what_was_read,
    ),
    Mutant("release: a copy is at rest", 1712, PartitionCopy, "in_flight", property(always(0))),
    Mutant(
        "wait: old batches are held back", 30, PartitionCopy, "__init__", _without_late_requests
    ),
    Mutant("wait: a lane may live", 1754, PartitionCopy, "__init__", _without_old_lane),
    Mutant("wait: a first row may still come", 1663, MemoryFlow, "put_off", always(False)),
    Mutant(
        "look: a new leader may lack the end", 16, TargetLeader, "on_metadata", _looks_at_no_leader
    ),
    Mutant("look: the log end as of now", 1, cold_start, "one_moment", _end_of_a_record_ago),
)


def program_of(seed: int) -> bytes:
    """Return the program of steps that this seed generates."""
    return random.Random(seed).randbytes(PROGRAM_BYTES)


def take_steps(run: Run, number: int, first_seed: int) -> Counter[str]:
    """Run programs until `number` steps have been run. Return how often each step was run."""
    taken, seed = Counter[str](), first_seed
    while taken.total() < number:
        try:
            taken.update(run(program_of(seed)).taken)
        except Exception as broken:
            raise AssertionError(f"run(program_of({seed})) breaks a rule") from broken
        seed += 1
    return taken


def check_noticed(run: Run, mutant: Mutant, patch: pytest.MonkeyPatch, searched: int) -> None:
    """Check that the mutant's program breaks a rule with the mutant, and none without it.

    `searched`: number of other programs to try if the program no longer detects the mutant.
    """
    run(program_of(mutant.seed))
    patch.setattr(mutant.where, mutant.name, mutant.instead)
    if not _is_noticed(run, mutant.seed):
        found = next((seed for seed in range(searched) if _is_noticed(run, seed)), None)
        raise AssertionError(f"another program notices it: {found}; give it as the mutant's seed")


def _is_noticed(run: Run, seed: int) -> bool:
    try:
        run(program_of(seed))
    except Exception:  # noqa: BLE001 (whatever it breaks)
        return True
    return False
