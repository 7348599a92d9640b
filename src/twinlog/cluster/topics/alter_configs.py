"""Changes single configs of topics and leaves all others unchanged (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.protocol import Message
from twinlog.cluster.topics.configs import TOPIC, of_each_topic
from twinlog.errors import TwinlogError

SET: Final = 0
DELETE: Final = 1

TOPICS_PER_REQUEST: Final = 100
"""A controller writes each change to its log before it responds, so fewer fit into its time."""


class ConfigChange(NamedTuple):
    """A new value of one config, or None to remove the topic's own value."""

    name: str
    value: str | None


def alter_topic_configs(
    client: ClusterClient, changes: Mapping[str, Sequence[ConfigChange]]
) -> dict[str, TwinlogError]:
    """Apply the changes, for each topic all or none of them. Returns the errors by topic.

    Retries after a lost connection are harmless: they set the same values again.
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
    def ask(pending: Sequence[str]) -> Any:
        return client.attempt(None, _request({name: changes[name] for name in pending})).responses

    done = of_each_topic(client, changes, ask, doing="changing", right="ALTER_CONFIGS")
    return {name: error for name, error in done.items() if isinstance(error, TwinlogError)}


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
                    for change in entries
                ],
            )
            for topic, entries in changes.items()
        ],
        validate_only=False,
    )
