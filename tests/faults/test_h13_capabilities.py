"""H13: the capabilities of an unmodified broker are probed on one permanent topic."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import eventually
from tests.support.first_sequence import strict
from tests.support.hosts import hosts
from tests.support.lacking import lacking
from tests.support.mirror_process import Driver
from tests.support.monitor import ask
from tests.support.settings import HURRIED, settings_for
from tests.support.topics import create_topic, delete_records, end_offsets, topic_names
from twinlog.addresses import Address
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.cluster.net.retry import Patience
from twinlog.mirror.names.naming import PROBE_TOPIC
from twinlog.model import TopicPartition
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.survey.capabilities import (
    LOG_OPENED_S,
    Capabilities,
    ensure_probe_topic,
    probe,
)
from twinlog.wire.error_codes import (
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
    error_for,
)
from twinlog.wire.record_batch import read_header

pytestmark = [pytest.mark.faults, pytest.mark.broker]

PAGE: Final = Address("127.0.0.1", 9405)
NOT_LEADER: Final = 6
INVALID_RECORD: Final = 87
DESCRIBE_PRODUCERS: Final = 61
OFFSET_FOR_LEADER_EPOCH: Final = 23


@pytest.fixture
def client(target_cluster: LocalCluster) -> Iterator[ClusterClient]:
    with ClusterClient(settings_for(target_cluster.bootstrap), patience=HURRIED) as made:
        yield made


@pytest.mark.witness("H13: the features of a stock broker are probed")
def test_stock_broker_can_do_everything(
    target_cluster: LocalCluster, client: ClusterClient
) -> None:
    for _ in range(2):
        ensure_probe_topic(client, 1)
        before = end_offsets(target_cluster, PROBE_TOPIC)[0]
        found = probe(client)
        assert found.missing == ()
        assert found.guarantee == "exact"
        # only another producer's record and the first batch were appended, not the repeated batch
        # and the one after a gap
        assert end_offsets(target_cluster, PROBE_TOPIC)[0] == before + 2
    probes = [name for name in topic_names(target_cluster) if "probe" in name]
    assert probes == [PROBE_TOPIC], "one topic, however often"


def test_only_the_refusal_of_a_gap_counts_as_one(
    client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe of a broker's capabilities sends a batch after a gap in the sequences. Only
    OUT_OF_ORDER_SEQUENCE_NUMBER counts as the rejection of a gap. If the leader has moved, the
    probe is repeated.
    """
    ensure_probe_topic(client, 1)
    sent: list[int] = []

    def produce(*given: Any) -> int:
        sent.append(len(sent))
        if len(sent) % 2:
            raise error_for(NOT_LEADER, cluster="t", doing="appending")
        return produce_batch(*given)

    monkeypatch.setattr("twinlog.survey.capabilities.produce_batch", produce)
    assert probe(client).missing == ()
    assert len(sent) == 8

    def refuse(*given: Any) -> int:
        sent.append(len(sent))
        if len(sent) == 12:
            raise error_for(INVALID_RECORD, cluster="t", doing="appending")
        return produce_batch(*given)

    monkeypatch.setattr("twinlog.survey.capabilities.produce_batch", refuse)
    assert probe(client).missing == ("gap_refused",)


@pytest.fixture
def strict_target(
    target_cluster: LocalCluster, fresh_topic: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Capabilities]]:
    """Return a function that probes a new topic on a broker with Kafka 4.5's rule: the first
    sequence of a log must be 0.
    """
    monkeypatch.setattr("twinlog.survey.capabilities.PROBE_TOPIC", fresh_topic)
    bootstrap = target_cluster.bootstrap

    def tried() -> Capabilities:
        with ClusterClient(settings_for(bootstrap), patience=HURRIED) as client:
            ensure_probe_topic(client, 1)
            return probe(client)

    with hosts("strict") as (host,), strict(host, bootstrap) as broker:
        yield lambda: host.within(tried)
    assert broker.refused == []
    assert broker.produced == {fresh_topic}


@pytest.mark.parametrize("left", ["nothing", "an empty topic", "one record", "deleted records"])
def test_log_that_held_no_record_takes_only_sequence_0(
    target_cluster: LocalCluster,
    strict_target: Callable[[], Capabilities],
    fresh_topic: str,
    left: str,
) -> None:
    """The broker accepts only sequence 0 in an empty log. The probe of its capabilities must find
    none missing, whether the probe's topic is new, empty, has a record, or has only deleted
    records.
    """
    if left != "nothing":
        create_topic(target_cluster, fresh_topic)
    if left in {"one record", "deleted records"}:
        produce(target_cluster, fresh_topic, [Outgoing(value=b"")])
    if left == "deleted records":
        delete_records(target_cluster, fresh_topic, 0, 1)
    assert strict_target().missing == ()


def test_two_processes_probe_a_new_log_at_once(strict_target: Callable[[], Capabilities]) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [probed.result() for probed in [pool.submit(strict_target) for _ in range(2)]]
    assert [one.missing for one in found] == [(), ()]


