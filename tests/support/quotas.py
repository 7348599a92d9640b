"""Quotas that a broker keeps for one client id."""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.quotas import CLIENT_ID, set_quotas


def quota(client: ClusterClient, client_id: str, values: Mapping[str, float | None]) -> None:
    """Set quotas by their keys, as `producer_byte_rate`; None lifts one."""
    set_quotas(client, ((CLIENT_ID, client_id),), values)
