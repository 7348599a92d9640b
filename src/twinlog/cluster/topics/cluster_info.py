"""Properties of a cluster as a whole: its ID, its live brokers, their versions, round-trip times
and two limits, and the user's permissions on the cluster.

**Versions** (`broker_versions`) are the API versions and features (KIP-584) that each broker
reports.

The support bundle contains them for its human readers. No code decides by these numbers or by a
broker's release, because other implementations of the protocol report arbitrary ones. Twinlog finds
out what a broker supports in two other ways:

- *A request.* A connection knows the API versions of its broker. If none of them fits, Unsupported
  is raised before the request is sent (`net.connection`), and the caller continues without the
  request.
- *A probe.* An exact copy needs more than brokers that accept a request. They must also behave like
  Apache Kafka. `survey.capabilities` tests that on the target, with real batches.

**Limits.** `producer_expiry` returns how long brokers remember a producer ID after its last record.
A copy is exactly once only while the target remembers the copy's producer ID, so old records need
care (`lane.late_requests`). `longest_transaction` returns the maximum duration of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from twinlog.cluster.client import METADATA_WITHOUT_CREATION, ClusterClient
from twinlog.cluster.net import protocol
from twinlog.cluster.net.metadata import Broker, Operation, operations
from twinlog.cluster.topics.configs import describe_broker_configs
from twinlog.errors import ClusterError, Disconnected, Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster's ID and brokers, and the operations on it that Twinlog's user is permitted."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    operations: frozenset[Operation] | None
    """The permitted operations, or None if the brokers do not report them."""


def describe_cluster(client: ClusterClient) -> ClusterInfo:
    """Return the cluster's ID, live brokers and permissions (KIP-700, brokers since 2.8)."""

    def ask() -> ClusterInfo:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = client.attempt(None, request, maximum=1)
        client.check(answer, "describing the cluster")
        brokers = sorted(answer.brokers, key=lambda broker: int(broker.broker_id))
        return ClusterInfo(
            cluster_id=str(answer.cluster_id),
            brokers=tuple(
                Broker(node=int(b.broker_id), host=str(b.host), port=int(b.port), rack=b.rack)
                for b in brokers
            ),
            operations=operations(answer.authorized_operations),
        )

    return client.retrying(ask)


WITH_FEATURES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVersions(Broker):
    """Versions that one broker reports. If the query failed, `problem` has the reason."""

    apis: Mapping[str, tuple[int, int]]
    """Lowest and highest version of each API, by name. Empty if the query failed."""
    features: Mapping[str, int]
    """Finalized levels of features, including `metadata.version`. Empty before Kafka 3."""
    problem: str = ""


def broker_versions(client: ClusterClient) -> Iterator[BrokerVersions]:
    """Yield the versions of each live broker. Raises ClusterError if no broker responds."""
    for broker in client.metadata([]).brokers.values():
        apis: dict[str, tuple[int, int]] = {}
        features: dict[str, int] = {}
        problem = ""
        try:
            known = client.connection_to(broker.node).api_versions
            apis = {protocol.api_name(key): known[key] for key in sorted(known)}
            features = _features(client, broker.node, known[protocol.API_VERSIONS][1])
        except ClusterError as error:
            problem = str(error)  # the reports of the other brokers are still useful
        yield BrokerVersions(**asdict(broker), apis=apis, features=features, problem=problem)


def _features(client: ClusterClient, node: int, offered: int) -> dict[str, int]:
    if offered < WITH_FEATURES:
        return {}
    request = protocol.api_versions_request()
    answer = client.attempt(node, request, minimum=WITH_FEATURES, maximum=WITH_FEATURES)
    return {
        feature.name: int(feature.max_version_level) for feature in answer.finalized_features or ()
    }


ROUND_TRIPS: Final = 5


def round_trips_ms(client: ClusterClient) -> dict[int, float]:
    """Return the shortest of ROUND_TRIPS response times for each broker, in ms. The shortest one is
    the least affected by the broker's load.

    Brokers that do not respond are left out. Raises TwinlogError if none responds.
    """
    out: dict[int, float] = {}
    for node in client.metadata([]).brokers:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            # the first request opens the connection
            client.attempt(node, request, minimum=METADATA_WITHOUT_CREATION)
            out[node] = min(_measure(client, node, request) for _ in range(ROUND_TRIPS))
        except (Disconnected, Unreachable):
            continue
    return out


def _measure(client: ClusterClient, node: int, request: MetadataRequest) -> float:
    began = time.monotonic()
    client.attempt(node, request, minimum=METADATA_WITHOUT_CREATION)
    return (time.monotonic() - began) * 1000


EXPIRY_CONFIG: Final = "producer.id.expiration.ms"
OLD_EXPIRY_CONFIG: Final = "transactional.id.expiration.ms"
"""The config that set the expiry of producer IDs before Kafka 3.4."""
TRANSACTION_CONFIG: Final = "transaction.max.timeout.ms"


def producer_expiry(client: ClusterClient) -> int | None:
    """Return the shortest expiry of producer IDs on any broker in ms, or None if none reports it.

    The value can change while brokers run. Raises Unauthorized without DESCRIBE_CONFIGS on the
    cluster.
    """
    return min(_values(client, EXPIRY_CONFIG, OLD_EXPIRY_CONFIG), default=None)


def longest_transaction(client: ClusterClient) -> int | None:
    """Return the longest transaction timeout that any broker allows in ms, or None if no broker
    reports it. Raises Unauthorized without DESCRIBE_CONFIGS on the cluster.
    """
    return max(_values(client, TRANSACTION_CONFIG), default=None)


def _values(client: ClusterClient, *names: str) -> Iterator[int]:
    """Yield a value for each broker: that of the first config in `names` that the broker has."""
    for configs in describe_broker_configs(client, names).values():
        entry = next((configs[name] for name in names if name in configs), None)
        if entry is not None and entry.value:
            yield int(entry.value)
