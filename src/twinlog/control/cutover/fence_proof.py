"""The proof that a fence holds: in several checks in a row no log of the topics has a new record.
If a log has, the proof names the producers.

The logs' true ends are read (the end of the leader's epoch), so records that are not replicated yet
count. A marker does not count, because a transaction that was open when the fence was put up may
still end. Checks cannot find a producer that writes once an hour. So if ACLs are the fence, every
broker must enforce them first; with `--fence none` the operator is responsible.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.client.export import first_records
from twinlog.cluster.logs.offsets import LATEST, list_offsets, log_ends
from twinlog.cluster.logs.producers import ProducerState, known_producers
from twinlog.config.values.times import in_iso
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.errors import Fate, FlowError, or_raise
from twinlog.mirror.findings import Span
from twinlog.model import TopicPartition
from twinlog.quantities import first_few, plural

POLL_S: Final = 0.5
SEEN_WITHIN_S: Final = 5.0
"""How long to wait for the high watermark to reach the log end. After that, the offsets above it
count as records.
"""
MOST_WRITERS: Final = 10

Ends = dict[TopicPartition, int]
Producers = Mapping[TopicPartition, Mapping[int, ProducerState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWriter:
    """A producer that wrote between two checks. Without an ID only the log's end shows it."""

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
    """Checks the logs of some topics of the source for new records."""

    def __init__(self, scope: CutoverScope, topics: Sequence[str]) -> None:
        self._scope = scope
        found = scope.source.metadata(sorted(topics)).topics
        self._tps = [tp for name in sorted(found) for tp in found[name].tps]
        self._known: Producers = {}
        """Producer states at the leaders when the proof was complete."""

    def wait(self, say: Say, *, still_s: float, within_s: float) -> Ends:
        """Return the logs' ends, once none has moved for `still_s`. Raises FlowError (FENCE_LEAKS)
        with the producers that still write if that takes longer than `within_s`.
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
            grown = self._with_records(ends, now)
            if not grown:
                ends = now  # only markers
                continue
            after = self._producers()
            for one in _writers(grown, producers, after):
                if one.tp not in writers:
                    say(f"still written: {one}")
                writers[one.tp] = one
            ends, producers, since = now, after, time.monotonic()
        self._known = producers
        say(
            f"the ends of {plural(len(ends), 'log')} did not move in {still_s:g} s "
            f"({plural(checks, 'check')})"
        )
        return ends

    def has_moved(self, ends: Ends) -> list[SeenWriter]:
        """Return the producers that wrote records after the proof."""
        grown = self._with_records(ends, self._ends())
        return _writers(grown, self._known, self._producers()) if grown else []

    def _with_records(self, ends: Ends, now: Ends) -> Ends:
        """Return by how many offsets each log grew that got a record, or may have got one."""
        grown = {tp: Span(ends.get(tp, 0), end) for tp, end in now.items() if end != ends.get(tp)}
        found = {tp for tp, span in grown.items() if span.is_empty}  # logs that lost their end
        deadline = time.monotonic() + SEEN_WITHIN_S
        while left := {tp: span for tp, span in grown.items() if tp not in found}:
            seen = first_records(self._scope.source, left, with_aborted=True)
            stable = list_offsets(self._scope.source, left, LATEST)
            hidden = {tp for tp, span in left.items() if or_raise(stable[tp]).offset < span.next}
            found |= {*seen}
            if not hidden - found or time.monotonic() > deadline:
                found |= hidden  # the high watermark did not reach the end in time
                break
            time.sleep(POLL_S)
        return {tp: grown[tp].next - grown[tp].first for tp in found}

    def _ends(self) -> Ends:
        # a log whose end is unknown proves nothing, so this raises
        found = log_ends(self._scope.source, self._tps)
        return {tp: or_raise(end).end_offset for tp, end in found.items()}

    def _producers(self) -> Producers:
        return known_producers(self._scope.source, self._tps)

    def _leaks(self, writers: Mapping[TopicPartition, SeenWriter]) -> FlowError:
        who = first_few(map(str, writers.values()), MOST_WRITERS)
        return FlowError(
            f"producers still write on the source: {who}; stop them and run "
            "the same command again, or remove the fence with twinlog switchover abort",
            flow=self._scope.name,
            code="FENCE_LEAKS",
            fate=Fate.FATAL,
        )


def _writers(grown: Ends, known: Producers, after: Producers) -> list[SeenWriter]:
    """Return the producers that wrote. `grown`: by how many offsets each log grew."""
    out = []
    for tp, records in sorted(grown.items()):
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
