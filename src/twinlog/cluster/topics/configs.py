"""Reads the configs of topics and brokers, and changes single configs of topics without resetting
the other ones (KIP-339). `may_lack_offsets` finds topics in whose logs some offsets might be
missing, and `may_be_tiered` topics that might store records outside the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.protocol import Message
from twinlog.cluster.net.retry import is_retriable
from twinlog.errors import Disconnected, TwinlogError, Unreachable
from twinlog.model import batched
from twinlog.wire.error_codes import error_for
from twinlog.wire.topic_settings import ConfigEntry

TOPIC: Final = 2
BROKER: Final = 4

WITH_SOURCE: Final = 1
"""The first version of DescribeConfigs that returns the source of each value (Kafka 1.1)."""

TOPICS_PER_REQUEST: Final = 500
"""Number of topics per DescribeConfigs. With about 35 configs each, a response has about 2 MB."""


Configs = list[ConfigEntry]


def describe_topic_configs(
    client: ClusterClient, topics: Iterable[str]
) -> dict[str, Configs | TwinlogError]:
    """Return all configs of each topic, or the error that the cluster returned for it."""

    def ask(pending: Sequence[str]) -> Any:
        return client.attempt(None, _request(TOPIC, pending, None), minimum=WITH_SOURCE).results

    described = _for_each_topic(
        client,
        batched(list(dict.fromkeys(topics)), TOPICS_PER_REQUEST),
        ask,
        doing="describing",
        right="DESCRIBE_CONFIGS",
    )
    return {
        name: result if isinstance(result, TwinlogError) else _entries(result)
        for name, result in described.items()
    }


def _for_each_topic(
    client: ClusterClient,
    portions: Iterable[Sequence[str]],
    ask: Callable[[Sequence[str]], Sequence[Message]],
    *,
    doing: str,
    right: str,
) -> dict[str, Message | TwinlogError]:
    """Return the result of `ask` for each topic, or the topic's error. Each of `portions` has the
    topics of one request.

    `ask` is repeated for topics with a retriable error. A missing topic is not retried, because it
    was deleted after callers had listed it. `doing` and `right` describe the request in error
    messages.
    """
    done: dict[str, Message | TwinlogError] = {}

    def try_once(names: Sequence[str]) -> None:
        waiting: TwinlogError | None = None
        for result in ask([name for name in names if name not in done]):
            name = str(result.resource_name)
            if not result.error_code:
                done[name] = result
                continue
            error = error_for(
                result.error_code,
                cluster=client.alias,
                doing=f"{doing} the configs of topic {name}",
                acl=f"{right} on topic {name}",
                detail=result.error_message,
            )
            if is_retriable(error) and error.code != "TOPIC_MISSING":
                waiting = waiting or error
            else:
                done[name] = error
        if waiting is not None:
            raise waiting

    for names in portions:
        client.retrying(partial(try_once, names))
    return done


def describe_broker_configs(
    client: ClusterClient, names: Sequence[str]
) -> dict[int, dict[str, ConfigEntry]]:
    """Return these configs of each live broker, by node. Raises Unauthorized without
    DESCRIBE_CONFIGS on the cluster.

    Every broker is queried, because each broker has its own configuration file, and callers need
    the strictest value.
    """
    by_node = {node: _describe_broker(client, node, names) for node in client.metadata([]).brokers}
    return {node: configs for node, configs in by_node.items() if configs is not None}


def _describe_broker(
    client: ClusterClient, node: int, names: Sequence[str]
) -> dict[str, ConfigEntry] | None:
    """Return the configs of one broker, or None if it does not respond and is no longer alive."""

    def ask() -> dict[str, ConfigEntry] | None:
        request = _request(BROKER, [str(node)], names)
        try:
            result = client.attempt(node, request, minimum=WITH_SOURCE).results[0]
        except (Disconnected, Unreachable):
            if node in client.metadata([]).brokers:
                raise
            return None
        doing = f"describing the configs of broker {node}"
        client.check(result, doing, acl="DESCRIBE_CONFIGS on the cluster")
        return {entry.name: entry for entry in _entries(result)}

    return client.retrying(ask)


def _request(kind: int, resources: Sequence[str], keys: Sequence[str] | None) -> Message:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
            for name in resources
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def _entries(result: Message) -> Configs:
    return [
        ConfigEntry(
            name=str(entry.name),
            value=entry.value,
            source=int(entry.config_source),
            is_read_only=bool(entry.read_only),
            is_sensitive=bool(entry.is_sensitive),
        )
        for entry in result.configs
    ]


SET: Final = 0
DELETE: Final = 1

CHANGED_PER_REQUEST: Final = 100
"""Number of topics whose configs are changed per request. The controller has to write each change
to its log before the request times out.
"""


class ConfigChange(NamedTuple):
    """A new value of one config of a topic. None removes the topic's own value."""

    name: str
    value: str | None


def alter_topic_configs(
    client: ClusterClient, changes: Mapping[str, Sequence[ConfigChange]]
) -> dict[str, TwinlogError]:
    """Apply the changes, for each topic either all or none. Returns the errors by topic.

    Retries after a lost connection are harmless, because they set the same values again.
    """

    def ask(pending: Sequence[str]) -> Any:
        return client.attempt(
            None, _changes_request({name: changes[name] for name in pending})
        ).responses

    portions = batched(list(changes), CHANGED_PER_REQUEST)
    done = _for_each_topic(client, portions, ask, doing="changing", right="ALTER_CONFIGS")
    return {name: error for name, error in done.items() if isinstance(error, TwinlogError)}


def _changes_request(changes: Mapping[str, Sequence[ConfigChange]]) -> Message:
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


def may_lack_offsets(client: ClusterClient, topics: set[str]) -> set[str]:
    """Return the topics that are compacted, and those whose configs the user is not permitted to
    read.

    In all other topics, each offset from the log start to the log end is a record, an aborted
    record or a transaction marker. A fetch returns all three.
    """
    return _without(client, topics, "cleanup.policy", "delete")


def may_be_tiered(client: ClusterClient, topics: set[str]) -> set[str]:
    """Return the topics that might use remote storage (KIP-405): all of `topics` except those for
    which it is known to be disabled.
    """
    return _without(client, topics, "remote.storage.enable", "false")


def _without(client: ClusterClient, topics: set[str], name: str, value: str) -> set[str]:
    return {
        topic
        for topic, configs in describe_topic_configs(client, topics).items()
        if isinstance(configs, TwinlogError)
        or not any((entry.name, entry.value) == (name, value) for entry in configs)
    }
