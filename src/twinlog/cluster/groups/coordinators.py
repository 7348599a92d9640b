"""Sends requests about groups to their coordinators: one per broker, repeated if a coordinator has
moved.

Coordinators are stored between calls. Listing groups also finds coordinators, because each broker
lists the groups that it coordinates. Only coordinators that are not stored are looked up, because a
lookup has a side effect. If a cluster has no offsets topic, the brokers create it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest

from twinlog.cluster.client import ClusterClient
from twinlog.errors import BrokerRefused, ClusterError, Disconnected, TwinlogError, Unreachable
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    TOPIC_AUTHORIZATION_FAILED,
    error_for,
)

T = TypeVar("T")

Answers: TypeAlias = Mapping[str, T | TwinlogError]
Ask: TypeAlias = Callable[[int, Sequence[str]], Answers[T]]
"""A function that queries one broker once about groups that it coordinates."""

FIND_MANY: Final = 4
"""The first version of FindCoordinator for many groups (Kafka 3.0, KIP-699)."""

WITHOUT_SHARES: Final = 5
GROUP: Final = 0
"""The key type of a group."""

MOVED: Final = (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS)


class Coordinators:
    """The coordinators of one cluster's groups. Not thread-safe, like the client that it uses."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self._nodes: dict[str, int] = {}

    def learn(self, group: str, node: int) -> None:
        """Store the node of the broker that has listed the group, and so coordinates it."""
        self._nodes[group] = node

    def ask(
        self,
        groups: Iterable[str],
        ask: Ask[T],
        *,
        doing: str,
    ) -> dict[str, T | TwinlogError]:
        """Call `ask` for each coordinator, and return one result or error for each group. Raises an
        error only if no broker can be reached.

        `doing` begins an error message about a group, for example "reading offsets of".
        """
        deadline = self.client.deadline()
        retriable = self.client.retriable_now()
        out: dict[str, T | TwinlogError] = {}
        pending = list(dict.fromkeys(groups))
        failures = 0
        while pending:
            by_node, failed = self._by_node(pending, doing)
            for node, names in by_node.items():
                try:
                    answers = ask(node, names)
                except (Unreachable, Disconnected) as broken:
                    answers = dict.fromkeys(names, broken)
                failed |= {g: a for g, a in answers.items() if isinstance(a, TwinlogError)}
                out |= {g: a for g, a in answers.items() if not isinstance(a, TwinlogError)}
            for group, error in failed.items():
                if is_moved(error):
                    self._nodes.pop(group, None)
            pending = [group for group, error in failed.items() if retriable(error)]
            out.update(failed)
            failures += 1
            if pending and not self.client.patience.pause(failures, deadline):
                break
        return out

    def _by_node(
        self, groups: Iterable[str], doing: str
    ) -> tuple[dict[int, list[str]], dict[str, TwinlogError]]:
        known = list(groups)
        failed: dict[str, TwinlogError] = {}
        unknown = [group for group in known if group not in self._nodes]
        if unknown:
            for group, node in self._find(unknown, doing).items():
                if isinstance(node, TwinlogError):
                    failed[group] = node
                else:
                    self._nodes[group] = node
        by_node: dict[int, list[str]] = {}
        for group in known:
            if group in self._nodes:
                by_node.setdefault(self._nodes[group], []).append(group)
        return by_node, failed

    def _find(self, groups: Sequence[str], doing: str) -> dict[str, int | TwinlogError]:
        version = self.client.connection_to(None).api_versions.get(
            FindCoordinatorRequest.API_KEY, (0, 0)
        )[1]
        if version >= FIND_MANY:
            request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=list(groups))
            answer = self.client.send(None, request, minimum=FIND_MANY, maximum=WITHOUT_SHARES)
            coordinators = [
                (str(coordinator.key), coordinator) for coordinator in answer.coordinators
            ]
        else:
            coordinators = []
            for group in groups:
                request = FindCoordinatorRequest(key=group, key_type=GROUP)
                coordinators.append((group, self.client.send(None, request, maximum=FIND_MANY - 1)))
        out: dict[str, int | TwinlogError] = {}
        for group, coordinator in coordinators:
            code = int(coordinator.error_code)
            out[group] = int(coordinator.node_id) if not code else self.error(code, doing, group)
        return out

    def error(
        self,
        code: int,
        doing: str,
        group: str,
        right: str = "DESCRIBE",
        tp: TopicPartition | None = None,
    ) -> ClusterError:
        """Return the error for the error code of a group, or of its offset in a partition `tp`.
        `right` is the permission that was needed.
        """
        what = f"group {group}"
        if tp is not None and code == TOPIC_AUTHORIZATION_FAILED:
            what = f"topic {tp.topic}"
        return error_for(
            code,
            cluster=self.client.alias,
            doing=f"{doing} group {group}",
            acl=f"{right} on {what}",
        )


def is_moved(error: TwinlogError) -> bool:
    """Return True if the coordinator must be looked up again because of this error."""
    if isinstance(error, Unreachable | Disconnected):
        return True
    return isinstance(error, BrokerRefused) and error.kafka_error in MOVED
