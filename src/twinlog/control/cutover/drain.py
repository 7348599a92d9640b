"""Waits until the running mirror has copied everything below the fence. Then every partition's last
stable offset is its log's end, and the target has every record below it.

Records that the source deleted before they were copied are missing, too. The offset map has no
markers, so a source log that starts after the copy may have lost only markers. The mirror's status
row decides, because it lists the records that the mirror lacks. A row is evidence if the mirror
queried every log end of the source after the deletion was detected here. This is enough, because no
log has grown after that (`FenceProof`). So two times of the mirror's clock are compared: the row's
recovery point, and the time of the second row after the detection. That second row is the first one
that the mirror certainly began after the deletion.

The drain only reads. Without a leader of the flow, the drain fails within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.client.export import first_records
from twinlog.cluster.logs.producers import ProducerState, known_producers
from twinlog.cluster.topics.internal_log import readable_ends
from twinlog.config.values.times import in_iso
from twinlog.control.cutover.copies import Copy, copies, incomplete
from twinlog.control.cutover.newest_status import newest_status
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.errors import Fate, FlowError
from twinlog.mirror.findings import Span
from twinlog.model import TopicPartition
from twinlog.quantities import count, first_few, plural, total
from twinlog.survey.ends import append_ends
from twinlog.survey.open_transactions import open_transactions

# The proof of a fence: several checks in a row find no new record in any log of the topics. If a
# log has new records, the proof names their producers.
#
# The logs' true ends are read (the end of the leader's epoch), so records that are not replicated
# yet count. A marker does not count, because a transaction that was open when the fence was put up
# may still end. Checks cannot find a producer that writes once an hour. So if ACLs are the fence,
# every broker must enforce them first. With `--fence none` the operator is responsible.

PROOF_POLL_S: Final = 0.5
SEEN_WITHIN_S: Final = 5.0
"""Offsets that stay above the high watermark for this many seconds count as records."""
MOST_WRITERS: Final = 10

Ends = dict[TopicPartition, int]
Producers = Mapping[TopicPartition, Mapping[int, ProducerState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWriter:
    """A producer that wrote between two checks. If it has no ID, only the log's growth shows it."""

    tp: TopicPartition
    records: int
    producer_id: int = -1
    state: ProducerState | None = None

    def __str__(self) -> str:
        grown = f"{self.tp} grew by {plural(self.records, 'offset')}"
        if self.state is None:
            return f"{grown}, written by a producer without an id"
        return (
            f"{grown}: producer id {self.producer_id} (epoch {self.state.producer_epoch}) is at "
            f"sequence {self.state.last_sequence}, and its last record has the time "
            f"{in_iso(self.state.last_timestamp)}"
        )


