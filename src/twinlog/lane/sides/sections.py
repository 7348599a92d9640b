"""Reads a partition of a far source with several requests in flight.

**Problem.** The offset of a Fetch is known only after the response to the one before. So with one
request in flight a partition gets at most one response per round trip, however fast the link is.
More connections alone do not change that, and a response that is large enough to hide the round
trip would be as large as the lane's memory.

**Sections.** A partition with a backlog is therefore read in sections of equal size. The offset at
which the next section begins is estimated from the bytes per offset of earlier sections. The
estimate is chosen a little too low, and the overlap is skipped when the batches are queued for the
copy:

    position                                             estimated
       |== section 1 ==========|                            |
                           |== section 2 ==========|        |
                                               |== section 3 ==========|

Each section is a Fetch of its own outside of any fetch session, on one of `CONNECTIONS` connections
to the broker that are used only for sections. The socket buffers of a connection (100 KB by default
on a broker) limit what it transfers in a round trip. Connections share a link, so their responses
end at about the same time. A second request on each connection keeps the link busy while the next
request is on its way.

**Rules**

1. Responses are passed to the copy in the order of offsets: a section waits until the copy's
   position has reached the offset at which the section was requested. So the copy sees the same
   batches in the same order as from single requests.
2. If the estimate was too high, the rest between the copy's position and the next section is
   requested first, and the overlap grows by half of that rest.
3. All sections name the leader epoch. Within one epoch the leader's log only grows, so sections
   that were read at different times are of the same log. A section that begins at the copy's
   position names the epoch of the last record, too, so that a truncated log is noticed.
4. Reading ahead ends at any response without records, at an error, a throttled response or a lost
   connection. The sections are dropped, and the partition returns to the fetch session of its
   broker at the copy's position. Responses of the session then show the error, if it persists.
5. Requested, waiting and queued bytes count against the lane's memory. Only the request for a rest
   (rule 2) is sent without room, because its partition could not continue otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.cluster.net.round_trip import FAR_S, RequestsInFlight
from twinlog.lane.sides.cluster_side import ClusterSide, connection_key
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.fetch import (
    FETCH,
    FetchAnswer,
    FetchedPartition,
    FetchPosition,
    FetchSession,
)

CONNECTIONS: Final = 8
"""Number of connections to a broker in addition to the connection of its fetch session."""

REQUESTS_EACH: Final = 2
MOST_SECTIONS: Final = CONNECTIONS * REQUESTS_EACH
"""Maximum sections in flight per broker. At 2 MB each, they fill 1 Gbit/s at 100 ms round trip."""

LEAST_SECTIONS: Final = 2
LEAST_OVERLAP, FIRST_OVERLAP, MOST_OVERLAP = 1 / 64, 1 / 16, 1 / 2
NEWEST_SHARE: Final = 0.25
"""Weight of the newest section in the moving average of bytes per offset."""

OVERLAP_KEPT: Final = 0.95
"""The overlap shrinks by this factor with each section."""

LEAST_REST_BYTES: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class LogSection:
    """A range of a partition's log that is requested by one Fetch."""

    offset: int
    most_bytes: int
    sent_at: float | None = None
    answer: FetchedPartition | None = None
    """The response, which waits until the responses to earlier sections are queued; None before it
    has arrived.
    """


