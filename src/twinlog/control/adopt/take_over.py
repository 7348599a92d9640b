"""Decides on each partition of a flow that adopts the work of a MirrorMaker 2.

A partition that MirrorMaker 2 copied must not start as a new one, because everything would be
copied again. So the verdict is added to its plan. A partition without a row in the offset map
starts

- at the position of its adoption, once its row exists;
- as any other, if MirrorMaker 2 noted nothing, and nothing was ever written to it;
- not at all otherwise: it fails with the code of the error that prevented its adoption.

Each discovery checks new partitions, and failed ones again. An error that may pass requests the
next discovery immediately.

- The process dies before the row of an adoption is written: nothing has begun, and the next check
  finds the same.
- The response to the row is lost: the next check finds the row, or finds the same again.
- The map was read before the row was written: the partition waits for the next read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from twinlog.cluster.client import ClusterClient
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.adopt.adoption import NOTHING, Adoption, adopter_of, write_rows
from twinlog.errors import Fate, TwinlogError
from twinlog.mirror.plan import PartitionPlan, Refusal
from twinlog.mirror.state.generations import Claim
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.map_reader import MapReader

Copied = tuple[TopicPartition, TopicId, TopicId]
"""A source partition, and the IDs of the topics between which it is copied."""


@dataclass(slots=True, kw_only=True)
class TakeOver:
    """The verdicts in one generation of a flow."""

    flow: FlowConfig
    storage: OffsetStorage | None
    """MirrorMaker 2's offset storage, or None if the flow adopts nothing."""
    clients: Callable[[], tuple[ClusterClient, ClusterClient]]
    """Returns the clients of source and target."""
    map_reader: MapReader
    log_once: Callable[[str], None]
    once: bool
    """Whether this is the only check, so that errors that may pass count as failures."""
    _claim: Claim | None = None
    _verdicts: dict[Copied, Refusal | None] = field(default_factory=dict)
    """Why a partition must not start, or None if it may start as any other."""
    _adopted: set[Copied] = field(default_factory=set)
    _has_judged: bool = False

    def survey(self, plans: Iterable[PartitionPlan]) -> Adoption:
        """Return what is to be adopted, writing nothing. Raises AdoptionRefused if none may be."""
        if self.storage is None:
            return NOTHING
        maps = self.map_reader.read()
        unread = {
            p.source: problem for p in plans if (problem := maps.problem(p.source)) is not None
        }
        begun = {key[:3] for key, known in maps.items() if known.runs}
        known = {plan.source for plan in plans if _ids(plan) in begun}
        # partitions that MirrorMaker 2 continued after Twinlog begin again under another
        # producer id: with the next claim
        passed = unread.keys() | (known if self._claim is not None else set())
        adopter = adopter_of(self.flow, self.storage, *self.clients())
        adoption = adopter.survey([plan for plan in plans if plan.source not in passed], maps)
        for line in adoption.said():
            self.log_once(line)
        adopted = {partition.plan.source for partition in adoption.partitions}
        for plan in plans:
            error: TwinlogError | None = unread.get(plan.source)
            error = error or adoption.refused.get(plan.source)
            if error is not None:
                self._verdicts[_copied(plan)] = self._refusal(error)
            elif plan.source not in adopted:
                self._verdicts[_copied(plan)] = None
        return adoption

    def write(self, adoption: Adoption, claim: Claim) -> None:
        """Write the rows of adopted partitions. Then Twinlog owns them."""
        self._claim = claim
        rows = adoption.rows(claim.generation, claim.producer_id)
        write_rows(self.clients()[1], self.map_reader.topic, self.map_reader.partitions, rows)
        for partition in adoption.partitions:
            self._verdicts[_copied(partition.plan)] = Refusal(
                code="MAP_MISSING",
                message=f"{partition.plan.target}: its row in the offset map, written when it was "
                "taken over from MirrorMaker 2, is missing; the map is read again",
                is_retriable=True,
            )
            self._adopted.add(_copied(partition.plan))

    def judged(self, plans: Sequence[PartitionPlan]) -> list[PartitionPlan]:
        """Return the plans of a discovery, with the verdict on each."""
        if self.storage is None or self._claim is None:
            return list(plans)
        due = [plan for plan in plans if self._is_due(plan)]
        if due:
            try:
                self.write(self.survey(due), self._claim)
            except TwinlogError as error:
                refusal = replace(self._refusal(error), is_retriable=True)
                self._verdicts |= {_copied(plan): refusal for plan in due}
        self._has_judged = True
        return [replace(plan, refusal=self._verdict(plan)) for plan in plans]

    def _verdict(self, plan: PartitionPlan) -> Refusal | None:
        verdict = self._verdicts[_copied(plan)]
        return replace(verdict, is_retriable=False) if verdict and self.once else verdict

    def _is_due(self, plan: PartitionPlan) -> bool:
        if _copied(plan) not in self._verdicts:
            return True
        known = self._verdicts[_copied(plan)]
        if known is None or _copied(plan) in self._adopted:
            return False
        return known.is_retriable or self._has_judged  # the first call directly follows `survey`

    def _refusal(self, error: TwinlogError) -> Refusal:
        is_retriable = error.fate is Fate.RETRIABLE
        return Refusal(code=error.code, message=error.what, is_retriable=is_retriable)


def _ids(plan: PartitionPlan) -> tuple[TopicId, TopicId, int]:
    return plan.source_topic_id, plan.target_topic_id, plan.source.partition


def _copied(plan: PartitionPlan) -> Copied:
    return plan.source, plan.source_topic_id, plan.target_topic_id
