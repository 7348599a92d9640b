"""Measures the round-trip time of a small request to each broker."""

from __future__ import annotations

import time
from typing import Final

from kafka.protocol.metadata import MetadataRequest

from twinlog.cluster.client import METADATA_WITHOUT_CREATION, ClusterClient
from twinlog.errors import Disconnected, Unreachable

TIMES: Final = 5


def round_trips_ms(client: ClusterClient) -> dict[int, float]:
    """Return the shortest of some round-trip times for each broker, which is the least affected by
    the broker's load.

    Brokers that do not respond are left out. Raises TwinlogError if none responds.
    """
    out: dict[int, float] = {}
    for node in client.metadata([]).brokers:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            # the first request opens the connection
            client.attempt(node, request, minimum=METADATA_WITHOUT_CREATION)
            out[node] = min(_measure(client, node, request) for _ in range(TIMES))
        except (Disconnected, Unreachable):
            continue
    return out


def _measure(client: ClusterClient, node: int, request: MetadataRequest) -> float:
    began = time.monotonic()
    client.attempt(node, request, minimum=METADATA_WITHOUT_CREATION)
    return (time.monotonic() - began) * 1000
