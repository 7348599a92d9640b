"""A generation of a flow that is claimed to mend its state, without starting it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import TopicId
from twinlog.survey.map_reader import is_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A generation that is ours."""

    generation: int
    clean: bool
    """The one before ended in order: nobody else's requests are on their way."""
    map_topic: str
    map_partitions: int


@dataclass(slots=True, kw_only=True, eq=False)
class ClaimingSetup(FlowSetup):
    """A flow's set-up that goes as far as the claim."""

    @classmethod
    def of(cls, setup: FlowSetup) -> ClaimingSetup:
        return cls(
            config=setup.config,
            policy=setup.policy,
            source=setup.source,
            target=setup.target,
            lane_source=setup.lane_source,
            lane_target=setup.lane_target,
        )

    def claim(self, held: Iterable[TopicId]) -> Claimed:
        """Lead the flow and claim a generation, by the steps of `prepare`, which are safe to repeat
        and to die after. Raises NotLeader while another process leads it.

        `held`: the flow's target topics that ever held a record.
        """
        with self._lock:
            ids, target = self._enter(once=True), self.clients.target
            map_topic = map_topic_of(self.config.flow)
            history = self.claims.history(target)
            if history is not None and history.latest and is_lost(target, map_topic, history):
                self.claims.note_lost_map(target, history.latest.generation, held)
            map_reader = self.facts.own_map(self.clients)
            map_partitions = map_reader.partitions
            claim, clean = self.claims.claim(target, ids, map_reader, seen=history, fresh_id=False)
            return Claimed(
                generation=claim.generation,
                clean=clean,
                map_topic=map_topic,
                map_partitions=map_partitions,
            )
