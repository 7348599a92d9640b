"""Decides which topics duties may change: only topics to which the flow's own lanes copy now.

The name of a remote topic proves nothing. The topic may belong to another client. It may be the
only copy of a source topic that was deleted and re-created. Clients may have moved to it. Lanes
check at the start of each partition whether a remote topic is the flow's copy. So a duty gets a
topic only if lanes have started every partition of the topic with the current topic IDs. No
partition may have failed with a code that contradicts this. Duties get topic names in no other way.

This evidence is valid only while lanes run. It ends when a lane ends, when the flow is paused, and
when the process loses the lead. So right before a change, a duty queries the lanes again. It
confirms that the process leads and that no intent forbids the change (`LedFlow.confirm`), and
compares the topic IDs after its reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import GrowingPause
from twinlog.cluster.client import ClusterClient
from twinlog.control.duties.rounds import Duty, LedFlow, NotNow, PartitionView
from twinlog.survey.copied_topics import CopiedTopic, unchanged_pairs
from twinlog.survey.ends import empty_logs

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedTopics:
    """The topics of a flow that its duties are permitted to change, at one moment."""

    ours: tuple[CopiedTopic, ...] = ()
    left_alone: Mapping[str, str] = field(default_factory=dict)
    """Remote topics that duties must not change, each with the code of the reason."""
    with_others: frozenset[str] = frozenset()
    """Remote topics that also have records of other writers. No duty deletes records of these
    topics, or moves records to other partitions.
    """
    waiting: int = 0
    """Number of topics with partitions that no lane has started yet."""
    watched: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The partitions that lanes copy to, by remote topic."""


def handed_topics(views: Iterable[PartitionView]) -> HandedTopics:
    """Classify the topics of these partitions by what duties are permitted to do with them."""
    by_topic: dict[CopiedTopic, list[PartitionView]] = {}
    for view in views:
        topic = CopiedTopic(
            source=view.source.topic,
            target=view.target.topic,
            source_id=view.source_topic_id,
            target_id=view.target_topic_id,
        )
        by_topic.setdefault(topic, []).append(view)
    codes = {
        topic.target: view.foreign_code
        for topic, of_topic in by_topic.items()
        for view in of_topic
        if view.foreign_code
    }
    free = {topic: of_topic for topic, of_topic in by_topic.items() if topic.target not in codes}
    handed = {topic for topic, of_topic in free.items() if all(view.is_begun for view in of_topic)}
    return HandedTopics(
        ours=tuple(sorted(handed)),
        left_alone=codes,
        with_others=frozenset(
            topic.target
            for topic, of_topic in free.items()
            if any(view.has_others for view in of_topic)
        ),
        waiting=len(free) - len(handed),
        watched={
            topic.target: frozenset(view.target.partition for view in of_topic)
            for topic, of_topic in free.items()
        },
    )


class TopicRounds(Duty):
    """A duty for topics. Once per interval, a round handles all topics of the flow. While topics
    wait for partitions to start, more frequent rounds handle only the topics that no round has
    handled yet.
    """

    def __init__(
        self,
        flow: LedFlow,
        what: str,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow, self._what = flow, what
        self._interval_s, self._clock = interval_s, clock
        self._whole_at = float("-inf")
        self._done: set[CopiedTopic] = set()
        self._pause_s = FIRST_PAUSE_S
        self._pause = GrowingPause(first_s=FIRST_PAUSE_S, most_s=MAX_PAUSE_S)
        self.handed = HandedTopics()
        """The flow's topics in the last round."""

    @property
    def interval_s(self) -> float:
        """Return the seconds until the next round. Pauses grow while topics wait for partitions to
        start, because a partition may lack a leader for hours.
        """
        left_s = self._whole_at + self._interval_s - self._clock()
        pause_s = self._pause_s if self.handed.waiting else self._interval_s
        return min(pause_s, max(left_s, FIRST_PAUSE_S), self._interval_s)

    def with_foreign_partitions(
        self, topics: Iterable[CopiedTopic], target: ClusterClient
    ) -> frozenset[str]:
        """Return the remote topics that have, or might have, records in partitions to which no lane
        copies. These records are of other writers, because a topic that keeps its name may have
        more partitions than its source.
        """
        names = sorted(topic.target for topic in topics)
        metadata = target.metadata(names).topics if names else {}
        tps = [
            tp
            for name in names
            for tp in metadata[name].tps
            if tp.partition not in self.handed.watched.get(name, ())
        ]
        empty = empty_logs(target, tps)
        return frozenset(tp.topic for tp in tps if tp not in empty)

    def next_topics(self) -> tuple[list[CopiedTopic], bool]:
        """Return the topics of this round, and True if these are all topics. Topics that must not
        be changed are logged once.

        Raises TwinlogError if the supervisor does not respond.
        """
        handed = handed_topics(self._flow.partitions())
        is_whole = not self.handed.waiting or self._clock() - self._whole_at >= self._interval_s
        if handed.waiting != self.handed.waiting:
            self._pause.reset()
        self._pause_s, self.handed = self._pause.next_s(), handed
        for remote, code in handed.left_alone.items():
            self._flow.log_once(
                f"{self._flow.name}: {self._what} of {remote} are left as they are while the topic "
                f"has stopped with {code}: this flow may not be allowed to change the topic"
            )
        return [topic for topic in handed.ours if is_whole or topic not in self._done], is_whole

    def require_unchanged(
        self,
        topics: Iterable[CopiedTopic],
        names: Mapping[str, str],
        source: ClusterClient,
        target: ClusterClient,
    ) -> None:
        """Check right before a change that everything read by name belongs to these topics, and
        that the flow is still permitted to change them. Raises NotNow.

        Reading both clusters may take minutes. In that time a lane may have found that a topic is
        no longer the flow's.
        """
        topics = [*topics]
        now = handed_topics(self._flow.partitions())
        changed = {topic for topic in topics if topic.source in names}
        others = now.with_others & {topic.target for topic in changed}
        if not changed <= {*now.ours} or not others <= self.handed.with_others:
            raise NotNow("a topic may have other writers now", flow=self._flow.name)
        self._flow.confirm()
        # the fastest check is last, so that little time passes between this check and the change
        if unchanged_pairs(topics, source, target) != names:
            raise NotNow("a topic was deleted or re-created", flow=self._flow.name)

    def round(self) -> None:
        topics, is_whole = self.next_topics()
        if topics:
            self.sync(topics, is_whole=is_whole)
        self.on_done(topics, is_whole=is_whole)

    def sync(self, topics: Sequence[CopiedTopic], *, is_whole: bool) -> None:
        """Handle these topics. `is_whole`: True if they are all topics. Raises TwinlogError."""
        raise NotImplementedError

    def on_done(self, topics: Iterable[CopiedTopic], *, is_whole: bool) -> None:
        """Record the topics that a successful round has handled."""
        self._done = {*topics} if is_whole else self._done | {*topics}
        if is_whole:
            self._whole_at = self._clock()
