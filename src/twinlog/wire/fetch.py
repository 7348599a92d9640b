"""Fetch requests with incremental sessions (KIP-227). Batches are returned as the broker stores
them.

The broker remembers the wanted partitions in a session, so a request names only partitions that
have changed since the last request. A thousand idle partitions thus cost one empty request twice a
second.

    request   all partitions (first), later only changed partitions, and partitions to remove
    response  partitions with new records, a new end or an error
    epoch     number of the request in its session; after an error a new session begins

Version 13 identifies topics by ID (KIP-516), so that a re-created topic causes an error and is not
mistaken for the old topic. Version 12 uses names. Both contain `current_leader_epoch` and
`last_fetched_epoch` (KIP-320, KIP-595), so that a broker whose log was truncated and refilled
responds with a diverging epoch.

Formats: FetchRequest.json and FetchResponse.json of Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition
from twinlog.wire.primitives import EMPTY_TAGS, Reader, compact_string, uvarint

FETCH: Final = 1
VERSION_BY_ID: Final = 13
VERSION_BY_NAME: Final = 12

SESSION_ERRORS: Final = frozenset({70, 71, 106})
"""Errors after which a new session is needed: FETCH_SESSION_ID_NOT_FOUND,
INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR.
"""

_NO_SESSION: Final = -1
_REQUEST_HEAD = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqi")
_INT32 = struct.Struct(">i")
_RESPONSE_HEAD = struct.Struct(">ihi")
_ANSWER = struct.Struct(">ihqqqBi")
"""The fixed fields of a partition in a response that lists no aborted transaction."""
_LISTED_BYTES = 5
_NONE = 1
"""Encoded length of a compact array without elements. A null array is encoded as 0."""
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")


class FetchPosition(NamedTuple):
    """The position from which a partition is read next. Unknown epochs are -1."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from its first offset to the producer's next abort marker."""

    producer_id: int
    first_offset: int


class FetchedPartition(Struct, frozen=True, kw_only=True):
    """One partition of a Fetch response. `records` is a writable slice of the response's buffer."""

    tp: TopicPartition
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[AbortedTransaction, ...]
    diverging: tuple[int, int] | None
    """An epoch and its end offset, from which on the broker's log differs from what was fetched."""
    preferred_replica: int
    """The replica to read from instead (KIP-392), or -1 for the leader."""
    records: memoryview | None


class FetchAnswer(Struct, frozen=True, kw_only=True):
    """A whole Fetch response. `error` is the session's error; each partition has its own error."""

    throttle_ms: int
    error: int
    partitions: tuple[FetchedPartition, ...]


