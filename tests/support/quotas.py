"""Quotas that a broker keeps for one client id."""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.admin import AlterClientQuotasRequest

from twinlog.cluster.client import ClusterClient


def quota(client: ClusterClient, client_id: str, values: Mapping[str, float | None]) -> None:
    """Set quotas by their keys, as `producer_byte_rate`; None lifts one."""
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
                ops=[
                    entry.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    answer = client.send(None, request)
    assert not answer.entries[0].error_code, answer
