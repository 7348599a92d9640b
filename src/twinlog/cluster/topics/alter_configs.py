"""Changing single configs of topics, with all others left as they are (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.protocol import Message
from twinlog.cluster.net.retry import is_retriable
from twinlog.cluster.topics.configs import TOPIC
from twinlog.errors import TwinlogError
from twinlog.wire.error_codes import error_for

SET: Final = 0
DELETE: Final = 1

TOPICS_PER_REQUEST: Final = 100
"""A controller writes each of them to its log before it answers."""


class ConfigChange(NamedTuple):
    """A new value for one config; None takes the topic's own value away, so that the cluster's
    default holds.
    """

    name: str
    value: str | None


def alter_topic_configs(
    client: ClusterClient, changes: Mapping[str, Sequence[ConfigChange]]
) -> dict[str, TwinlogError]:
    """Carry out all changes of each topic or none of them; the topics that were refused, and why.

    Repeated after a lost connection, which is harmless: a value is set to what it is.
    """
    refused: dict[str, TwinlogError] = {}
    names = list(changes)
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        part = names[start : start + TOPICS_PER_REQUEST]
        refused.update(_alter(client, {name: changes[name] for name in part}))
    return refused


def _alter(
    client: ClusterClient, changes: Mapping[str, Sequence[ConfigChange]]
) -> dict[str, TwinlogError]:
    done: dict[str, TwinlogError | None] = {}

    def ask() -> None:
        pending = {name: some for name, some in changes.items() if name not in done}
        retriable: list[TwinlogError] = []
        for result in client.attempt(None, _request(pending)).responses:
            name = str(result.resource_name)
            if not result.error_code:
                done[name] = None
                continue
            error = error_for(
                result.error_code,
                cluster=client.alias,
                doing=f"changing the configs of topic {name}",
                acl=f"ALTER_CONFIGS on topic {name}",
                detail=result.error_message,
            )
            if is_retriable(error) and error.code != "TOPIC_MISSING":
                retriable.append(error)
            else:
                done[name] = error
        for waiting in retriable:
            raise waiting

    client.retrying(ask)
    return {name: error for name, error in done.items() if error is not None}


def _request(changes: Mapping[str, Sequence[ConfigChange]]) -> Message:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[
                    config(
                        name=change.name,
                        config_operation=DELETE if change.value is None else SET,
                        value=change.value,
                    )
                    for change in some
                ],
            )
            for topic, some in changes.items()
        ],
        validate_only=False,
    )
