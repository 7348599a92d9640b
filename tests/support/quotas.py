"""Sets the quotas of a client ID or of a user on a broker. They are in effect when the call
returns.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.eventually import eventually
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.quotas import CLIENT_ID, Entity, client_quotas, set_quotas

USER = "user"


def quota(client: ClusterClient, client_id: str, values: Mapping[str, float | None]) -> None:
    """Set a client ID's quotas by their keys, such as `producer_byte_rate`. The value None removes
    a quota.
    """
    _set(client, ((CLIENT_ID, client_id),), values)


def user_quota(client: ClusterClient, user: str, values: Mapping[str, float | None]) -> None:
    """Set a user's quotas, which apply to all of its client IDs."""
    _set(client, ((USER, user),), values)


def _set(client: ClusterClient, entity: Entity, values: Mapping[str, float | None]) -> None:
    set_quotas(client, entity, values)

    def in_force() -> bool:
        found = {one.key: one.value for one in client_quotas(client, entity)}
        return all(found.get(key) == value for key, value in values.items())

    eventually(in_force, what="the quota")
