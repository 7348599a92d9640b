"""The start times of open transactions are read with few requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords
from twinlog.errors import Disconnected, TwinlogError
from twinlog.model import TopicPartition
from twinlog.survey import open_transactions as survey
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

ORDERS, PAY, LOST = (TopicPartition(topic, 0) for topic in ("orders", "pay", "lost"))
STARTS = {ORDERS: {7: 40, 8: 30}, PAY: {9: 50}, LOST: {10: 60}}


def batch(at: int) -> FetchedRecords:
    record = Record(offset=0, timestamp=1_800_000_000_000 + at, key=None, value=b"", headers=())
    data = memoryview(bytes(encode_batch([record], codec=Codec.NONE)))
    return FetchedRecords(
        records=data, high_watermark=100, last_stable_offset=0, log_start=0, aborted=()
    )


def test_first_records_of_all_partitions_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source with hundreds of open transactions must not cost a round trip for each of them,
    because nothing else is read from the source in the meantime.
    """
    asked: list[list[TopicPartition]] = []

    def fetch(_: object, positions: Mapping[TopicPartition, tuple[int, int]]) -> dict[Any, Any]:
        asked.append([*positions])
        answers: dict[TopicPartition, FetchedRecords | TwinlogError]
        answers = {tp: batch(at) for tp, (at, _) in positions.items()}
        return answers | {LOST: Disconnected("its broker does not answer")}

    monkeypatch.setattr(survey, "transaction_starts", lambda *_: STARTS)
    monkeypatch.setattr(survey, "fetch_records", fetch)
    found = survey.open_transactions(cast("ClusterClient", None), [*STARTS])
    shown = [(each.tp, each.producer_id, each.since_ms % 1000) for each in found if each.tp != LOST]
    assert shown == [(ORDERS, 8, 30), (ORDERS, 7, 40), (PAY, 9, 50)]
    assert [each.since_ms for each in found if each.tp == LOST] == [-1]
    assert asked == [[ORDERS, PAY, LOST], [ORDERS]]
    monkeypatch.setattr(survey, "AT_ONCE", 2)
    asked.clear()
    assert survey.open_transactions(cast("ClusterClient", None), [*STARTS]) == found
    assert len(asked) == 2
