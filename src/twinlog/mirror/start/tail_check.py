"""The tail check: the last records on the target equal the source records that the map says they
are.

It is what makes a start safe when everything else may be wrong: a map that lost its newest row, a
source that was truncated and refilled, records that somebody else wrote. Compared are key, value,
headers and timestamp; bytes are not, since a target may compress again, stamp its own time or have
been cleaned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.skips import Skip, skipped
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Headers, Record, decode_batch, decode_legacy, fingerprint

TAIL_RECORDS: Final = 100
REPLACED: Final = re.compile("\ufffd+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTail:
    """The end of the target's log: records of its last 100 offsets, oldest first, and the header of
    the last batch.
    """

    records: tuple[Record, ...]
    last_header: BatchHeader | None
    is_log_append_time: bool
    whole_from: int = 0
    """Before this offset some large records may have been left out."""


class Equal(NamedTuple):
    """A record that is the same on both sides."""

    ordinal: int
    upstream: int
    leader_epoch: int
    """Of the source's batch that holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a tail check found: records that differ, or that none does of so many, or nothing at
    all.
    """

    equal: int
    """How many records were really compared, and are the same."""
    gone: int
    """Target records whose source records do not exist any more, or were not read."""
    differing: tuple[tuple[int, int], ...]
    """(target offset, upstream offset) of records that are not equal, or never existed at the
    source.
    """
    newest: Equal | None
    """The newest record of the tail, where that one is equal: the position is right behind it."""

    @property
    def holds(self) -> bool:
        """Nothing speaks against the map. With `equal` 0 nothing speaks for it either."""
        return not self.differing

    def proves(self, ordinal: int) -> bool:
        """The record before this ordinal is the one that the map says it is."""
        return self.holds and self.newest is not None and self.newest.ordinal == ordinal - 1

    def epoch_before(self, ordinal: int, upstream: int) -> int:
        """Source leader epoch of offset `upstream` - 1; -1 unless that is the very record before
        `ordinal`.

        Not that of an older record: behind it the source may have had a new leader, and then it
        answers that the older epoch ends before our position, as if its log had been cut.
        """
        if not self.proves(ordinal) or self.newest is None or self.newest.upstream != upstream - 1:
            return -1
        return self.newest.leader_epoch


def read_tail(raw: memoryview, low: int, log_end: int) -> TargetTail:
    """The records of [low, log_end) in fetched bytes; control batches are no records."""
    records: list[Record] = []
    last: BatchHeader | None = None
    append_time = False
    for header, at in read_headers(raw):
        if header.base_offset >= log_end:
            break
        last = header
        append_time = append_time or (header.magic >= 2 and header.is_log_append_time)
        if header.next_offset <= low or header.is_control:
            continue
        decoded = decode(header, raw[at : at + header.length])
        records += (record for record in decoded if low <= record.offset < log_end)
    return TargetTail(records=tuple(records), last_header=last, is_log_append_time=append_time)


def joined(tails: Iterable[TargetTail], whole_from: int) -> TargetTail:
    """One tail of several that overlap."""
    records: dict[int, Record] = {}
    last: BatchHeader | None = None
    append_time = False
    for tail in tails:
        records |= {record.offset: record for record in tail.records}
        append_time = append_time or tail.is_log_append_time
        header = tail.last_header
        if header is not None and (last is None or header.base_offset > last.base_offset):
            last = header
    return TargetTail(
        records=tuple(records[offset] for offset in sorted(records)),
        last_header=last,
        is_log_append_time=append_time,
        whole_from=whole_from,
    )


def upstream_offsets(tail: TargetTail, runs: Sequence[Run], k: int) -> list[int]:
    """Where the map says that the tail's records are at the source, rising."""
    at = (record.offset - k for record in tail.records)
    return sorted({run.upstream_of(ordinal) for ordinal in at if (run := run_at(runs, ordinal))})


