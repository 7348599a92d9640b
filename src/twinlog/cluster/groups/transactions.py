"""A minimal transactional producer (KIP-98): writes records and the offsets of a group atomically.

*One process.* `write` runs a whole transaction:

    begin_epoch | add partitions, append records | add group, set its offsets | check | commit

*Several processes.* The steps are also separate methods. One process begins (`begin_epoch`). Other
processes join with its producer ID and epoch (`joining`), and append records. One process ends the
transaction (`end`, then `end_epoch`). Each partition must be written by only one process, with
sequence numbers from 0.

*Fencing.* Only one process at a time can use a transactional ID, because `begin_epoch` fences its
previous user. A transaction that the previous user left open is rolled back, or completed if its
end was already decided. After `begin_epoch` has returned, no request of the previous user is
accepted any more. The offsets that the previous user committed must be read with `settled`
(`fetch_offsets`), because the group's coordinator learns of the end of a transaction later than the
transaction's coordinator.

*Unknown outcomes.* If the outcome of a request is unknown, the request is not repeated, except for
a batch, which a broker recognizes by its sequence numbers. After any error, the caller begins a new
epoch and reads the offsets, which show what was committed.

*Versions.* Requests have versions from before KIP-890 part 2, which all brokers from 0.11 to 4.x
accept. So partitions and groups are added to a transaction by separate requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed
from twinlog.cluster.logs.per_leader import topics_of
from twinlog.cluster.logs.producers import WITHOUT_TWO_PHASE_COMMIT, ProducerIdentity
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.errors import BrokerRefused, Fate, TwinlogError, or_raise
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import INVALID_PRODUCER_EPOCH, error_for
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

T = TypeVar("T")

TRANSACTION: Final = 1
"""The key type of a transactional ID."""
ONE_KEY: Final = 3
PRODUCER_FENCED: Final = 90
FENCED: Final = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED})
BEFORE_VERSION_2: Final = 3
"""The last version of AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn before part 2
of KIP-890.
"""
NO_GENERATION: Final = -1
"""The generation of a client that is not a group member."""


class ProducerFenced(NamedTuple):
    """Code and text of the error to raise if a newer user of the transactional ID has fenced this
    producer.
    """

    code: str
    why: str


REPLAY: Final = ProducerFenced(
    "REPLAY_FENCED",
    "another run has begun since, or this run was suspended for too long; if no other run is "
    "active, run the same command again",
)
NO_PRODUCER: Final = ProducerIdentity(producer_id=-1, producer_epoch=-1)
OPEN: Final = "Ongoing"
COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
NOT_ATTEMPTED: Final = 55


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """The state of a transactional ID and its last transaction, as the coordinator reports it."""

    identity: ProducerIdentity
    is_open: bool
    is_committed: bool
    """True if the commit is decided. Some partitions might not have its marker yet."""
    started_ms: int
    """When the transaction began, by the coordinator's clock. Unique within an epoch."""
    tps: frozenset[TopicPartition]
    """The partitions that were added to the transaction, including those of the offsets topic."""