@dataclass(slots=True, eq=False, kw_only=True)
class SectionedRead:
    """The sections of one partition, in the order of their offsets."""

    tp: TopicPartition
    topic_id: TopicId
    node: int
    session: FetchSession
    leader_epoch: int
    section_bytes: int
    next_offset: int
    """Source offset at which the next section will begin."""
    bytes_per_offset: float
    overlap: float = FIRST_OVERLAP
    """Share of a section's offsets that the next section requests again, because the estimate of
    its begin is chosen too low.
    """
    window: RequestsInFlight = field(
        default_factory=lambda: RequestsInFlight(LEAST_SECTIONS, MOST_SECTIONS)
    )
    sections: deque[LogSection] = field(default_factory=deque)

    @property
    def held_bytes(self) -> int:
        """Bytes of sections that are requested, or whose responses wait for earlier sections."""
        return sum(section.most_bytes for section in self.sections)

    @property
    def in_flight(self) -> int:
        return sum(section.answer is None for section in self.sections)

    @property
    def offsets_per_section(self) -> int:
        return max(1, int(self.section_bytes / self.bytes_per_offset * (1 - self.overlap)))

    def has_sections(self, number: int, *, end: int) -> bool:
        """Return True if at least `number` unrequested sections remain in the log before `end`."""
        return self.next_offset + number * self.offsets_per_section <= end

    def next_section(self, *, end: int, limit: int, has_room: bool) -> LogSection | None:
        """Return the section to request now, or None if none can be requested. No section ends
        after source offset `end`. `limit`: maximum sections in flight.
        """
        first = next(iter(self.sections), None)
        if first is not None and first.sent_at is None:
            return first
        is_full = self.in_flight >= min(limit, self.window.size)
        if is_full or not has_room or not self.has_sections(1, end=end):
            return None
        section = LogSection(self.next_offset, self.section_bytes)
        self.next_offset += self.offsets_per_section
        self.sections.append(section)
        return section

    def send(
        self, section: LogSection, connection: HotConnection, last_epoch: int, now: float
    ) -> None:
        """Queue the Fetch for this section. `last_epoch`: leader epoch of the record before the
        section, or -1 if unknown.
        """
        position = FetchPosition(section.offset, self.leader_epoch, last_epoch, section.most_bytes)
        self.session.want(self.tp, self.topic_id, position)
        parts = self.session.request(max_wait_ms=0, max_bytes=section.most_bytes)
        connection.submit(FETCH, self.session.version, parts, SectionRequest(self, section))
        section.sent_at = now

    def on_answer(self, section: LogSection, answer: FetchAnswer) -> FetchedPartition | None:
        """Store the response to `section`, and return its partition. Return None if reading ahead
        must end (rule 4).
        """
        if answer.error or answer.throttle_ms or len(answer.partitions) != 1:
            return None
        (fetched,) = answer.partitions
        is_odd = fetched.error or fetched.diverging is not None or fetched.preferred_replica != -1
        if is_odd or not fetched.records:
            return None
        section.answer = fetched
        return fetched

    def pop_due(self, position: int) -> tuple[LogSection, FetchedPartition] | None:
        """If the next section begins at or before `position`, the copy's source offset, and its
        response has arrived, remove it and return (section, response). Else return None.

        If the section begins after `position`, a section for the offsets between the two is added
        before it (rule 2).
        """
        if not self.sections or (answer := self.sections[0].answer) is None:
            return None
        missing = self.sections[0].offset - position
        if missing <= 0:
            return self.sections.popleft(), answer
        self.overlap = min(MOST_OVERLAP, self.overlap + missing / self.offsets_per_section / 2)
        size = int(missing * self.bytes_per_offset * 1.25)
        size = min(self.section_bytes, max(LEAST_REST_BYTES, size))
        self.sections.appendleft(LogSection(position, size))
        return None

    def learn(self, section: LogSection, size: int, before: int, position: int) -> None:
        """Adapt the estimate of bytes per offset to a response of `size` bytes to `section`, which
        moved the copy's position from source offset `before` to `position`.
        """
        self.next_offset = max(self.next_offset, position)
        if section.most_bytes == self.section_bytes and position > before:
            bytes_per_offset = size / (position - section.offset)
            self.bytes_per_offset += NEWEST_SHARE * (bytes_per_offset - self.bytes_per_offset)
            self.overlap = max(LEAST_OVERLAP, self.overlap * OVERLAP_KEPT)


class SectionRequest(NamedTuple):
    sectioned_read: SectionedRead
    section: LogSection


def is_far(connection: HotConnection | None) -> bool:
    """Return True if a round trip of this connection takes at least FAR_S."""
    return connection is not None and connection.trip_s >= FAR_S


def free_connections(side: ClusterSide, node: int) -> Iterator[tuple[int, HotConnection]]:
    """Yield (key, connection) for each of the broker's connections for sections that can get a
    request, idle ones first. Missing connections are opened.
    """
    for in_flight in range(REQUESTS_EACH):
        for number in range(1, CONNECTIONS + 1):
            key = connection_key(node, number)
            connection = side.connection_to(key)
            if connection is None or connection.in_flight > in_flight or not connection.may_send:
                continue
            yield key, connection
