"""Checkpoints of the flow in the other direction, which it keeps on the source: what its sync gave
to groups there, wherever that flow runs.
"""

from __future__ import annotations

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import ends_of_logs, read_to_end
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.groups.checkpoint_rows import CheckpointRow
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.names.filters import policy_of
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.rights import denied


class OppositeCheckpoints:
    """A reader of that topic; for one thread."""

    def __init__(self, flow: LedFlow, source: ClusterClient) -> None:
        self._flow, self._source = flow, source
        topic = policy_of(flow.config).checkpoints_topic(flow.config.target_alias)
        self._tp = TopicPartition(topic, 0)
        self._next = 0
        self._named = SyncedOffsets()

    def gave(self, group: str, tp: TopicPartition, offset: int, topic_id: TopicId | None) -> bool:
        """Whether one of the last checkpoints names the offset. They need not be all that there
        were: the topic is compacted.
        """
        return bool(self._named.gave(self._source.alias, group, tp, offset, topic_id))

    def read(self) -> None:
        """Note what was written since the last time. A topic that is missing, or hidden from our
        user, says nothing. Raises TwinlogError.
        """
        try:
            (end,) = ends_of_logs(self._source, [self._tp]).values()
            if end < self._next:  # it was made again
                self._next = 0
            log = read_to_end(self._source, self._tp.topic, 0, self._next, end=end)
            for one, ids, _ in CheckpointRow.all_in(log):
                tp, topic_id = one.topic_partition, None if ids is None else ids.copy
                self._named.note(self._source.alias, one.group, tp, one.downstream_offset, topic_id)
            self._next = end
        except Unauthorized:
            error = denied(self._source.alias, "READ", self._tp.topic)
            self._flow.log_once(
                f"{self._flow.name}: what the sync of other processes gave to groups of "
                f"{self._source.alias} is not known: {error}; or set "
                "sync.group.offsets.enabled=false"
            )
        except TwinlogError as error:
            if error.code != "TOPIC_MISSING":
                raise
