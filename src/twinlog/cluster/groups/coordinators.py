"""Questions about groups go to their coordinators: a request per broker, again where one moved.

Who coordinates a group is remembered between calls, and learnt for nothing where groups are listed:
each broker lists those that it coordinates. Looking a coordinator up makes the brokers create their
offsets topic where there is none yet, so it is done only for groups that are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest

from twinlog.cluster.client import ClusterClient
from twinlog.errors import BrokerRefused, ClusterError, Disconnected, TwinlogError, Unreachable
from twinlog.wire.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    error_for,
)

T = TypeVar("T")

Answers: TypeAlias = Mapping[str, T | TwinlogError]
Ask: TypeAlias = Callable[[int, Sequence[str]], Answers[T]]
"""Asks one broker, once, about groups that it coordinates."""

FIND_MANY: Final = 4
"""FindCoordinator since Kafka 3.0 looks up many groups at once (KIP-699)."""

WITHOUT_SHARES: Final = 5
GROUP: Final = 0
"""The kind of key that names a group."""

MOVED: Final = (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS)


class Coordinators:
    """Who coordinates which group of one cluster; for one thread, as its client."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self._nodes: dict[str, int] = {}

    def learn(self, group: str, node: int) -> None:
        """A broker listed the group as its own."""
        self._nodes[group] = node

    def ask(
        self,
        groups: Iterable[str],
        ask: Ask[T],
        *,
        doing: str,
        timeout_s: float | None = None,
    ) -> dict[str, T | TwinlogError]:
        """One answer or error for each group; raises only where no broker can be reached.

        `doing` says what is asked, for messages: "reading offsets of".
        """
        deadline = self.client.deadline(timeout_s)
        retriable = self.client.retriable_now()
        out: dict[str, T | TwinlogError] = {}
        pending = list(dict.fromkeys(groups))
        failures = 0
        while pending:
            by_node, failed = self._by_node(pending, doing)
            for node, some in by_node.items():
                try:
                    answers = ask(node, some)
                except (Unreachable, Disconnected) as broken:
                    answers = dict.fromkeys(some, broken)
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
            for group, found in self._find(unknown, doing).items():
                if isinstance(found, TwinlogError):
                    failed[group] = found
                else:
                    self._nodes[group] = found
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
            found = [(str(one.key), one) for one in answer.coordinators]
        else:
            found = []
            for group in groups:
                request = FindCoordinatorRequest(key=group, key_type=GROUP)
                found.append((group, self.client.send(None, request, maximum=FIND_MANY - 1)))
        out: dict[str, int | TwinlogError] = {}
        for group, one in found:
            code = int(one.error_code)
            out[group] = int(one.node_id) if not code else self.error(code, doing, group)
        return out

    def error(self, code: int, doing: str, group: str, right: str = "DESCRIBE") -> ClusterError:
        """What a coordinator refused for a group."""
        return error_for(
            code,
            cluster=self.client.alias,
            doing=f"{doing} group {group}",
            acl=f"{right} on group {group}",
        )


def is_moved(error: TwinlogError) -> bool:
    """Whether the group's coordinator is to be looked up again."""
    if isinstance(error, Unreachable | Disconnected):
        return True
    return isinstance(error, BrokerRefused) and error.kafka_error in MOVED