@pytest.mark.witness(
    "H13: the guarantee is exact on a new cluster that accepts only first sequence 0"
)
def test_flow_into_a_new_cluster_whose_logs_take_only_sequence_0_first(
    source_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """The target's brokers accept only sequence 0 in an empty log. They reject no request of the
    flow, because the first batches in the copy, the map and the state topic begin at sequence 0.
    """
    create_topic(source_cluster, fresh_topic, 2)
    for partition in range(2):
        records = [Outgoing(value=b"%d" % n, partition=partition) for n in range(50)]
        produce(source_cluster, fresh_topic, records)
    file = tmp_path / "mm2.properties"
    with LocalCluster("first-sequence", jvm_flags=QUICK_JVM) as target:
        file.write_text(
            f"clusters = A, B\nA.bootstrap.servers = {source_cluster.bootstrap}\n"
            f"B.bootstrap.servers = {target.bootstrap}\nA->B.enabled = true\n"
            f"topics = {fresh_topic}\nreplication.factor = 1\n"
        )
        with (
            hosts("strict") as (host,),
            host.reaches(source_cluster.bootstrap),
            strict(host, target.bootstrap) as broker,
            Driver(file, listen=PAGE, host=host) as mirror,
        ):
            eventually(lambda: mirror.state.records == 100)
            told = host.within(lambda: ask(mirror.served(), "/api/v1/flows", timeout_s=60))
    assert [flow["guarantee"] for flow in told.json["flows"]] == ["exact"]
    assert broker.refused == []
    assert {PROBE_TOPIC, f"A.{fresh_topic}"} <= broker.produced


def test_lane_whose_first_sequence_is_refused_for_a_while_tries_again(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """The target rejects the lane's first sequence for a while, as AutoMQ does if a partition moves
    after the producer's state was lost. The lane retries, and the rejection does not count as a
    missing capability.
    """
    create_topic(source_cluster, fresh_topic)
    mark = f"a{uuid.uuid4().hex[:8]}"
    remote = f"{mark}.{fresh_topic}"
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = {mark}, B\n{mark}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n{mark}->B.enabled = true\n"
        f"topics = {fresh_topic}\nreplication.factor = 1\n"
    )
    produce(source_cluster, fresh_topic, [Outgoing(value=b"%d" % n) for n in range(50)])
    with (
        hosts("strict") as (host,),
        host.reaches(source_cluster.bootstrap),
        strict(host, target_cluster.bootstrap) as broker,
        Driver(file, listen=PAGE, host=host) as mirror,
    ):
        eventually(lambda: mirror.state.records == 50)
        broker.opened.add(remote)
        produce(source_cluster, fresh_topic, [Outgoing(value=b"%d" % n) for n in range(50, 60)])
        eventually(lambda: len(broker.refused) >= 3)
        told = host.within(lambda: ask(mirror.served(), "/api/v1/flows", timeout_s=60))
        broker.opened.clear()
        eventually(lambda: mirror.state.records == 60)
    assert "FAILED" not in told.json["flows"][0]["state"]
    assert set(broker.refused) == {(TopicPartition(remote, 0), 50)}
    found = [int(one.value or b"") for one in read_all(target_cluster, remote)]
    assert found == list(range(60))


def test_broker_that_opened_its_log_just_now_is_tried_until_it_takes_any_sequence(
    target_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AutoMQ rejects sequences other than 0 for two minutes after it has opened a log. The probe is
    repeated until then; a broker that still rejects them lacks the capability.
    """
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def opened(until: float, code: int) -> Capabilities:
        nonlocal now
        now = 0.0

        def produce(client: ClusterClient, tp: TopicPartition, batch: bytearray) -> int:
            if read_header(memoryview(batch)).base_sequence and now < until:
                raise error_for(code, cluster="t", doing="appending")
            return produce_batch(client, tp, batch)

        monkeypatch.setattr("twinlog.survey.capabilities.produce_batch", produce)
        patience = Patience(backoff=HURRIED.backoff, clock=lambda: now, sleep=sleep)
        with ClusterClient(settings_for(target_cluster.bootstrap), patience=patience) as client:
            ensure_probe_topic(client, 1)
            return probe(client)

    assert opened(120.0, OUT_OF_ORDER_SEQUENCE_NUMBER).missing == ()
    assert 120.0 <= now < LOG_OPENED_S
    lacks = ("any_first_sequence", "repeat_recognised", "header_kept", "producers_listed")
    found = opened(math.inf, OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert set(found.missing) >= set(lacks)
    assert found.guarantee == "at least once"
    assert LOG_OPENED_S - 1 < now < LOG_OPENED_S
    assert opened(math.inf, UNKNOWN_PRODUCER_ID).guarantee == "at least once"
    assert now == 0.0, "a broker before 2.5 says so at once"


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ([DESCRIBE_PRODUCERS], ("producers_listed",)),
        ([OFFSET_FOR_LEADER_EPOCH], ("epoch_end",)),
        ([DESCRIBE_PRODUCERS, OFFSET_FOR_LEADER_EPOCH], ("producers_listed", "epoch_end")),
    ],
)
def test_broker_without_a_request_is_exact_while_it_remembers_the_producer_id(
    target_cluster: LocalCluster, keys: list[int], missing: tuple[str, ...]
) -> None:
    bootstrap = target_cluster.bootstrap

    def tried() -> Capabilities:
        with ClusterClient(settings_for(bootstrap), patience=HURRIED) as client:
            ensure_probe_topic(client, 1)
            return probe(client)

    with hosts("behind") as (host,), lacking(host, bootstrap, *keys):
        found = host.within(tried)
    assert found.missing == missing
    assert found.guarantee == "exact while known"
    assert tried().missing == ()
