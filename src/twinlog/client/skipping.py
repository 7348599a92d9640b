"""Skips one record at which a copy has stopped: first checked, then written.

A record is only skipped if the leader reports that its partition is stopped at exactly this offset.
Otherwise the error describes the state, and nothing is written. If this process dies:

- before the row, nothing has happened, except that the record may be in quarantine (`quarantine`);
- after the row, or if its response is lost, the leader applies it, and the same command finds it
  and writes nothing.

If the record was copied between the check and the row, because its topic accepts larger records
now, the position is already after it, and nothing is skipped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from twinlog.client.quarantine import Quarantine
from twinlog.client.steering import GIVES_UP_S, FlowSteering
from twinlog.cluster.client import prompt_client
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.codes import Trait, has, with_trait
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.values.times import in_iso
from twinlog.errors import FlowError
from twinlog.mirror.names.naming import quarantine_topic
from twinlog.mirror.skips import Skip
from twinlog.mirror.state.published import Unusual
from twinlog.mirror.state.skipping import WantedSkip
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.leader_status import leader_status
from twinlog.survey.state_reader import state_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipChange:
    """The effect of the command."""

    wanted: WantedSkip
    before: WantedSkip | None
    """The intent, if the record is already skipped."""

    def as_json(self) -> dict[str, Any]:
        wanted, before = self.wanted, self.before
        return {
            "flow": wanted.flow,
            "topic": wanted.topic,
            "topic_id": str(wanted.topic_id),
            "partition": wanted.partition,
            "first": wanted.skip.first,
            "next": wanted.skip.next,
            "is_batch": wanted.skip.is_batch,
            "code": wanted.code,
            "is_needed": before is None,
            "before": None
            if before is None
            else {"who": before.who, "at_ms": before.at_ms, "reason": before.reason},
        }


class RecordSkip:
    """The skips of one flow; must be closed."""

    def __init__(
        self, config: FlowConfig, source: ClusterSettings, target: ClusterSettings, reason: str
    ) -> None:
        self._config = config
        self._reason = reason
        self._steering = FlowSteering(config, source, target, reason)
        self._source = prompt_client(source, api_timeout_s=GIVES_UP_S)

    @property
    def quarantine_topic(self) -> str:
        return quarantine_topic(self._config.flow)

    def check(self, tp: TopicPartition, offset: int) -> SkipChange:
        """Return what would be skipped. Raises FlowError (SKIP_REFUSED) with the reason if it must
        not be.
        """
        topic_id = self._topic_id(tp)
        for known in self._steering.intents().skips:
            if known.is_of(tp, topic_id) and known.skip.covers(offset):
                return SkipChange(wanted=known, before=known)
        standing = self._standing(tp)
        skip = self._judged(tp, offset, topic_id, standing)
        wanted = WantedSkip(
            flow=self._steering.flow,
            topic=tp.topic,
            topic_id=topic_id,
            partition=tp.partition,
            first=skip.first,
            next=skip.next,
            is_batch=skip.is_batch,
            code=standing.code,
            who=self._steering.who,
            at_ms=int(time.time() * 1000),
            reason=self._reason,
        )
        return SkipChange(wanted=wanted, before=None)

    def quarantine(self, change: SkipChange) -> list[int]:
        """Append the skipped records to the quarantine topic, and return their offsets there."""
        history = state_rows(self._steering.target).history(self._steering.flow)
        if history is None or history.latest is None:
            raise self._refused("no process has ever led the flow")
        quarantine = Quarantine(
            self._source,
            self._steering.target,
            self.quarantine_topic,
            producer_id=history.latest.producer_id,
            replication_factor=self._config.state_topic_replication_factor,
        )
        return quarantine.put(change.wanted)

    def write(self, change: SkipChange) -> None:
        """Write the intent; it is durable when this returns."""
        if change.before is None:
            self._steering.append([change.wanted.encode()])

    def close(self) -> None:
        self._source.close()
        self._steering.close()

    def _topic_id(self, tp: TopicPartition) -> TopicId:
        metadata = self._source.metadata([tp.topic])
        topic = metadata.topics.get(tp.topic)
        if topic is None or topic.error or metadata.partition(tp) is None:
            raise self._refused(f"the source has no partition {tp}, or it may not be described")
        return topic.topic_id

    def _standing(self, tp: TopicPartition) -> Unusual:
        """Return the leader's report about the partition. Raises FlowError if it has no problem."""
        status = leader_status(self._steering.target, self._steering.flow)
        if status is None:
            raise self._refused(
                "no mirror has reported its state: start one, with twinlog.status.interval.seconds "
                "above 0"
            )
        if not status.is_of(int(time.time() * 1000)):
            raise self._refused(
                f"the mirror on {status.where} last reported its state at {in_iso(status.at_ms)} "
                "and has gone since: start one, which checks whether the partition is still stopped"
            )
        for one in status.unusual:
            if (one.topic, one.partition) == tp:
                return one
        if status.unusual_partitions > len(status.unusual):
            raise self._refused(
                f"{status.unusual_partitions} partitions have problems, and {tp} is none "
                f"of the {len(status.unusual)} whose reason is reported: fix those first"
            )
        raise self._refused(f"{tp} is not stopped")

    def _judged(
        self, tp: TopicPartition, offset: int, topic_id: TopicId, standing: Unusual
    ) -> Skip:
        if not standing.code:
            raise self._refused(f"{tp} is {standing.state}, and no record stops it")
        said = f"{tp} is {standing.state} with {standing.code}: {standing.message}"
        if not has(standing.code, Trait.CAN_BE_SKIPPED):
            codes = ", ".join(sorted(with_trait(Trait.CAN_BE_SKIPPED)))
            raise self._refused(f"{said}; this is not caused by a record, unlike {codes}")
        poison = standing.poison
        if poison is None:
            raise self._refused(f"{said}; the exact record is not known")
        if NO_TOPIC_ID not in (topic_id, poison.topic_id) and topic_id != poison.topic_id:
            raise self._refused(f"{tp}: the topic was re-created since the mirror checked it")
        if poison.skip.first != offset:
            raise self._refused(f"{tp} has stopped at offset {poison.skip.first}, not {offset}")
        return poison.skip

    def _refused(self, why: str) -> FlowError:
        return FlowError(
            f"{why}; nothing was changed", flow=self._steering.flow, code="SKIP_REFUSED"
        )
