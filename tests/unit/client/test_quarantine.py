"""The quarantine topic gets each record once, even if another command writes to it at the same
time. The log is in memory.
"""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.client import skipping
from twinlog.client.skipping import Quarantine, quarantined
from twinlog.cluster.client import ClusterClient
from twinlog.errors import BrokerRefused
from twinlog.mirror.skips import Skip
from twinlog.mirror.state.intents import WantedSkip
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.error_codes import OUT_OF_ORDER_SEQUENCE_NUMBER
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, encode_batch

OURS = 7
HOME = TopicPartition("quarantine", 0)
TP = TopicPartition("orders", 0)
RECORD = Record(offset=11, timestamp=5, key=b"k", value=b"v", headers=())
STEPS = 8
"""More steps than an undisturbed command has queries and writes."""


def wanted(skip: Skip) -> WantedSkip:
    return WantedSkip(
        reason="",
        flow="A->B",
        topic=TP.topic,
        topic_id=TopicId("a" * 32),
        partition=TP.partition,
        first=skip.first,
        next=skip.next,
        is_batch=skip.is_batch,
        code="RECORD_TOO_LARGE",
        who="me",
        at_ms=1,
    )


ONE = wanted(Skip(first=11, next=12))


class Log:
    """A partition and the state of its leader. The request of another command arrives at a given
    step.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, others_step: int, *, deleted: int) -> None:
        self.batches, self.next_sequence, self.start = list[bytes](), deleted, deleted
        self._steps = others_step
        kept = quarantined(ONE, RECORD, 1)
        self._other = self._encoded(kept, deleted)
        monkeypatch.setattr(skipping, "fetch_partition", self.fetch)
        monkeypatch.setattr(skipping, "produce_batch", lambda *call: self.produce(call[2]))
        monkeypatch.setattr(skipping, "readable_ends", lambda *_: {HOME: self.end()})
        monkeypatch.setattr(skipping, "log_starts", lambda *_: {HOME: self.start})
        monkeypatch.setattr(skipping, "describe_producers", self.remembered)

    def _encoded(self, record: Record, sequence: int) -> bytes:
        return bytes(
            encode_batch(
                [record],
                codec=Codec.NONE,
                producer_id=OURS,
                producer_epoch=0,
                base_sequence=sequence,
            )
        )

    def _step(self) -> None:
        self._steps -= 1
        if not self._steps:
            with suppress(BrokerRefused):  # the other command would query the log again
                self._append(self._other)

    def _append(self, batch: bytes) -> None:
        ((header, _),) = read_headers(memoryview(batch))
        if header.base_sequence == self.next_sequence - 1:
            return  # a repeat, which is not appended
        if header.base_sequence != self.next_sequence:
            raise BrokerRefused("no", kafka_error=OUT_OF_ORDER_SEQUENCE_NUMBER)
        at = self.start + len(self.batches)
        self.batches.append(at.to_bytes(8, "big") + batch[8:])
        self.next_sequence += 1

    def end(self) -> int:
        self._step()
        return self.start + len(self.batches)

    def fetch(self, _client: Any, _tp: TopicPartition, offset: int, _bytes: int) -> Any:
        self._step()
        raw = b"".join(self.batches[offset - self.start :])
        return SimpleNamespace(records=memoryview(bytearray(raw)))

    def produce(self, batch: bytes) -> None:
        self._step()
        self._append(bytes(batch))

    def remembered(self, *_: Any) -> dict[Any, Any]:
        self._step()
        known = SimpleNamespace(last_sequence=self.next_sequence - 1)
        return {HOME: {OURS: known} if self.next_sequence else {}}


def made() -> Quarantine:
    target = SimpleNamespace(retrying=lambda ask: ask())
    return Quarantine(
        cast("ClusterClient", None),
        cast("ClusterClient", target),
        HOME.topic,
        producer_id=OURS,
        replication_factor=1,
    )


@pytest.mark.parametrize("deleted", [0, 3])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_of_two_commands_that_put_the_same_record_one_does(
    monkeypatch: pytest.MonkeyPatch, step: int, deleted: int
) -> None:
    log = Log(monkeypatch, step, deleted=deleted)
    assert made()._write_skip(ONE, RECORD) == deleted
    assert len(log.batches) == 1


def test_of_several_batches_that_are_left_out_as_a_whole_each_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several small source batches were sent as one batch, which the target rejected as corrupt.
    All of these source batches are left out, and each is written to the quarantine topic.
    """
    held = [
        bytes(
            encode_batch([RECORD, RECORD._replace(offset=n + 1)], codec=Codec.NONE, base_offset=n)
        )
        for n in (10, 12, 14)
    ]
    answer = SimpleNamespace(records=memoryview(bytearray(b"".join(held))))
    monkeypatch.setattr(skipping, "fetch_partition", lambda *_: answer)
    found = made().read(wanted(Skip(first=10, next=14, is_batch=True)))
    assert [(one.offset, one.value) for one in found] == [(10, held[0]), (12, held[1])]
