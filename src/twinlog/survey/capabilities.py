"""Probes the capabilities of a target on a permanent scratch topic (`mm2-twinlog-probe.internal`).

**Problem.** The exactly-once append relies on details of a broker's idempotence check
(`mirror.copy.partition`). Not every broker that implements the protocol has these details, and
neither its version number nor its API versions show that. A missing detail would cost records only
after a fault, when it is too late. So each start of a flow sends real batches, and a guarantee is
given only if the responses confirm the behaviour.

| probed                                               | without it                           |
| ---------------------------------------------------- | ------------------------------------ |
| a new producer ID may begin at any sequence          | only position 0 can be written       |
| a gap in the sequence is rejected                    | compare-and-append does not work     |
| a repeated batch is answered with its first offset   | a lost response may cause duplicates |
| a batch is returned with the header that was written | the tail does not show positions     |
| DescribeProducers lists the producer ID              | every partition is unprotected       |
| the end of the leader epoch is the log end           | records above the HW are overlooked  |

A flow is `at least once` if the target lacks one of the first three rows, or if the probe is not
permitted: after a lost response, the copy cannot find out whether its batch was appended, so the
batch may be appended twice. If the target lacks one of the other rows, the guarantee is `exact
while known`, because it is valid as long as the target remembers the producer ID.

Two kinds of brokers accept only sequence 0 from a new producer for some time, which does not count
as a lack of the first row (ADR 38):

- Kafka 4.5 while the log has never had a record, so another producer appends one before the probe;
- AutoMQ in the first two minutes after it opened the log, so the first batch is retried for longer
  than two minutes.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, fields
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import log_ends
from twinlog.cluster.logs.producers import init_producer_id, known_producers
from twinlog.cluster.logs.raw_log import fetch_records, produce_batch
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.codes import Guarantee
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.names.naming import PROBE_TOPIC
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import OUT_OF_ORDER_SEQUENCE_NUMBER
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, encode_batch

log = logging.getLogger(__name__)

FIRST_SEQUENCE: Final = 1_000
LOG_OPENED_S: Final = 130.0
"""Seconds for which the first batch is retried, because AWAIT_SEQ_ZERO_TIMEOUT of AutoMQ's
ElasticProducerStateManager is 120 s.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities that the probe confirmed."""

    any_first_sequence: bool = False
    gap_refused: bool = False
    repeat_recognised: bool = False
    header_kept: bool = False
    producers_listed: bool = False
    epoch_end: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee for a flow into this cluster."""
        if not (self.any_first_sequence and self.gap_refused and self.repeat_recognised):
            return Guarantee.AT_LEAST_ONCE
        if not (self.producers_listed and self.epoch_end and self.header_kept):
            return Guarantee.EXACT_WHILE_KNOWN
        return Guarantee.EXACT

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(f.name for f in fields(self) if not getattr(self, f.name))


NO_CAPABILITIES: Final = Capabilities()
"""The capabilities if Twinlog's user is not permitted to probe: nothing is guaranteed."""


def ensure_probe_topic(client: ClusterClient, replication_factor: int) -> None:
    """Create the scratch topic if it does not exist. It keeps a few small records for an hour."""
    # read metadata first, so that CREATE is needed only if the topic does not exist
    if client.metadata([PROBE_TOPIC]).topics[PROBE_TOPIC].error:
        create_topic(
            client,
            PROBE_TOPIC,
            partitions=1,
            replication_factor=replication_factor,
            configs={"retention.ms": "3600000", "segment.bytes": "1048576"},
        )
    wait_for_topic(client, PROBE_TOPIC)


def probe(client: ClusterClient) -> Capabilities:
    """Probe all capabilities with a separate producer ID, so that concurrent probes do not
    interfere.

    Raises Unauthorized if Twinlog's user is not permitted to write or read the scratch topic.
    """
    tp = TopicPartition(PROBE_TOPIC, 0)
    _send(client, tp, init_producer_id(client).producer_id, 0)
    producer_id = init_producer_id(client).producer_id
    first = _send_first(client, tp, producer_id)
    again = _send(client, tp, producer_id, FIRST_SEQUENCE)
    gap = _send(client, tp, producer_id, FIRST_SEQUENCE + 100)
    base = first if isinstance(first, int) else -1
    return Capabilities(
        any_first_sequence=isinstance(first, int),
        gap_refused=_is_out_of_order(gap),
        repeat_recognised=isinstance(again, int) and again == base,
        header_kept=base >= 0 and _header_kept(client, tp, base, producer_id),
        producers_listed=producer_id in known_producers(client, [tp]).get(tp, {}),
        epoch_end=_epoch_end(client, tp, base),
    )


def _send_first(client: ClusterClient, tp: TopicPartition, producer_id: int) -> int | TwinlogError:
    """Send the first batch, retrying while the broker may have opened the log only recently."""
    deadline, failures = client.deadline(LOG_OPENED_S), 0
    while _is_out_of_order(answer := _send(client, tp, producer_id, FIRST_SEQUENCE)):
        failures += 1
        if failures == 1:
            log.warning(
                "cluster %s accepts only sequence 0 from a new producer in %s: retrying for %.0f s "
                "before the guarantee is lowered",
                *(client.alias, tp, LOG_OPENED_S),
            )
        if not client.patience.pause(failures, deadline):
            break
    return answer


def _send(
    client: ClusterClient, tp: TopicPartition, producer_id: int, sequence: int
) -> int | TwinlogError:
    record = Record(
        offset=0, timestamp=int(time.time() * 1000), key=b"probe", value=b"", headers=()
    )
    batch = encode_batch(
        [record],
        codec=Codec.NONE,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    try:
        # retried, because a leader that moves shows nothing about the target's capabilities
        return client.retrying(lambda: produce_batch(client, tp, batch))
    except Unauthorized:
        raise
    except TwinlogError as error:
        return error


def _is_out_of_order(answer: int | TwinlogError) -> bool:
    """Return True if the broker rejected the batch with OUT_OF_ORDER_SEQUENCE_NUMBER."""
    return isinstance(answer, BrokerRefused) and answer.kafka_error == OUT_OF_ORDER_SEQUENCE_NUMBER


def _header_kept(client: ClusterClient, tp: TopicPartition, base: int, producer_id: int) -> bool:
    answer = fetch_records(client, {tp: (base, 1 << 16)})[tp]
    if isinstance(answer, Unauthorized):
        raise answer  # a missing permission shows nothing about the target
    if isinstance(answer, TwinlogError):
        return False
    for header, _ in read_headers(answer.records):
        if header.base_offset == base:
            return header.producer_id == producer_id and header.base_sequence == FIRST_SEQUENCE
    return False


def _epoch_end(client: ClusterClient, tp: TopicPartition, base: int) -> bool:
    try:
        answer = log_ends(client, [tp])[tp]
    except Unsupported:
        return False
    return not isinstance(answer, TwinlogError) and answer.end_offset > base
