"""Which topics a duty may touch: those that the flow's own lanes copy now, and no others.

A name is no proof. Behind it may be a topic of somebody else, the only copy of a source topic that
was deleted and created again, or a topic that clients have gone over to. Whether a remote topic is
our copy is found out by the lanes, at the start of each partition. So a topic is handed to a duty
when every partition of it is with a lane that has begun it between the topics of these ids, and
none stands with a code that says otherwise. A duty that is handed topics has no other way to name
one.

What was found is evidence while somebody watches: it ends with the lane, with a pause, and with
the lead. So right before a change a duty asks the lanes once more, confirms that the process leads
and that nothing else is wanted by now (`LedFlow.confirm`), and compares the ids behind what it has
read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import GrowingPause
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import empty_logs
from twinlog.control.duties.rounds import LedFlow, NotNow, PartitionView
from twinlog.survey.copied_topics import CopiedTopic, still_there

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedTopics:
    """The topics of a flow, as its duties may take them at one moment."""

    ours: tuple[CopiedTopic, ...] = ()
    left_alone: Mapping[str, str] = field(default_factory=dict)
    """By remote topic, the code that says why nothing may touch it."""
    with_others: frozenset[str] = frozenset()
    """Remote topics that hold records of others as well: nothing that deletes records, or sends
    some to other partitions, is done to them.
    """
    waiting: int = 0
    """Topics of which some partition was not begun yet."""
    watched: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By remote topic, the partitions that are copied into: nobody watches the others."""


def handed_topics(views: Iterable[PartitionView]) -> HandedTopics:
    """Sort the topics of these partitions."""
    topics: dict[CopiedTopic, list[PartitionView]] = {}
    for view in views:
        one = CopiedTopic(
            source=view.source.topic,
            target=view.target.topic,
            source_id=view.source_topic_id,
            target_id=view.target_topic_id,
        )
        topics.setdefault(one, []).append(view)
    codes = {
        one.target: view.not_ours for one, some in topics.items() for view in some if view.not_ours
    }
    free = {one: some for one, some in topics.items() if one.target not in codes}
    ours = {one for one, some in free.items() if all(view.is_begun for view in some)}
    return HandedTopics(
        ours=tuple(sorted(ours)),
        left_alone=codes,
        with_others=frozenset(
            one.target for one, some in free.items() if any(view.has_others for view in some)
        ),
        waiting=len(free) - len(ours),
        watched={
            one.target: frozenset(view.target.partition for view in some)
            for one, some in free.items()
        },
    )


class TopicRounds:
    """When a duty deals with which topics: with all of them at each interval, and in between with
    those that were not begun before.
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
        self._waiting, self._pause_s = 0, FIRST_PAUSE_S
        self._pause = GrowingPause(first_s=FIRST_PAUSE_S, most_s=MAX_PAUSE_S)
        self._with_others: frozenset[str] = frozenset()
        self._watched: Mapping[str, frozenset[int]] = {}

    @property
    def interval_s(self) -> float:
        """Until the next round; a partition may wait for its leader for hours."""
        left_s = self._whole_at + self._interval_s - self._clock()
        pause_s = self._pause_s if self._waiting else self._interval_s
        return min(pause_s, max(left_s, FIRST_PAUSE_S), self._interval_s)

    @property
    def with_others(self) -> frozenset[str]:
        """Remote topics of the last round that hold records of others as well."""
        return self._with_others

    def beside(self, topics: Iterable[CopiedTopic], target: ClusterClient) -> frozenset[str]:
        """Remote topics that hold records, or may, in partitions that are not copied into. They
        are of others: a topic that keeps its name may have more partitions than its source.
        """
        names = sorted(one.target for one in topics)
        found = target.metadata(names).topics if names else {}
        tps = [
            tp
            for name in names
            for tp in found[name].tps
            if tp.partition not in self._watched.get(name, ())
        ]
        empty = empty_logs(target, tps)

        return frozenset(tp.topic for tp in tps if tp not in empty)

    def take(self) -> tuple[list[CopiedTopic], bool]:
        """The topics of this round, and whether these are all. Says once which ones are left alone.

        Raises TwinlogError when the supervisor does not answer.
        """
        found = handed_topics(self._flow.partitions())
        is_whole = not self._waiting or self._clock() - self._whole_at >= self._interval_s
        if found.waiting != self._waiting:
            self._pause.reset()
        self._pause_s = self._pause.next_s()
        self._waiting, self._with_others = found.waiting, found.with_others
        self._watched = found.watched
        for remote, code in found.left_alone.items():
            self._flow.log_once(
                f"{self._flow.name}: {self._what} of {remote} are left as they are while it has "
                f"stopped with {code}: it may not be this flow's to change"
            )
        return [one for one in found.ours if is_whole or one not in self._done], is_whole

    def confirm(
        self,
        topics: Iterable[CopiedTopic],
        names: Mapping[str, str],
        source: ClusterClient,
        target: ClusterClient,
    ) -> None:
        """Right before a change: what was read under these names was said of these very topics, and
        they are still ours to change. Raises NotNow.

        To read both clusters may take minutes, in which a lane may have found what takes a topic
        from us.
        """
        topics = [*topics]
        now = handed_topics(self._flow.partitions())
        changed = {one for one in topics if one.source in names}
        others = now.with_others & {one.target for one in changed}
        if not changed <= {*now.ours} or not others <= self._with_others:
            raise NotNow("a topic is not known as ours alone by now", flow=self._flow.name)
        self._flow.confirm()
        if still_there(topics, source, target) != names:  # last: it takes the least time
            raise NotNow("a topic was deleted or re-created meanwhile", flow=self._flow.name)

    def did(self, topics: Iterable[CopiedTopic], *, is_whole: bool) -> None:
        """The round has succeeded."""
        self._done = {*topics} if is_whole else self._done | {*topics}
        if is_whole:
            self._whole_at = self._clock()
