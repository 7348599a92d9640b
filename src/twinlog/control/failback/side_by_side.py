"""Searches the logs of many partitions in parallel, with one request per broker for all of them.

A search reads a batch of its partition, and the next offset that it reads depends on that batch.
Searching the partitions one after another would take a round trip per batch. So all searches run in
rounds:

    run each search with the batches that were read for it so far
    -> it ends, or it needs a batch that was not read yet (`Unread`)
    -> one Fetch per broker for all of these batches
    -> the next round runs the searches that did not end again, from their beginning

So a search must have no side effects, and must depend only on its reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, FetchFrom, fetch_records
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition

K = TypeVar("K")
T = TypeVar("T")

MOST_BYTES: Final = 32 << 20
"""Limit of the bytes requested in one round; further searches wait for the next round."""


class LogReads:
    """Reads batches of one cluster, with one request for each read."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client

    def read(
        self, tp: TopicPartition, offset: int, most_bytes: int
    ) -> FetchedRecords | TwinlogError:
        """Return batches from that offset on, of about `most_bytes`, or the error."""
        return fetch_records(self.client, {tp: (offset, most_bytes)})[tp]


class Unread(Exception):
    """Raised if a search needs a batch that was not read yet."""

    def __init__(self, reads: RoundReads, tp: TopicPartition, wanted: FetchFrom) -> None:
        super().__init__(tp, wanted)
        self.reads, self.tp, self.wanted = reads, tp, wanted


class RoundReads(LogReads):
    """The reads of one cluster that one search has got so far."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client)
        self.found: dict[tuple[TopicPartition, FetchFrom], FetchedRecords | TwinlogError] = {}

    def read(
        self, tp: TopicPartition, offset: int, most_bytes: int
    ) -> FetchedRecords | TwinlogError:
        wanted = offset, most_bytes
        if (tp, wanted) not in self.found:
            raise Unread(self, tp, wanted)
        return self.found[tp, wanted]


class BothReads(NamedTuple):
    """The reads of both clusters for one search."""

    source: LogReads
    target: LogReads


def side_by_side(
    searches: Mapping[K, Callable[[BothReads], T]], source: ClusterClient, target: ClusterClient
) -> dict[K, T | TwinlogError]:
    """Return the result of each search, or the TwinlogError that it raised.

    Two searches must not read the same partition.
    """
    sides = {key: BothReads(RoundReads(source), RoundReads(target)) for key in searches}
    out: dict[K, T | TwinlogError] = {}
    while len(out) < len(searches):
        missing: list[Unread] = []
        for key, search in searches.items():
            if key in out:
                continue
            if sum(one.wanted[1] for one in missing) >= MOST_BYTES:
                break
            try:
                out[key] = search(sides[key])
            except Unread as unread:
                missing.append(unread)
                continue
            except TwinlogError as error:
                out[key] = error
            del sides[key]  # its batches
        _read(missing)
    return out


def _read(missing: list[Unread]) -> None:
    for client in {id(one.reads.client): one.reads.client for one in missing}.values():
        here = [one for one in missing if one.reads.client is client]
        answers = fetch_records(client, {one.tp: one.wanted for one in here})
        for one in here:
            one.reads.found[one.tp, one.wanted] = answers[one.tp]
