"""Leadership of a flow, decided by a log: records of the compacted state topic with one partition.

A claim is a record with the next generation number and the claimant. The first claim of a number in
the log wins, whatever each process read before. So two processes that both consider themselves
leader find out before either sends a batch. Keys contain the claimant, so that compaction keeps
both claims in order. For that reason no claim is written twice (`internal_log.append_once`). A
generation that ended cleanly is closed by a record with another key. One that is not closed may
have lanes that still send. The process that wins a claim removes the claims below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from twinlog.mirror.state.state_row import StateRow, encode_row, read_row, row

WROTE: Final = "wrote"
OF_PRODUCERS: Final = ("generation", "producer", WROTE)
"""Kinds of rows that name a producer ID."""
CLAIMS: Final = ("generation", "closed")
"""Kinds of rows that determine the leader of a flow."""


@row("generation", key=("generation", "claimant"))
class Claim(StateRow, frozen=True, kw_only=True):
    """One generation of one flow."""

    generation: int
    claimant: str
    producer_id: int
    meaning: str
    """Hash of the settings that decide which records the flow writes: filters, isolation, start."""
    host: str
    pid: int
    started_ms: int
    source_cluster_id: str
    target_cluster_id: str


def closing(flow: str, generation: int) -> tuple[bytes, bytes]:
    """Return the record stating that all lanes of this generation have drained."""
    return encode_row(["flow", flow, "closed", generation], {})


def giving_producer(flow: str, number: int, claimant: str, producer_id: int) -> tuple[bytes, bytes]:
    """Return the record that assigns a producer ID to the source partitions of this number
    (`fan_out`).
    """
    key = ["flow", flow, "producer", number, claimant]
    return encode_row(key, {"producer_id": producer_id})


def superseded(
    flow: str, generation: int, records: Iterable[tuple[bytes | None, bytes | None]]
) -> list[tuple[bytes, bytes | None]]:
    """Return the rows that remove the flow's claims below a generation that has won, and the rows
    that closed them. Before them is a row for each producer id that no other row would name then.

    Only the newest claim decides. It is closed only when no request of an earlier generation can
    arrive any more. So earlier claims may be removed at any time, closed or not:

    - the leader dies between these rows: some producer ids are named twice, and the next leader
      removes the rest;
    - a zombie writes the rows late: they are about generations below its own, and so below that of
      its successor;
    - a claimant that was frozen claims a number that was removed: the newest claim is above it;
    - the topic loses its end: the tombstones are after the winning claim, so they are lost first.
    """
    keys: list[bytes] = []
    removed: set[int] = set()
    named: set[int] = set()
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[1] != flow or parts[2] not in (*CLAIMS, WROTE):
            continue
        is_earlier = parts[2] in CLAIMS and parts[3] < generation
        if is_earlier:
            keys.append(key)
        if "producer_id" in fields:
            (removed if is_earlier else named).add(int(fields["producer_id"]))
    wrote = (having_written(flow, one) for one in sorted(removed - named))
    return [*wrote, *((key, None) for key in keys)]


def fan_producers(
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> dict[tuple[str, int], int]:
    """Return the producer IDs by flow and number: the first in the log wins."""
    out: dict[tuple[str, int], int] = {}
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[2] == "producer":
            out.setdefault((parts[1], parts[3]), fields["producer_id"])
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowHistory:
    """The leadership of one flow, by the state topic."""

    latest: Claim | None
    is_closed: bool
    """Whether the latest generation ended cleanly."""


def winning_claims(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, FlowHistory]:
    """Return the history of every flow, from (key, value) in log order."""
    claims: dict[tuple[str, int], Claim] = {}
    closed: set[tuple[str, int]] = set()
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[2] == "closed":
            closed.add((parts[1], parts[3]))
        elif parts[2] == "generation":
            claims.setdefault((parts[1], parts[3]), Claim.decode(parts, fields))
    out: dict[str, FlowHistory] = {}
    for (flow, generation), claim in sorted(claims.items()):
        out[flow] = FlowHistory(latest=claim, is_closed=(flow, generation) in closed)
    return out


def producers_of(flow: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> frozenset[int]:
    """Return every producer ID under which a generation of the flow may have written.

    Producer IDs of partitions that are copied by key are included only if their own rows were lost.
    """
    out = set()
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[1] == flow and parts[2] in ("generation", WROTE):
            out.add(int(fields["producer_id"]))
    return frozenset(out)


def producers_of_others(
    flow: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> frozenset[int]:
    """Return every producer ID under which other Twinlog flows may have written to this cluster."""
    out = set()
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[1] != flow and parts[2] in OF_PRODUCERS:
            out.add(int(fields["producer_id"]))
    return frozenset(out)


def having_written(flow: str, producer_id: int) -> tuple[bytes, bytes]:
    """Return the row stating that the flow has written under this ID.

    It is needed because the claim is gone: a later leader removed it, or the state topic lost it or
    was re-created. The row stays true, so it may be written twice, late, and by a zombie.
    """
    key = ["flow", flow, WROTE, producer_id]
    return encode_row(key, {"producer_id": producer_id})


def producer_of(key: bytes | None, value: bytes | None) -> int | None:
    """Return the producer ID that a row assigns to a flow or to some of its partitions, or None."""
    if key is None or value is None:
        return None
    parts, fields = read_row(key, value)
    return int(fields["producer_id"]) if parts[2] in OF_PRODUCERS else None
