"""Clients of an application that move from one cluster to another while they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tests.support.eventually import PATIENCE_S

__all__ = ["LiveConsumer", "LiveProducer"]

Keys = Mapping[str, Any]
REFUSALS = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._PURGE_QUEUE}
"""Errors of a client whose access is denied. The second one is reported for the other records of a
transaction in which one record was rejected.
"""


class _Live:
    """A client that works in its own thread until it is ended."""

    def __init__(self, gone_over: threading.Event) -> None:
        self._gone_over = gone_over
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (raised again in the test's thread)
            self._error = error

    def _work(self) -> None:
        raise NotImplementedError

    def works(self) -> bool:
        """Return True, or raise the error that ended the client early."""
        if self._error is not None:  # not an AssertionError, because callers would retry
            raise RuntimeError(f"a live client failed: {self._error!r}") from self._error
        return True

    def end(self) -> None:
        """End the client, and raise its error if it has failed."""
        self._end.set()
        self._gone_over.set()
        self._thread.join(PATIENCE_S)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._gone_over.set()
        self._thread.join(PATIENCE_S)


class LiveProducer(_Live):
    """Writes the numbers 0, 1, 2, ..., each once: to the old cluster until it rejects a record,
    then to the new one. With a transactional ID, each transaction has two records.
    """

    def __init__(
        self,
        gone_over: threading.Event,
        old: tuple[Keys, str],
        new: tuple[Keys, str],
        *,
        pause_s: float = 0.01,
    ) -> None:
        super().__init__(gone_over)
        self._stages = [old, new]
        self._pause_s = pause_s
        self.count = 0
        """Number of records that are certainly written."""
        self.refused_at = self.first_there_at = 0.0

    @property
    def gap_s(self) -> float:
        """Return the seconds from the first rejection to the first record on the new cluster."""
        return self.first_there_at - self.refused_at

    def _work(self) -> None:
        for number, (keys, topic) in enumerate(self._stages):
            client = Producer({"log_level": 0, "linger.ms": 0, **keys})
            is_transactional = "transactional.id" in keys
            if is_transactional:
                client.init_transactions(PATIENCE_S)
            while not (self._end.is_set() and number == 1):
                if not self._write(client, topic, transactional=is_transactional):
                    assert number == 0, f"{topic}: it may not write in the new place"
                    break
                if number == 1 and not self.first_there_at:
                    self.first_there_at = time.monotonic()
                time.sleep(self._pause_s)
            if number == 0 and is_transactional:
                with suppress(KafkaException):  # if no record was accepted, no transaction is open
                    client.abort_transaction(PATIENCE_S)
            if number == 0:
                self.refused_at = time.monotonic()
                self._gone_over.wait(PATIENCE_S)

    def _write(self, client: Producer, topic: str, *, transactional: bool) -> bool:
        """Write the next record, or the next two in a transaction. Return True if they were
        accepted.
        """
        refused: list[KafkaError] = []

        def answered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        some = 2 if transactional else 1
        try:
            if transactional:
                client.begin_transaction()
            for number in range(self.count, self.count + some):
                client.produce(topic, b"%d" % number, on_delivery=answered)
            client.flush(PATIENCE_S)
            if refused:
                assert {one.code() for one in refused} <= REFUSALS, refused
                return False
            if transactional:
                client.commit_transaction(PATIENCE_S)
        except KafkaException as error:
            code = error.args[0].code()
            assert code in REFUSALS, error
            return False
        self.count += some
        return True


class LiveConsumer(_Live):
    """Reads and commits records one by one on the old cluster. After it is told to move, it reads
    on the new cluster from its group's offset.
    """

    def __init__(
        self,
        gone_over: threading.Event,
        group: str,
        old: tuple[Keys, str],
        new: tuple[Keys, str],
        *,
        starts: threading.Event | None = None,
    ) -> None:
        """`starts`: set when the consumer may begin on the new cluster; by default when it has left
        the old one.
        """
        super().__init__(gone_over)
        self._group = group
        self._starts = starts or gone_over
        self._stages = [old, new]
        self.read: list[int] = []

    def _work(self) -> None:
        for number, (keys, topic) in enumerate(self._stages):
            client = Consumer(
                {
                    "log_level": 0,
                    "group.id": self._group,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    **keys,
                }
            )
            while number == 1 and not (self._starts.wait(0.1) or self._end.is_set()):
                pass
            client.subscribe([topic])
            over = self._gone_over if number == 0 else self._end
            while not over.is_set():
                for message in client.consume(1, 0.2):
                    if message.error() is None:
                        self.read.append(int(message.value() or b"-1"))
                        client.commit(message=message, asynchronous=False)
            client.close()
