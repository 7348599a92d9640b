"""The API versions and features (KIP-584) that each broker of a cluster reports.

This is for the support bundle, which is read by people. No code decides by these numbers or by a
broker's release, because other implementations of the protocol report what they like. Twinlog finds
out what a broker can do in two other ways:

- *A request.* A connection knows the API versions of its broker. If none of them fits, the request
  raises Unsupported before it is sent (`net.connection`), and the caller does without.
- *A probe.* For an exact copy it is not enough that a broker accepts a request: it must also
  behave like Apache Kafka. `survey.capabilities` tests that on the target, with real batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net import protocol
from twinlog.errors import ClusterError

WITH_FEATURES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVersions:
    """What one broker reports. If it could not be queried, `problem` has the reason."""

    node: int
    host: str
    port: int
    rack: str | None
    apis: Mapping[str, tuple[int, int]]
    """Lowest and highest version by API name. Empty if the broker could not be queried."""
    features: Mapping[str, int]
    """Finalized levels, including `metadata.version`. Empty before Kafka 3."""
    problem: str = ""


def broker_versions(client: ClusterClient) -> Iterator[BrokerVersions]:
    """Yield what each broker reports. Raises ClusterError if no broker responds."""
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
        yield BrokerVersions(
            node=broker.node,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            apis=apis,
            features=features,
            problem=problem,
        )


def _features(client: ClusterClient, node: int, offered: int) -> dict[str, int]:
    if offered < WITH_FEATURES:
        return {}
    request = protocol.api_versions_request(WITH_FEATURES)
    answer = client.attempt(node, request, minimum=WITH_FEATURES, maximum=WITH_FEATURES)
    return {
        feature.name: int(feature.max_version_level) for feature in answer.finalized_features or ()
    }