class FenceProof:
    """Checks the logs of some topics of the source for new records."""

    def __init__(self, scope: CutoverScope, topics: Sequence[str]) -> None:
        self._scope = scope
        source_topics = scope.source.metadata(sorted(topics)).topics
        self._tps = [tp for name in sorted(source_topics) for tp in source_topics[name].tps]
        self._known: Producers = {}
        """Producer states at the source's leaders when the proof was complete."""

    def wait(self, say: Say, *, still_s: float, within_s: float) -> Ends:
        """Wait until no log has a new record for `still_s` seconds, and return the logs' ends. If
        that takes longer than `within_s` seconds, raise FlowError (FENCE_LEAKS) with the producers
        that still write.
        """
        deadline = time.monotonic() + within_s
        ends, producers = self._ends(), self._producers()
        since, checks, writers = time.monotonic(), 1, dict[TopicPartition, SeenWriter]()
        began = since
        while began - since < still_s:  # from the end of one check to the start of a later one
            if time.monotonic() > deadline:
                who = first_few(map(str, writers.values()), MOST_WRITERS)
                raise self._scope.error(
                    f"producers still write on the source: {who}; stop them and run "
                    "the same command again, or remove the fence with twinlog switchover abort",
                    code="FENCE_LEAKS",
                    fate=Fate.FATAL,
                )
            time.sleep(PROOF_POLL_S)
            began = time.monotonic()
            now, checks = self._ends(), checks + 1
            if now == ends:
                continue
            grown = self._with_records(ends, now)
            if not grown:
                ends = now  # only markers were appended
                continue
            after = self._producers()
            for writer in _writers(grown, producers, after):
                if writer.tp not in writers:
                    say(f"still written: {writer}")
                writers[writer.tp] = writer
            ends, producers, since = now, after, time.monotonic()
        self._known = producers
        say(
            f"the ends of {plural(len(ends), 'log')} did not move in {still_s:g} s "
            f"({plural(checks, 'check')})"
        )
        return ends

    def writers_since(self, ends: Ends) -> list[SeenWriter]:
        """Return the producers that wrote records after the proof."""
        grown = self._with_records(ends, self._ends())
        return _writers(grown, self._known, self._producers()) if grown else []

    def _with_records(self, ends: Ends, now: Ends) -> Ends:
        """Return the logs that have, or might have, new records, with their growth in offsets."""
        grown = {tp: Span(ends.get(tp, 0), end) for tp, end in now.items() if end != ends.get(tp)}
        # logs that lost their end: growth is negative, and counts
        empty = {tp for tp, span in grown.items() if span.is_empty}
        deadline = time.monotonic() + SEEN_WITHIN_S
        while left := {tp: span for tp, span in grown.items() if tp not in empty}:
            seen = first_records(self._scope.source, left, with_aborted=True)
            stable = readable_ends(self._scope.source, left)
            hidden = {tp for tp, span in left.items() if stable[tp] < span.next}
            empty |= {*seen}
            if not hidden - empty or time.monotonic() > deadline:
                # count these logs, too: in 5 s their high watermark did not reach the log end
                empty |= hidden
                break
            time.sleep(PROOF_POLL_S)
        return {tp: grown[tp].next - grown[tp].first for tp in empty}

    def _ends(self) -> Ends:
        # raises if a log's end is unknown, because such a log proves nothing
        return append_ends(self._scope.source, self._tps)

    def _producers(self) -> Producers:
        return known_producers(self._scope.source, self._tps)


def _writers(grown: Ends, known: Producers, after: Producers) -> list[SeenWriter]:
    """Return the producers that wrote to these logs. `grown`: the growth of each log in offsets."""
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


POLL_S: Final = 0.2
SAID_EVERY_S: Final = 5.0
WITHOUT_MIRROR_S: Final = 15.0
"""Seconds without a leader after which the drain fails. A standby takes over in less time."""
ROW_WITHIN_S: Final = 30.0
"""Minimum seconds to wait for status rows. By default the mirror writes a row every 5 s."""
ROWS_AFTER: Final = 2
"""Number of status rows to wait for after the row that is read when a deletion is detected. The
mirror may have begun the first of them before the deletion.
"""


