"""H13: what a stock broker can do is found by trying, on one topic that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.support.hosts import hosts
from tests.support.lacking import lacking
from tests.support.settings import HURRIED, settings_for
from tests.support.topics import end_offsets, topic_names
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.mirror.names.naming import PROBE_TOPIC
from twinlog.sandbox import LocalCluster
from twinlog.survey.capabilities import Capabilities, ensure_probe_topic, probe
from twinlog.wire.error_codes import error_for

pytestmark = [pytest.mark.faults, pytest.mark.broker]

NOT_LEADER: Final = 6
INVALID_RECORD: Final = 87
DESCRIBE_PRODUCERS: Final = 61
OFFSET_FOR_LEADER_EPOCH: Final = 23


@pytest.fixture
def client(target_cluster: LocalCluster) -> Iterator[ClusterClient]:
    with ClusterClient(settings_for(target_cluster.bootstrap), patience=HURRIED) as made:
        yield made


@pytest.mark.witness("H13: what a stock broker can do is found by trying")
def test_stock_broker_can_do_everything(
    target_cluster: LocalCluster, client: ClusterClient
) -> None:
    for _ in range(2):
        ensure_probe_topic(client, 1)
        before = end_offsets(target_cluster, PROBE_TOPIC)[0]
        found = probe(client)
        assert found.missing == ()
        assert found.guarantee == "exact"
        # the repeated batch and the one behind the gap were not appended
        assert end_offsets(target_cluster, PROBE_TOPIC)[0] == before + 1
    probes = [name for name in topic_names(target_cluster) if "probe" in name]
    assert probes == [PROBE_TOPIC], "one topic, however often"


def test_only_the_refusal_of_a_gap_counts_as_one(
    client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that moves is asked again; another error proves nothing."""
    ensure_probe_topic(client, 1)
    sent: list[int] = []

    def produce(*given: Any) -> int:
        sent.append(len(sent))
        if len(sent) % 2:
            raise error_for(NOT_LEADER, cluster="t", doing="appending")
        return produce_batch(*given)

    monkeypatch.setattr("twinlog.survey.capabilities.produce_batch", produce)
    assert probe(client).missing == ()
    assert len(sent) == 6

    def refuse(*given: Any) -> int:
        sent.append(len(sent))
        if len(sent) == 9:
            raise error_for(INVALID_RECORD, cluster="t", doing="appending")
        return produce_batch(*given)

    monkeypatch.setattr("twinlog.survey.capabilities.produce_batch", refuse)
    assert probe(client).missing == ("gap_refused",)


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ([DESCRIBE_PRODUCERS], ("producers_listed",)),
        ([OFFSET_FOR_LEADER_EPOCH], ("epoch_end",)),
        ([DESCRIBE_PRODUCERS, OFFSET_FOR_LEADER_EPOCH], ("producers_listed", "epoch_end")),
    ],
)
def test_broker_that_lacks_a_request_is_exact_while_it_knows_us(
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
