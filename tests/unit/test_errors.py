"""The fields of errors, in pickles and in log lines."""

from __future__ import annotations

import logging
import pickle

import pytest

from twinlog.errors import (
    BrokerRefused,
    ConfigError,
    Fate,
    FlowError,
    PartitionError,
    RecordsLost,
    TwinlogError,
)
from twinlog.flow_log import FlowLog
from twinlog.mirror.findings import Span, foreign_data
from twinlog.model import TopicPartition

ORDERS = TopicPartition("orders", 3)


def of_all_kinds() -> list[TwinlogError]:
    finding = foreign_data(ORDERS, Span(3, 9)).error(Fate.RETRIABLE)
    finding.poison = (5, 6)
    return [
        FlowError("another cluster answers", code="CLUSTER_CHANGED", flow="A->B"),
        PartitionError("no leader", code="NO_LEADER", fate=Fate.RETRIABLE, partition=ORDERS),
        finding,
        BrokerRefused("refused", kafka_error=29, code="CLUSTER_UNAUTHORIZED"),
        RecordsLost("gone", lost=(3, 9)),
        ConfigError("is no number", file="a.properties", line=7, key="tasks.max"),
    ]


@pytest.mark.parametrize("error", of_all_kinds(), ids=lambda one: one.code)
def test_all_fields_survive_pickling(error: TwinlogError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert (str(again), again.fate, vars(again)) == (str(error), error.fate, vars(error))


def test_the_message_without_the_flow() -> None:
    error = FlowError("another cluster answers", code="CLUSTER_CHANGED", flow="A->B")
    assert str(error) == "A->B: another cluster answers [CLUSTER_CHANGED]"
    assert str(error.without_flow()) == "another cluster answers [CLUSTER_CHANGED]"
    assert str(error) == "A->B: another cluster answers [CLUSTER_CHANGED]"


def test_a_log_line_has_the_fields_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    error = PartitionError("no leader", code="NO_LEADER", flow="A->B", partition=ORDERS)
    FlowLog(logging.getLogger("twinlog.tests"), "A->B").warning("it waits: %s", error)
    (record,) = caplog.records
    assert record.getMessage() == "A->B: it waits: no leader [NO_LEADER]"
    fields = {name: vars(record).get(name) for name in ("flow", "topic", "partition", "code")}
    assert fields == {"flow": "A->B", "topic": "orders", "partition": 3, "code": "NO_LEADER"}
