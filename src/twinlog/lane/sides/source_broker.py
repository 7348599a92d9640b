"""What a lane asks one broker of the source for."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinlog.cluster.net.read_size import ReadSize
from twinlog.model import TopicPartition
from twinlog.wire.requests.fetch import FetchSession


@dataclass(slots=True)
class SourceBroker:
    """Its fetch session, and the one fetch that may be in flight."""

    session: FetchSession
    size: ReadSize
    """Of one answer."""
    is_fetching: bool = False
    too_late: set[TopicPartition] = field(default_factory=set)
    """Placed here while a fetch was in flight: its answer is not for them. It may be that of an
    earlier copy, which had read on, and what lies between would be taken for a gap of the source.
    """
    throttled: int = 0
    """How many answers a quota held back."""
    answered_at: float = 0.0
    """Monotonic: when it last told the ends of its partitions."""

    def adapt(self, *, is_throttled: bool) -> None:
        """Ask for less or more at once."""
        self.throttled += is_throttled
        self.size.adapt(is_throttled=is_throttled)
