"""The capabilities that each broker of a cluster reports: API versions and features (KIP-584)."""

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
    """One broker. `apis` is empty if it could not be queried, and `problem` has the reason."""

    node: int
    host: str
    port: int
    rack: str | None
    apis: Mapping[str, tuple[int, int]]
    """Lowest and highest version, by API name."""
    features: Mapping[str, int]
    """Finalized levels, including `metadata.version`; empty before Kafka 3."""
    problem: str = ""


def broker_versions(client: ClusterClient) -> Iterator[BrokerVersions]:
    """Yield every broker of the cluster. Raises ClusterError if no broker can be queried."""
    for broker in client.metadata([]).brokers.values():
        apis: dict[str, tuple[int, int]] = {}
        features: dict[str, int] = {}
        problem = ""
        try:
            known = client.connection_to(broker.node).api_versions
            apis = {protocol.api_name(key): known[key] for key in sorted(known)}
            features = _features(client, broker.node, known[protocol.API_VERSIONS][1])
        except ClusterError as error:
            problem = str(error)  # the other brokers are still useful to know
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
    return {one.name: int(one.max_version_level) for one in answer.finalized_features or ()}
