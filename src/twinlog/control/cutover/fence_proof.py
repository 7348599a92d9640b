"""The proof that a fence holds: no log of the topics has grown for a while, check by check; and who
wrote, if one has.

The logs are asked for their true ends (the end of the leader's epoch), so that a record which is
not replicated yet counts. A producer that writes once an hour is not found by looking: where ACLs
are the fence, every broker must enforce them first; with `--fence none` it is on the operator.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.logs.offsets import log_ends
from twinlog.cluster.logs.producers import ProducerState, known_producers
from twinlog.config.values.times import in_iso
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.errors import Fate, FlowError, or_raise
from twinlog.model import TopicPartition
from twinlog.quantities import first_few, plural

POLL_S: Final = 0.5
MOST_WRITERS: Final = 10

Ends = dict[TopicPartition, int]
Producers = Mapping[TopicPartition, Mapping[int, ProducerState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWriter:
    """Somebody who wrote between two checks; without a producer id only the end shows it."""

    tp: TopicPartition
    records: int
    producer_id: int = -1
    state: ProducerState | None = None

    def __str__(self) -> str:
        grown = f"{self.tp} grew by {plural(self.records, 'offset')}"
        if self.state is None:
            return f"{grown}: by a producer without an id"
        return (
            f"{grown}: producer id {self.producer_id} (epoch {self.state.producer_epoch}) is at "
            f"sequence {self.state.last_sequence}, its last record of "
            f"{in_iso(self.state.last_timestamp)}"
        )


class FenceProof:
    """Looks at the logs of some topics of the source."""

    def __init__(self, scope: CutoverScope, topics: Sequence[str]) -> None:
        self._scope = scope
        found = scope.source.metadata(sorted(topics)).topics
        self._tps = [tp for name in sorted(found) for tp in found[name].tps]

    def wait(self, say: Say, *, still_s: float, within_s: float) -> Ends:
        """The logs' ends, once none has moved for `still_s`; FlowError (FENCE_LEAKS) with those who
        write where that does not come within `within_s`.
        """
        deadline = time.monotonic() + within_s
        ends, producers = self._ends(), self._producers()
        since, checks, writers = time.monotonic(), 1, dict[TopicPartition, SeenWriter]()
        began = since
        while began - since < still_s:  # from the end of one check to the beginning of another
            if time.monotonic() > deadline:
                raise self._leaks(writers)
            time.sleep(POLL_S)
            began = time.monotonic()
            now, checks = self._ends(), checks + 1
            if now == ends:
                continue
            after = self._producers()
            for one in _writers(ends, now, producers, after):
                if one.tp not in writers:
                    say(f"still written: {one}")
                writers[one.tp] = one
            ends, producers, since = now, after, time.monotonic()
        say(
            f"the ends of {plural(len(ends), 'log')} did not move in {still_s:g} s "
            f"({plural(checks, 'check')})"
        )
        return ends

    def has_moved(self, ends: Ends) -> list[SeenWriter]:
        """Who wrote since."""
        now = self._ends()
        return [] if now == ends else list(_writers(ends, now, {}, self._producers()))

    def _ends(self) -> Ends:
        # a log that cannot be seen proves nothing
        found = log_ends(self._scope.source, self._tps)
        return {tp: or_raise(end).end_offset for tp, end in found.items()}

    def _producers(self) -> Producers:
        return known_producers(self._scope.source, self._tps)

    def _leaks(self, writers: Mapping[TopicPartition, SeenWriter]) -> FlowError:
        who = first_few(map(str, writers.values()), MOST_WRITERS)
        return FlowError(
            f"producers still write on the source: {who}; stop them and give "
            "the same command again, or take the fence away with twinlog switchover abort",
            flow=self._scope.name,
            code="FENCE_LEAKS",
            fate=Fate.FATAL,
        )


def _writers(before: Ends, now: Ends, known: Producers, after: Producers) -> list[SeenWriter]:
    out = []
    for tp, end in now.items():
        if end == before.get(tp):
            continue
        records = end - before.get(tp, 0)
        old = known.get(tp, {})
        moved = {
            id_: state
            for id_, state in after.get(tp, {}).items()
            if id_ not in old or old[id_].last_sequence != state.last_sequence
        }
        out += [
            SeenWriter(tp=tp, records=records, producer_id=id_, state=state)
            for id_, state in moved.items()
        ] or [SeenWriter(tp=tp, records=records)]
    return out
