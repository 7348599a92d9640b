"""A broker that accepts only sequence 0 as the first one of a log. On a test's host, it is a real
broker behind a proxy that rejects other batches.

The rule is that of KAFKA-15591 (Kafka 4.5, `ProducerAppendInfo.checkSequence`). While no record has
ever been appended to a log, a batch of an unknown producer must begin at sequence 0. Otherwise the
response is OUT_OF_ORDER_SEQUENCE_NUMBER. A log that has ever had records accepts any sequence.
AutoMQ responds in this way for some time after it has opened a log, even if the log has records.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from tests.support.frames import read_frame, send_frame
from tests.support.hosts import Host
from tests.support.settings import settings_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, offset_at
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import OUT_OF_ORDER_SEQUENCE_NUMBER
from twinlog.wire.record_batch import read_header

__all__ = ["StrictBroker", "strict"]

PRODUCE: Final = 0
BY_ID: Final = 13


class StrictBroker:
    """A proxy that applies the rule, and what it has seen."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.refused: list[tuple[TopicPartition, int]] = []
        """Partition and first sequence of each rejected batch."""
        self.produced: set[str] = set()
        """Topics of all accepted batches."""
        self.opened: set[str] = set()
        """Topics whose logs count as just opened, so that AutoMQ's rule applies to them."""
        self._lock = threading.Lock()

    def accept(self, listener: socket.socket) -> None:
        """Serve connections until the listener is closed."""
        near, _, port = self.bootstrap.rpartition(":")
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                broker = socket.create_connection((near, int(port)))
                sending = threading.Lock()
                for work in (self._ask, self._answer):
                    thread = threading.Thread(
                        target=work, args=(client, broker, sending), daemon=True
                    )
                    thread.start()

    def _ask(self, client: socket.socket, broker: socket.socket, sending: threading.Lock) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = read_frame(client)
                key, version, correlation = struct.unpack_from(">hhi", frame)
                refusal = self._refusal(frame, version) if key == PRODUCE else None
                if refusal is None:
                    send_frame(broker, frame)
                    continue
                refusal.API_VERSION = version
                refusal.with_header(correlation_id=correlation)
                with sending:
                    send_frame(client, refusal.encode(header=True))
        with suppress(OSError):
            broker.shutdown(socket.SHUT_WR)

    def _answer(
        self, client: socket.socket, broker: socket.socket, sending: threading.Lock
    ) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = read_frame(broker)
                with sending:
                    send_frame(client, frame)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    def _refusal(self, frame: bytearray, version: int) -> Any:
        """Return the response that rejects a forbidden batch, or None if the request is passed to
        the broker.
        """
        request = ProduceRequest.decode(bytes(frame), version=version, header=True)
        with self._lock, ClusterClient(settings_for(self.bootstrap)) as client:
            names = self._names(client) if version >= BY_ID else {}
            forbidden = False
            for topic in request.topic_data:
                name = names[topic.topic_id] if names else str(topic.name)
                self.produced.add(name)
                for one in topic.partition_data:
                    header = read_header(memoryview(one.records))
                    tp = TopicPartition(name, one.index)
                    if header.producer_id < 0 or header.base_sequence == 0:
                        continue
                    if name in self.opened or offset_at(client, tp, LATEST) == 0:
                        self.refused.append((tp, header.base_sequence))
                        forbidden = True
        return _refuse(request) if forbidden else None

    def _names(self, client: ClusterClient) -> dict[Any, str]:
        topics = client.metadata(None).topics
        return {UUID(one.topic_id): name for name, one in topics.items()}


def _refuse(request: Any) -> Any:
    topic_of = ProduceResponse.TopicProduceResponse
    return ProduceResponse(
        responses=[
            topic_of(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    topic_of.PartitionProduceResponse(
                        index=one.index, error_code=OUT_OF_ORDER_SEQUENCE_NUMBER, base_offset=-1
                    )
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


@contextmanager
def strict(host: Host, bootstrap: str) -> Iterator[StrictBroker]:
    """Run the proxy at the broker's own address on the host, until the block ends."""
    near, _, port = bootstrap.rpartition(":")
    listener = host.within(lambda: socket.create_server((near, int(port))))
    broker = StrictBroker(bootstrap)
    threading.Thread(target=broker.accept, args=(listener,), daemon=True).start()
    try:
        yield broker
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