def is_void(run: Run, tail: TargetTail, k: int, fingerprints: Mapping[int, int]) -> bool | None:
    """Whether another record than this run announced lies at its place on the target.

    False: its own lies there, so the run is right. None: it cannot be said.
    """
    known = fingerprints.get(run.ordinal)
    found = next((record for record in tail.records if record.offset - k == run.ordinal), None)
    if known is None or found is None or tail.is_log_append_time:
        return None
    return known != fingerprint(found)


def decode(header: BatchHeader, batch: memoryview) -> Sequence[Record]:
    """The records of a batch of any format."""
    return decode_legacy(batch) if header.magic < 2 else decode_batch(batch)


def source_records(
    raw: memoryview, *, upto: int | None = None, skips: Sequence[Skip] = ()
) -> tuple[dict[int, tuple[Record, int]], int]:
    """(offset -> (record, leader epoch), the offset behind) of fetched source bytes.

    Batches behind offset `upto` are not decoded, nor those that are left out as a whole: one that
    is corrupt must not keep anybody from looking at those before it.
    """
    out: dict[int, tuple[Record, int]] = {}
    after = -1
    for header, at in read_headers(raw):
        if upto is not None and header.base_offset > upto and header.magic >= 2:
            break
        skip = skipped(skips, header.base_offset)
        if skip is not None and skip.is_batch:
            after = max(after, skip.next)
            continue
        after = header.next_offset
        if header.is_control:
            continue
        epoch = header.leader_epoch if header.magic >= 2 else -1
        for record in decode(header, raw[at : at + header.length]):
            out[record.offset] = (record, epoch)
    return out, after


def same_record(source: Record, target: Record, *, compare_timestamp: bool) -> bool:
    """Equality as a consumer sees it, offsets apart."""
    return (
        source.key == target.key
        and source.value == target.value
        and _same_headers(source.headers, target.headers)
        and (not compare_timestamp or source.timestamp == target.timestamp)
    )


def _same_headers(source: Headers, target: Headers) -> bool:
    if source == target:
        return True
    # a broker that recompresses decodes header keys: what is not UTF-8 is U+FFFD after that
    return len(source) == len(target) and comparable_headers(source) == comparable_headers(target)


def comparable_headers(headers: Headers) -> Headers:
    """Headers as they are when a broker or a Java client has written them again."""
    return tuple((_as_brokers_decode(key), value) for key, value in headers)


def _as_brokers_decode(key: str) -> str:
    replaced = key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return REPLACED.sub("\ufffd", replaced)  # decoders differ in how many they write for a sequence


def compare(
    tail: TargetTail,
    runs: Sequence[Run],
    source: Mapping[int, tuple[Record, int]],
    *,
    k: int,
    fingerprints: Mapping[int, int],
) -> Comparison:
    """Compare the tail with what the map says it is."""
    equal = gone = 0
    newest: Equal | None = None
    differing: list[tuple[int, int]] = []
    for record in tail.records:
        newest = None
        ordinal = record.offset - k
        run = run_at(runs, ordinal)
        if run is None:
            continue  # written before the part of the map that we were given
        upstream = run.upstream_of(ordinal)
        found = source.get(upstream)
        if found is None:
            known = fingerprints.get(ordinal)
            if known is not None and not tail.is_log_append_time and known != fingerprint(record):
                differing.append((record.offset, upstream))
            else:
                gone += 1
            continue
        if same_record(found[0], record, compare_timestamp=not tail.is_log_append_time):
            equal += 1
            newest = Equal(ordinal, upstream, found[1])
        else:
            differing.append((record.offset, upstream))
    return Comparison(equal=equal, gone=gone, differing=tuple(differing), newest=newest)


def search(tail: TargetTail, source: Mapping[int, tuple[Record, int]]) -> int | None:
    """The upstream offset of the tail's newest record, found by content in the neighbourhood.

    The last records must match one after the other, and the place must be the only one; else None.
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
