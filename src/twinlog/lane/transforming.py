"""A lane's transforms: which partitions it may transform, and which ranges get no answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twinlog.errors import Fate, PartitionError
from twinlog.lane.messages import TakePartition, Work
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.mirror.copy.dead_letters import DeadLetterTarget
from twinlog.mirror.copy.transformed import RangeDesk, TransformedCopy, Transformer
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

UNANSWERED_AFTER_S: Final = 180.0
"""If a range has had no answer for this many seconds, its partition is given back to the driver. A
job of the application ends earlier, and its ranges are then offered again (`sides.range_port`).
"""


class Transforming:
    """Gives the lane's partitions access to the application of the transforms."""

    def __init__(self, work: Work, application: Transformer | None, target: ClusterSide) -> None:
        self._work, self._target = work, target
        self.desk = None if application is None else RangeDesk(application)

    def refusal(self, take: TakePartition) -> PartitionError | None:
        """Return the reason why this lane must not begin to copy a partition now because of its
        transforms, or None if it may.

        If the transform is not available, the partition is never copied untransformed instead.
        """
        handed_by = "" if take.handed is None else take.handed.transform
        if not (take.transform or take.written_by or handed_by):
            return None
        code = "TRANSFORM_UNAVAILABLE"
        if take.late_requests_ms:
            text = "late requests of an earlier lane may add records that the offset map lacks"
            code = "HELD_BACK"
        elif take.handed is not None and handed_by != take.transform:
            text = "the transform has changed since the last lane; reading both logs"
            code = "HELD_BACK"
        elif not take.transform:
            return None
        elif self.desk is None:
            text = "this lane has no application that runs the transform"
        elif take.fan is not None:
            text = "records placed by key (twinlog.target.partitions) cannot be transformed"
        elif not self._work.is_ours_alone:
            text = "records of topics that other clients may write to cannot be transformed"
        elif self._work.dead_letters and NO_TOPIC_ID in (take.source_topic_id, self._letters_id):
            text = (
                f"failed records cannot be written, because topic {self._work.dead_letters} does "
                "not exist, or a cluster has no topic IDs (Kafka before 2.8)"
            )
            self._target.need_topics((self._work.dead_letters,))
        else:
            return None
        return PartitionError(f"{take.source}: {text}", code=code, fate=Fate.RETRIABLE)

    @property
    def _letters_id(self) -> TopicId:
        return self._target.topic_ids.get(self._work.dead_letters, NO_TOPIC_ID)

    def dead_letters(self) -> DeadLetterTarget | None:
        """Return the partition to which failed records are written, or None if failed records are
        not quarantined.
        """
        if not self._work.dead_letters:
            return None
        partition = TopicPartition(self._work.dead_letters, 0)
        return DeadLetterTarget(partition, self._letters_id, self._work.flow)

    def unanswered(self) -> Iterator[tuple[TransformedCopy, PartitionError]]:
        """Yield (copy, error) for each copy of which a range has had no answer for
        UNANSWERED_AFTER_S.
        """
        for copy, source_range in (
            () if self.desk is None else self.desk.unanswered(UNANSWERED_AFTER_S)
        ):
            text = (
                f"{copy.source}: the transforms' application has returned no result for source "
                f"offsets [{source_range.first}, {source_range.end}) for "
                f"{UNANSWERED_AFTER_S:.0f} s; checking again"
            )
            yield copy, PartitionError(text, code="TRANSFORM_UNAVAILABLE", fate=Fate.RETRIABLE)
