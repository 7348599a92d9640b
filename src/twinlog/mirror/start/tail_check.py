"""The tail check: the target's last records must equal the source records given by the map.

The check makes a start safe even if everything else is wrong: if the map lost its newest row, if
the source was truncated and refilled, or if another writer appended records. Key, value, headers
and timestamp are compared. Bytes of batches are not, because a target may recompress them, set its
own timestamps, or have been compacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.skips import Skip, skip_at
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Headers, Record, decode_batch, decode_legacy, fingerprint

TAIL_RECORDS: Final = 100
"""Number of offsets at the end of the target's log whose records are compared."""
REPLACED: Final = re.compile("\ufffd+")

Known = tuple[Record, int]
"""A source record and the leader epoch of its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTail:
    """The end of the target's log.

    It has the records of the last 100 offsets, oldest first, and the header of the last batch.
    """

    records: tuple[Record, ...]
    last_header: BatchHeader | None
    is_log_append_time: bool
    whole_from: int = 0
    """`records` is complete from this target offset on. Before it, records may be missing, because
    large ones exceeded the read limits.
    """


class EqualRecord(NamedTuple):
    """A record that is equal on both sides, by ordinal (number of records that the flow wrote
    before) and upstream offset.
    """

    ordinal: int
    upstream: int
    leader_epoch: int
    """Leader epoch of the source batch that contains it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a tail check."""

    equal: int
    """Number of records that were compared and are equal."""
    differing: tuple[tuple[int, int], ...]
    """(target offset, upstream offset) of records that differ or never existed at the source."""
    newest: EqualRecord | None
    """The tail's last record if it equals its source record, so that the copy resumes right after
    it, else None.
    """

    @property
    def is_consistent(self) -> bool:
        """Whether no record contradicts the map. If `equal` is 0, no record confirms it, either."""
        return not self.differing

    def proves(self, ordinal: int) -> bool:
        """Return True if the target record with ordinal `ordinal` - 1 was found equal to its source
        record.
        """
        return self.is_consistent and self.newest is not None and self.newest.ordinal == ordinal - 1

    def epoch_before(self, ordinal: int, upstream: int) -> int:
        """Return the leader epoch of source offset `upstream` - 1 if the target record with ordinal
        `ordinal` - 1 was found equal to the record there, else -1.

        The epoch of an older record must not be used. If the source has had a new leader after that
        older record, the older epoch ends before the position. The source would report this as if
        its log had been truncated.
        """
        if not self.proves(ordinal) or self.newest is None or self.newest.upstream != upstream - 1:
            return -1
        return self.newest.leader_epoch


def read_tail(
    answers: Iterable[memoryview], low: int, log_end: int, whole_from: int = 0
) -> TargetTail:
    """Return the target records at offsets [low, log_end) in fetched bytes, which may overlap,
    without control batches. `whole_from`: target offset from which on they are complete.
    """
    records: dict[int, Record] = {}
    last: BatchHeader | None = None
    append_time = False
    for raw in answers:
        for header, start in read_headers(raw):
            if header.base_offset >= log_end:
                break
            if last is None or header.base_offset > last.base_offset:
                last = header
            append_time = append_time or (header.magic >= 2 and header.is_log_append_time)
            if header.next_offset <= low or header.is_control:
                continue
            for record in decode(header, raw[start : start + header.length]):
                if low <= record.offset < log_end:
                    records[record.offset] = record
    return TargetTail(
        records=tuple(records[offset] for offset in sorted(records)),
        last_header=last,
        is_log_append_time=append_time,
        whole_from=whole_from,
    )


def upstream_offsets(tail: TargetTail, runs: Sequence[Run], k: int) -> list[int]:
    """Return the source offsets that the map gives for the tail's records, in ascending order. `k`:
    target offset minus ordinal (number of records that the flow wrote before the record).
    """
    at = (record.offset - k for record in tail.records)
    return sorted({run.upstream_of(ordinal) for ordinal in at if (run := run_at(runs, ordinal))})


def is_void(run: Run, tail: TargetTail, k: int, fingerprints: Mapping[int, int]) -> bool | None:
    """Return True if the target has a different record than the one that this run of the map
    announced.

    Return False if it has the announced record, so that the run is right. Return None if there is
    no fingerprint or no record to compare.
    """
    known = fingerprints.get(run.ordinal)
    record_at = next((record for record in tail.records if record.offset - k == run.ordinal), None)
    if known is None or record_at is None or tail.is_log_append_time:
        return None
    return known != fingerprint(record_at)


def decode(header: BatchHeader, batch: memoryview) -> Sequence[Record]:
    """Return the records of a batch of any format."""
    return decode_legacy(batch) if header.magic < 2 else decode_batch(batch)


def source_records(
    raw: memoryview, *, upto: int | None = None, skips: Sequence[Skip] = ()
) -> tuple[dict[int, tuple[Record, int]], int]:
    """Return (records, next offset) for fetched source bytes. `records`: (record, leader epoch) by
    source offset. The next offset is that after the last batch, or -1 without a batch.

    Batches after offset `upto` are not decoded, nor batches that are skipped as a whole, so that a
    corrupt batch does not prevent reading earlier batches.
    """
    out: dict[int, tuple[Record, int]] = {}
    after = -1
    for header, start in read_headers(raw):
        if upto is not None and header.base_offset > upto and header.magic >= 2:
            break
        skip = skip_at(skips, header.base_offset)
        if skip is not None and skip.is_batch:
            after = max(after, skip.next)
            continue
        after = header.next_offset
        if header.is_control:
            continue
        epoch = header.leader_epoch if header.magic >= 2 else -1
        for record in decode(header, raw[start : start + header.length]):
            out[record.offset] = (record, epoch)
    return out, after


def same_record(source: Record, target: Record, *, compare_timestamp: bool) -> bool:
    """Return True if a consumer gets the same record from both, apart from the offset."""
    return (
        source.key == target.key
        and source.value == target.value
        and _same_headers(source.headers, target.headers)
        and (not compare_timestamp or source.timestamp == target.timestamp)
    )


def _same_headers(source: Headers, target: Headers) -> bool:
    if source == target:
        return True
    # a broker that recompresses decodes header keys and replaces invalid UTF-8 by U+FFFD
    return len(source) == len(target) and comparable_headers(source) == comparable_headers(target)


def comparable_headers(headers: Headers) -> Headers:
    """Return headers with keys as they are after a broker or a Java client has decoded and
    rewritten them.
    """
    return tuple((_as_brokers_decode(key), value) for key, value in headers)


def _as_brokers_decode(key: str) -> str:
    replaced = key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    # decoders differ in how many U+FFFD they write per invalid sequence
    return REPLACED.sub("\ufffd", replaced)


def compare(
    tail: TargetTail,
    runs: Sequence[Run],
    source: Mapping[int, tuple[Record, int]],
    *,
    k: int,
    fingerprints: Mapping[int, int],
) -> Comparison:
    """Compare the tail's records with the source records that belong to them according to the map.
    `source`: (record, leader epoch) by source offset. `k`: target offset minus ordinal.
    """
    equal = 0
    newest: EqualRecord | None = None
    differing: list[tuple[int, int]] = []
    for record in tail.records:
        newest = None
        ordinal = record.offset - k
        run = run_at(runs, ordinal)
        if run is None:
            continue  # the record is older than the given part of the map
        upstream = run.upstream_of(ordinal)
        source_record = source.get(upstream)
        if source_record is None:
            known = fingerprints.get(ordinal)
            if known is not None and not tail.is_log_append_time and known != fingerprint(record):
                differing.append((record.offset, upstream))
            continue
        if same_record(source_record[0], record, compare_timestamp=not tail.is_log_append_time):
            equal += 1
            newest = EqualRecord(ordinal, upstream, source_record[1])
        else:
            differing.append((record.offset, upstream))
    return Comparison(equal=equal, differing=tuple(differing), newest=newest)


def search(tail: TargetTail, source: Mapping[int, tuple[Record, int]]) -> int | None:
    """Return the upstream offset of the tail's newest record, found by content among the records in
    `source`, or None.

    The tail's records must equal consecutive source records, at exactly one position.
    """
    wanted = [record for record in tail.records if record.offset >= tail.whole_from]
    if len(wanted) < 2:
        return None
    ordered = sorted(source)
    candidates = []
    for end in range(len(ordered) - 1, -1, -1):
        depth = min(len(wanted), end + 1)
        if depth < min(len(wanted), 10):
            break
        if all(
            same_record(
                source[ordered[end - back]][0],
                wanted[-1 - back],
                compare_timestamp=not tail.is_log_append_time,
            )
            for back in range(depth)
        ):
            candidates.append(ordered[end])
    return candidates[0] if len(candidates) == 1 else None