class Drain:
    """Waits until all partitions of a scope are copied up to the log ends of the fence's proof."""

    def __init__(self, scope: CutoverScope, ends: Ends, *, accepts_loss: bool = False) -> None:
        """`accepts_loss`: continue without records that were deleted before they were copied."""
        self._scope = scope
        self._ends = ends
        self._accepts_loss = accepts_loss
        self._row_within_s = ROW_WITHIN_S
        self._rows_ms: list[int] = []
        """Times (ms) of the status rows that were read after a deletion was detected."""

    def wait(self, say: Say, *, within_s: float) -> None:
        """Wait until each copy is complete. Raises FlowError (NOT_DRAINED) with the missing records
        and the reason, if no mirror leads or `within_s` has passed. Raises FlowError
        (SOURCE_TRUNCATED) if the source deleted, or may have deleted, uncopied records.
        """
        began = last_said = last_led = whole_since = time.monotonic()
        while True:
            current, missing, left, lost = self._read_state()
            if not (missing or left or lost):
                records = sum(self._ends.values())
                say(
                    f"{plural(len(current), 'partition')} complete up to the last stable offset "
                    f"({count(records)} offsets)"
                )
                return
            now = time.monotonic()
            if lost and now - whole_since > self._row_within_s:
                raise self._truncated_error(lost)
            whole_since = whole_since if lost else now
            if self._scope.is_led():
                last_led = now
            if now - last_led > WITHOUT_MIRROR_S:
                raise self._not_drained_error(missing, left, is_led=False)
            if now - began > within_s:
                raise self._not_drained_error(missing, left, is_led=True)
            if now - last_said > SAID_EVERY_S:
                last_said = now
                records = total(copy.left for copy in left) or 0
                say(f"{plural(len(left), 'partition')} left, {count(records)} records")
            time.sleep(POLL_S)

    def is_complete(self) -> bool:
        """Return True if no record is missing on the target now."""
        return not any(self._read_state()[1:])

    def _read_state(self) -> tuple[list[Copy], Ends, list[Copy], list[Copy]]:
        """Return all copies, and the results of `_missing`, `incomplete` and `_lost`."""
        missing, current = self._missing(), copies(self._scope)
        return current, missing, incomplete(self._scope, current, self._ends), self._lost(current)

    def _lost(self, current: Sequence[Copy]) -> list[Copy]:
        """Return the copies whose source deleted, or may have deleted, uncopied records."""
        deleted = [copy for copy in current if copy.deleted and not copy.unlisted]
        if not deleted or self._accepts_loss:
            return []
        newest = newest_status(self._scope)
        at_ms = -1
        if newest.status is not None:
            at_ms = newest.status.at_ms
            intervals_s = 2 * (ROWS_AFTER + 1) * newest.status.every_ms / 1000
            self._row_within_s = max(ROW_WITHIN_S, intervals_s)
        if at_ms not in self._rows_ms:
            self._rows_ms.append(at_ms)
        recovery_ms, is_early = newest.recovery_ms, len(self._rows_ms) <= ROWS_AFTER
        if is_early or recovery_ms is None or recovery_ms < self._rows_ms[ROWS_AFTER]:
            return deleted
        return [copy for copy in deleted if newest.missing(copy.source, copy.copied_to) != 0]

    def _truncated_error(self, lost: Sequence[Copy]) -> FlowError:
        what = first_few(f"{copy.source} {copy.deleted}" for copy in lost)
        return self._scope.error(
            f"the source deleted records before they were copied ({what}), so they are on neither "
            "side. Nothing was promoted. Remove the fence with twinlog switchover abort, or "
            "continue without these records with --accept copy",
            code="SOURCE_TRUNCATED",
        )

    def _missing(self) -> dict[TopicPartition, int]:
        """Return, for each partition that consumers cannot read up to its end, how many offsets
        they cannot read. Consumers read up to the last stable offset, or up to the high watermark
        if the flow reads uncommitted records.
        """
        if not self._ends:
            return {}
        isolation = self._scope.config.isolation_level
        stable = readable_ends(self._scope.source, list(self._ends), isolation)
        open_records = {tp: self._ends[tp] - end for tp, end in stable.items()}
        return {tp: count for tp, count in open_records.items() if count > 0}

    def _not_drained_error(
        self, missing: Mapping[TopicPartition, int], left: Sequence[Copy], *, is_led: bool
    ) -> FlowError:
        why = [f"{copy.source}: {copy.left}" for copy in left]
        text = f"records are missing on the target ({first_few(why)})" if why else ""
        if missing:
            names = first_few(map(str, missing))
            waits = f"replicas of the source are behind the log ends of {names}"
            if named := [*map(str, open_transactions(self._scope.source, list(missing)))]:
                waits = f"transactions are open on the source ({first_few(named)})"
            text = f"{text}; {waits}" if text else waits
        todo = "Find the cause with twinlog status"
        if not is_led:
            todo = "No mirror runs. Start one with twinlog mirror FILE"
        return self._scope.error(
            f"{text}. {todo}, then run the same command again, or remove the fence with twinlog "
            "switchover abort",
            code="NOT_DRAINED",
        )