class FetchSession:
    """The fetch session of one connection: partitions to read, and partitions the broker knows."""

    def __init__(
        self, version: int, isolation: Isolation, rack: str = "", *, is_kept: bool = True
    ) -> None:
        """If `is_kept` is False, requests belong to no session, so several can be in flight."""
        self.version = version
        self._is_kept = is_kept
        self._isolation = isolation
        self._rack = rack
        self._wanted: dict[TopicPartition, FetchPosition] = {}
        self._known: dict[TopicPartition, FetchPosition] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._ids: dict[str, TopicId] = {}
        self._names: dict[bytes, str] = {}
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        """By partition, the high watermark and last stable offset that the broker reported last."""
        self._session_id = 0
        self._session_epoch = 0

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, tp: object) -> bool:
        return tp in self._wanted

    def want(self, tp: TopicPartition, topic_id: TopicId, position: FetchPosition) -> None:
        """Add this partition, or change its position, in the next request."""
        if topic_id != NO_TOPIC_ID and self._ids.get(tp.topic) != topic_id:
            before = self._ids.get(tp.topic)
            if before is not None:
                # the broker keeps a deleted topic in its session and continues to respond for it,
                # so a new session is needed
                self._names.pop(before.raw, None)
                self.reset()
            self._ids[tp.topic] = topic_id
            self._names[topic_id.raw] = tp.topic
        self._wanted[tp] = position
        self._changed[tp] = None

    def forget(self, tp: TopicPartition) -> None:
        """Remove this partition from the session with the next request."""
        if self._wanted.pop(tp, None) is not None:
            self._changed[tp] = None

    def reported_end(self, tp: TopicPartition) -> int:
        """Return the end that the broker reported last, or -1 if the partition is not in the
        broker's session.

        A broker reports an end only when it changes. So a partition that is removed, and added
        again before the next request, gets no report until its end changes.
        """
        if tp not in self._known or tp not in self._ends:
            return -1
        high_watermark, last_stable = self._ends[tp]
        return last_stable if self._isolation is Isolation.READ_COMMITTED else high_watermark

    def request(
        self, *, max_wait_ms: int, max_bytes: int, min_bytes: int = 1, names_rack: bool = True
    ) -> list[bytes]:
        """Return the body of the next request. The previous response must have been parsed.
        `names_rack`: whether the request has the session's rack. A leader then may name a replica
        in this rack, and return no records.
        """
        if self._session_epoch == 0:
            named, forgotten = list(self._wanted), []
        else:
            changed, wanted, known = self._changed, self._wanted, self._known
            named = [tp for tp in changed if tp in wanted and wanted[tp] != known.get(tp)]
            forgotten = [tp for tp in changed if tp not in wanted and tp in known]
        head = _REQUEST_HEAD.pack(
            -1,
            max_wait_ms,
            min_bytes,
            max_bytes,
            self._isolation.number,
            self._session_id,
            self._session_epoch if self._is_kept else _NO_SESSION,
        )
        tail = compact_string(self._rack if names_rack else "") + EMPTY_TAGS
        forgotten_part = self._encode(forgotten, lambda tp: _INT32.pack(tp.partition))
        parts = [head, self._encode(named, self._encode_wanted), forgotten_part, tail]
        for tp in forgotten:
            del self._known[tp]
            self._ends.pop(tp, None)
        for tp in named:
            self._known[tp] = self._wanted[tp]
        self._changed.clear()
        return parts

    def _encode(
        self, tps: Iterable[TopicPartition], encode_partition: Callable[[TopicPartition], bytes]
    ) -> bytes:
        by_topic: dict[str, list[bytes]] = {}
        for tp in tps:
            by_topic.setdefault(tp.topic, []).append(encode_partition(tp))
        out = [uvarint(len(by_topic) + 1)]
        for topic, partitions in by_topic.items():
            by_id = self.version >= VERSION_BY_ID
            name = self._ids[topic].raw if by_id else compact_string(topic)
            out += (name, uvarint(len(partitions) + 1), *partitions, EMPTY_TAGS)
        return b"".join(out)

    def _encode_wanted(self, tp: TopicPartition) -> bytes:
        offset, leader_epoch, last_epoch, max_bytes = self._wanted[tp]
        position = tp.partition, leader_epoch, offset, last_epoch, -1, max_bytes
        return _PARTITION.pack(*position) + EMPTY_TAGS

    def parse(self, view: memoryview) -> FetchAnswer:
        """Decode a response, and advance the session. Raises CorruptData."""
        reader = Reader(view)
        throttle_ms, error, session_id = reader.unpack(_RESPONSE_HEAD)
        partitions: list[FetchedPartition] = []
        for _ in range(reader.array_length()):
            topic = reader.topic(self._names if self.version >= VERSION_BY_ID else None)
            of_topic = [self._read_partition(reader, topic) for _ in range(reader.array_length())]
            for fetched in of_topic:
                if not fetched.error:
                    self._ends[fetched.tp] = (fetched.high_watermark, fetched.last_stable_offset)
            partitions += of_topic
            reader.tags()
        reader.tags()
        if error or not session_id:
            self.reset()
        else:
            self._session_id = session_id
            self._session_epoch = self._session_epoch % 0x7FFFFFFF + 1
        return FetchAnswer(throttle_ms=throttle_ms, error=error, partitions=tuple(partitions))

    def reset(self) -> None:
        """Begin a new session with the next request."""
        self._session_id = self._session_epoch = 0
        self._known.clear()
        self._ends.clear()

    @staticmethod
    def _read_partition(reader: Reader, topic: str) -> FetchedPartition:
        (partition, error, high_watermark, last_stable, log_start, listed, preferred) = (
            reader.unpack(_ANSWER)
        )
        aborted: list[AbortedTransaction] = []
        if listed > _NONE:
            reader.pos -= _LISTED_BYTES
            for _ in range(reader.array_length()):
                producer_id, first_offset = reader.unpack(_ABORTED)
                aborted.append(AbortedTransaction(producer_id, first_offset))
                reader.tags()
            (preferred,) = reader.unpack(_INT32)
        records = reader.compact_bytes()
        tags = reader.tags()
        diverging = None
        if tags and 0 in tags:
            epoch, end = Reader(tags[0]).unpack(_EPOCH_END)
            diverging = (epoch, end)
        return FetchedPartition(
            tp=TopicPartition(topic, partition),
            error=error,
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start=log_start,
            aborted=tuple(aborted),
            diverging=diverging,
            preferred_replica=preferred,
            records=records,
        )