class Transactions:
    """Transactions of one transactional ID and one group. Not thread-safe."""

    def __init__(
        self,
        client: ClusterClient,
        transactional_id: str,
        group: str,
        *,
        timeout_ms: int,
        joining: ProducerIdentity = NO_PRODUCER,
        fenced: ProducerFenced = REPLAY,
    ) -> None:
        """The coordinator rolls back a transaction that is open for longer than `timeout_ms`."""
        self._client = client
        self.transactional_id, self.group, self._timeout_ms = transactional_id, group, timeout_ms
        self.identity = joining
        """The producer ID and epoch of the transaction's records."""
        self._groups, self._fenced = Coordinators(client), fenced
        self._sequences: dict[TopicPartition, int] = {}
        self._node: int | None = None

    def error_of(self, error: TwinlogError) -> TwinlogError:
        """Return the error to raise for a partition leader's error. If the leader has rejected the
        epoch, this is the error of a fenced transaction, else it is the leader's error.
        """
        number = getattr(error, "kafka_error", 0)
        return self._fenced_error(number, "appending for") if number in FENCED else error

    def begin_epoch(self) -> None:
        """Fence the previous user of the transactional ID, and wait until its transaction ends."""
        self.identity = self._retrying(lambda: self._new_epoch(NO_PRODUCER))
        self._sequences = {}

    def end_epoch(self) -> None:
        """Roll back the open transaction of this epoch, fence all processes that have joined it,
        and wait until it has ended.

        Has no effect if another process has begun a newer epoch. Raises TwinlogError.

        The coordinator always checks the epoch in an EndTxn, but the epoch in an InitProducerId
        only if no transaction is open. So each attempt first queries if this epoch is still the
        newest. If another process begins an epoch after the response to this query, it is usually
        not affected. It is fenced only if it also opens a transaction before this process's next
        request arrives, one round trip later. It then fails, but no wrong row is written.
        """

        def ask() -> None:
            described = self._describe()
            if described.identity != self.identity:
                return
            if described.is_open:
                self.end(committed=False)
            self._new_epoch(self.identity)

        try:
            self._retrying(ask)
        except BrokerRefused as error:
            if error.code != self._fenced.code:
                raise

    def _new_epoch(self, former: ProducerIdentity) -> ProducerIdentity:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=former.producer_id,
            producer_epoch=former.producer_epoch,
        )
        answer = self._client.attempt(
            self._coordinator(), request, maximum=WITHOUT_TWO_PHASE_COMMIT
        )
        self._require(int(answer.error_code), "beginning an epoch of")
        return ProducerIdentity(
            producer_id=int(answer.producer_id), producer_epoch=int(answer.producer_epoch)
        )

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        offsets: Mapping[TopicPartition, int],
        *,
        codec: Codec = Codec.NONE,
        metadata: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Append the records and set the group's offsets with `metadata`, all in one transaction.

        `check` is called before the commit. If it raises TwinlogError, the transaction is rolled
        back. Raises TwinlogError. After an error, the offsets that are read after the next
        `begin_epoch` show if the transaction was committed.
        """
        if records:
            self.add_partitions([tp])
            first = self._sequences.get(tp, 0)
            batch = encode_batch(
                records,
                codec=codec,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                base_sequence=first,
                is_transactional=True,
            )
            # retries are safe: a leader recognizes a batch that is already appended by its sequence
            # numbers
            self._client.retrying(
                lambda: produce_batch(
                    self._client, tp, batch, transactional_id=self.transactional_id
                ),
                timeout_s=self._timeout_ms / 2000,  # fail before the coordinator rolls back
            )
            self._sequences[tp] = first + len(records)
        self.commit_offsets({tp: Committed(at, metadata) for tp, at in offsets.items()})
        try:
            check()
        except TwinlogError:
            with suppress(TwinlogError):  # if this fails, the coordinator rolls back later
                self.end(committed=False)
            raise
        self.end(committed=True)

    # -- steps of a transaction

    def add_partitions(self, tps: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction. Must be called before their first record is appended.
        Idempotent.
        """
        topic_of = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def ask() -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.producer_epoch,
                v3_and_below_topics=[
                    topic_of(name=name, partitions=partitions)
                    for name, partitions in topics_of(tps).items()
                ],
            )
            answer = self._client.attempt(self._coordinator(), request, maximum=BEFORE_VERSION_2)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    number = int(result.partition_error_code)
                    # OPERATION_NOT_ATTEMPTED only means that another partition has an error
                    if number != NOT_ATTEMPTED:
                        what = f"{topic.name}-{result.partition_index}"
                        right = f"WRITE on topic {topic.name}"
                        self._require(number, f"adding {what} to", right)

        if tps:
            self._retrying(ask)

    def describe(self) -> TransactionState:
        """Return the state of the transactional ID. Raises Unsupported for brokers before 3.0."""
        return self._retrying(self._describe)

    def _describe(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (answer,) = self._client.attempt(self._coordinator(), request).transaction_states
        self._require(int(answer.error_code), "describing the transaction of", "DESCRIBE")
        return TransactionState(
            identity=ProducerIdentity(
                producer_id=int(answer.producer_id), producer_epoch=int(answer.producer_epoch)
            ),
            is_open=answer.transaction_state == OPEN,
            is_committed=answer.transaction_state in COMMITTED,
            started_ms=int(answer.transaction_start_time_ms),
            tps=frozenset(
                TopicPartition(str(topic.topic), int(partition))
                for topic in answer.topics
                for partition in topic.partitions
            ),
        )

    def _add_group(self) -> None:
        def ask() -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                group_id=self.group,
            )
            answer = self._client.attempt(self._coordinator(), request, maximum=BEFORE_VERSION_2)
            self._require(
                int(answer.error_code),
                f"adding group {self.group} to",
                f"READ on group {self.group}",
            )

        self._retrying(ask)

    def commit_offsets(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Add offsets of the group to the transaction."""
        self._add_group()
        topic_of = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition_of = topic_of.TxnOffsetCommitRequestPartition
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            generation_id=NO_GENERATION,
            member_id="",
            group_instance_id=None,
            topics=[
                topic_of(
                    name=tp.topic,
                    partitions=[
                        partition_of(
                            partition_index=tp.partition,
                            committed_offset=committed.offset,
                            committed_leader_epoch=-1,
                            committed_metadata=committed.metadata,
                        )
                    ],
                )
                for tp, committed in offsets.items()
            ],
        )

        def ask(node: int, _: Sequence[str]) -> dict[str, bool | TwinlogError]:
            answer = self._client.attempt(node, request, maximum=BEFORE_VERSION_2)
            for topic in answer.topics:
                for partition in topic.partitions:
                    if number := int(partition.error_code):
                        doing = "committing offsets in a transaction of"
                        tp = TopicPartition(str(topic.name), partition.partition_index)
                        error = self._groups.error(number, doing, self.group, "READ", tp)
                        return {self.group: error}
            return {self.group: True}

        or_raise(self._groups.ask([self.group], ask, doing="committing offsets of")[self.group])

    def end(self, *, committed: bool) -> None:
        """Commit the transaction or roll it back, with one attempt. After an error, the outcome is
        unknown: the coordinator may have executed the request.
        """
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )
        try:
            answer = self._client.attempt(self._coordinator(), request, maximum=BEFORE_VERSION_2)
            self._require(int(answer.error_code), "ending a transaction of")
        except TwinlogError:
            self._node = None  # the coordinator may have moved
            raise

    # -- the coordinator

    def _coordinator(self) -> int:
        if self._node is None:
            request = FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION)
            answer = self._client.attempt(None, request, minimum=1, maximum=ONE_KEY)
            self._require(int(answer.error_code), "looking up the coordinator of", "DESCRIBE")
            self._node = int(answer.node_id)
        return self._node

    def _retrying(self, ask: Callable[[], T]) -> T:
        def again() -> T:
            try:
                return ask()
            except TwinlogError:
                self._node = None  # the coordinator may have moved
                raise

        return self._client.retrying(again)

    def _require(self, number: int, doing: str, right: str = "") -> None:
        if not number:
            return
        what = f"transactional ID {self.transactional_id}"
        if number in FENCED:
            raise self._fenced_error(number, doing)
        raise error_for(
            number,
            cluster=self._client.alias,
            doing=f"{doing} {what}",
            acl=right if " on " in right else f"{right or 'WRITE'} on {what}",
        )

    def _fenced_error(self, number: int, doing: str) -> BrokerRefused:
        return BrokerRefused(
            f"cluster {self._client.alias}: {doing} transactional ID {self.transactional_id} was "
            f"rejected: {self._fenced.why}",
            kafka_error=number,
            code=self._fenced.code,
            fate=Fate.FATAL,
        )
