"""The clusters of several flows; each is queried once to find out whether it responds."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from twinlog.cluster.client import REFUSED_FOR_S, ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import TwinlogError


class AskedClusters:
    """Clients and problems by cluster. An unreachable cluster is waited for only once."""

    def __init__(self, closing: ExitStack, gives_up_s: float) -> None:
        self._closing, self._gives_up_s = closing, gives_up_s
        self._problems: dict[ClusterSettings, TwinlogError | None] = {}
        self._clients: dict[ClusterSettings, ClusterClient] = {}

    def client(self, settings: ClusterSettings) -> ClusterClient:
        if settings not in self._clients:
            self._clients[settings] = self._closing.enter_context(
                ClusterClient(settings, api_timeout_s=self._gives_up_s, refused_s=REFUSED_FOR_S)
            )
        return self._clients[settings]

    def problem(self, settings: ClusterSettings) -> TwinlogError | None:
        return self._problems[settings]

    def ask(self, wanted: Iterable[ClusterSettings]) -> None:
        """Query whether they respond, in parallel, so that unreachable ones time out together."""
        new = [self.client(one) for one in dict.fromkeys(wanted) if one not in self._problems]
        with ThreadPoolExecutor(max(len(new), 1)) as pool:
            for client, problem in zip(new, pool.map(_why_not, new), strict=True):
                self._problems[client.settings] = problem


def _why_not(client: ClusterClient) -> TwinlogError | None:
    try:
        client.metadata([])
    except TwinlogError as error:
        return error
    return None
