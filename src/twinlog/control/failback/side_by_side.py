"""Searches in the logs of many partitions, side by side: one request per broker for all of them.

A search reads a batch of its partition, and where it reads next depends on that batch. One
partition after the other, this is a round trip per batch. So all searches are run in rounds:

    run each search with what was read for it so far
    -> it ends, or it asks for a batch that was not read yet (`Unread`)
    -> one Fetch per broker for all batches that were asked for
    -> the next round runs the searches that did not end again, from their beginning

A search must therefore change nothing, and depend on nothing but its reads.
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
"""Bytes that the searches of one round ask for; further searches wait for the next round."""


class LogReads:
    """Reads of one cluster, each by a request of its own."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client

    def read(
        self, tp: TopicPartition, offset: int, most_bytes: int
    ) -> FetchedRecords | TwinlogError:
        """Return batches from that offset on, of about `most_bytes`, or the error."""
        return fetch_records(self.client, {tp: (offset, most_bytes)})[tp]


class Unread(Exception):
    """A search asks for a batch that was not read yet."""

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
    """Return what each search found, or the TwinlogError that it raised. No two searches may read
    the same partition.
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
