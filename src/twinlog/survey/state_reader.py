"""Reads what the state topic says, again and again: what people want of a flow, and which
producers write copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import BrokerRefused
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.generations import producer_of
from twinlog.mirror.state.held_producers import held_producers, is_held_row
from twinlog.mirror.state.intents import FlowIntents, flow_intents, is_intent_row
from twinlog.mirror.state.mapped import MappedCopies, is_mapped_row, mapped_copies
from twinlog.survey.rights import denied
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

Rows = Sequence[tuple[bytes | None, bytes | None]]

READ_TIMEOUT_S: Final = 5.0
REREAD_EVERY: Final = 60
"""Readings: a topic that was created again may be as long as the old one was. It is a small one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNews:
    """What the state topic says now."""

    intents: FlowIntents
    producers: frozenset[int]
    """Every producer id that a flow was ever given."""
    mapped: MappedCopies = field(default_factory=MappedCopies)
    """Which copies of the flow have rows in the offset map."""
    has_held_producers: bool = False
    """The flow holds the source's producers back."""


def state_rows(target: ClusterClient) -> Rows:
    """Key and value of each row of the state topic, to its end. Raises TwinlogError, also where it
    is not there.
    """
    return [(row.key, row.value) for row in read_to_end(target, STATE_TOPIC, 0)]


def state_rows_if_any(target: ClusterClient) -> Rows:
    """None of them where the topic is not there. Raises Unauthorized where it may not be seen:
    nobody knows then.
    """
    error = target.metadata([STATE_TOPIC]).topics[STATE_TOPIC].error
    if error == TOPIC_AUTHORIZATION_FAILED:
        # to list its offsets would ask for DESCRIBE alone
        raise denied(target.alias, Operation.READ.name, STATE_TOPIC)
    return [] if error == UNKNOWN_TOPIC_OR_PARTITION else state_rows(target)


def has_state(target: ClusterClient, *, within_s: float) -> bool:
    """Whether there is a state topic that can be read; who needs it says what is wrong with it."""
    found = target.metadata([STATE_TOPIC], timeout_s=within_s).topics.get(STATE_TOPIC)
    return found is not None and not found.error


def with_rows(plans: Iterable[PartitionPlan], mapped: MappedCopies) -> list[PartitionPlan]:
    """The plans, with what is known of their rows in the offset map."""

    def had_row(plan: PartitionPlan) -> bool:
        copy = plan.source_topic_id, plan.target_topic_id
        return mapped.has_row(*copy, plan.source.partition)

    return [replace(plan, had_row=had_row(plan)) for plan in plans]


class StateReader:
    """The state topic as one flow follows it, by a client of its own; not for several threads at
    once.
    """

    def __init__(self, target: ClusterClient, flow: str) -> None:
        self._target = target
        self._flow = flow
        self._position = 0
        self._reads = 0
        self._rows: dict[bytes, bytes | None] = {}
        self._producers: set[int] = set()
        self._mapped: set[tuple[bytes, bytes | None]] = set()
        self._held = False
        self._news: StateNews | None = None
        """Of the last reading, while nothing was read since."""

    def read(self) -> StateNews:
        """What is so now. Raises CorruptData for a row that cannot be read, each time; other
        TwinlogErrors where the topic cannot be read.
        """
        self._reads += 1
        if self._reads % REREAD_EVERY == 0:
            self._position = 0
        try:
            self._read_on()
        except BrokerRefused as refusal:
            # the topic lost its end, or was created again: what it said before is wanted still,
            # since nobody took it back
            self._position = 0
            if refusal.code != "OFFSET_OUT_OF_RANGE":
                raise
            self._read_on()
        if self._news is None:
            intents = flow_intents(self._flow, self._rows.items())
            self._news = StateNews(
                intents=intents,
                producers=frozenset(self._producers),
                has_held_producers=self._held,
                mapped=mapped_copies(self._flow, self._mapped),
            )
        return self._news

    def _read_on(self) -> None:
        at = self._position
        for record in read_to_end(self._target, STATE_TOPIC, 0, at, timeout_s=READ_TIMEOUT_S):
            self._news = None
            if record.key is not None and is_intent_row(record.key, self._flow):
                self._rows[record.key] = record.value
            elif record.key is not None and is_held_row(record.key, self._flow):
                self._held = held_producers(record.key, record.value) is not None
            elif record.key is not None and is_mapped_row(record.key, self._flow):
                self._mapped.add((record.key, record.value))
            elif (producer := producer_of(record.key, record.value)) is not None:
                self._producers.add(producer)
            self._position = record.offset + 1
