"""What becomes of each partition of a flow that takes the work of a MirrorMaker 2 over.

A partition that MirrorMaker 2 copied must not begin as a new one: all would be copied a second
time. So the verdict goes into its plan. Without a row in the offset map it begins

- where its adoption says, once its row is there;
- as any other does, where MirrorMaker 2 noted nothing and nothing was ever written;
- not at all else: it stands with the code of what kept it from being adopted.

Each discovery checks those that are new, and again at those that stand; a trouble that may pass
asks for the next discovery at once.

- Dies before the row of an adoption is written: nothing has begun, the next check finds the same.
- The answer to the row is lost: the next check finds the row, or finds the same again.
- A reading of the map is older than the row: the partition waits for the next reading.
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
"""A source partition, and between which topics it is copied."""


@dataclass(slots=True, kw_only=True)
class TakeOver:
    """Of one generation of a flow."""

    flow: FlowConfig
    storage: OffsetStorage | None
    """None: it takes nothing over."""
    clients: Callable[[], tuple[ClusterClient, ClusterClient]]
    """Of source and target."""
    map_reader: MapReader
    log_once: Callable[[str], None]
    once: bool
    """Nobody checks again: what may pass is a failure as well."""
    _claim: Claim | None = None
    _verdicts: dict[Copied, Refusal | None] = field(default_factory=dict)
    """None: it may begin as any other."""
    _adopted: set[Copied] = field(default_factory=set)
    _has_judged: bool = False

    def survey(self, plans: Iterable[PartitionPlan]) -> Adoption:
        """What is to be adopted; nothing is written. Raises AdoptionRefused where none may be."""
        if self.storage is None:
            return NOTHING
        maps = self.map_reader.read()
        unread = {p.source: found for p in plans if (found := maps.problem(p.source)) is not None}
        ours = {key[:3] for key, known in maps.items() if known.runs}
        known = {plan.source for plan in plans if _ids(plan) in ours}
        # what is ours already and was continued by MirrorMaker 2 begins again under another
        # producer id: with the next claim
        passed = unread.keys() | (known if self._claim is not None else set())
        adopter = adopter_of(self.flow, self.storage, *self.clients())
        adoption = adopter.survey([plan for plan in plans if plan.source not in passed], maps)
        for line in adoption.said():
            self.log_once(line)
        adopted = {one.plan.source for one in adoption.partitions}
        for plan in plans:
            error: TwinlogError | None = unread.get(plan.source)
            error = error or adoption.refused.get(plan.source)
            if error is not None:
                self._verdicts[_copied(plan)] = self._refusal(error)
            elif plan.source not in adopted:
                self._verdicts[_copied(plan)] = None
        return adoption

    def write(self, adoption: Adoption, claim: Claim) -> None:
        """Write the rows of what is adopted: from then on it is ours."""
        self._claim = claim
        rows = adoption.rows(claim.generation, claim.producer_id)
        write_rows(self.clients()[1], self.map_reader.topic, self.map_reader.partitions, rows)
        for one in adoption.partitions:
            self._verdicts[_copied(one.plan)] = Refusal(
                code="MAP_MISSING",
                message=f"{one.plan.target}: its row in the offset map, written when it was taken "
                "over from MirrorMaker 2, is not there; the map is read again",
                is_retriable=True,
            )
            self._adopted.add(_copied(one.plan))

    def judged(self, plans: Sequence[PartitionPlan]) -> list[PartitionPlan]:
        """The plans of a discovery, with the verdict on each."""
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
        return [replace(plan, refusal=self._said(plan)) for plan in plans]

    def _said(self, plan: PartitionPlan) -> Refusal | None:
        verdict = self._verdicts[_copied(plan)]
        return replace(verdict, is_retriable=False) if verdict and self.once else verdict

    def _is_due(self, plan: PartitionPlan) -> bool:
        if _copied(plan) not in self._verdicts:
            return True
        known = self._verdicts[_copied(plan)]
        if known is None or _copied(plan) in self._adopted:
            return False
        return known.is_retriable or self._has_judged  # the first follows the check at once

    def _refusal(self, error: TwinlogError) -> Refusal:
        is_retriable = error.fate is Fate.RETRIABLE
        return Refusal(code=error.code, message=error.what, is_retriable=is_retriable)


def _ids(plan: PartitionPlan) -> tuple[TopicId, TopicId, int]:
    return plan.source_topic_id, plan.target_topic_id, plan.source.partition


def _copied(plan: PartitionPlan) -> Copied:
    return plan.source, plan.source_topic_id, plan.target_topic_id
