"""Generations: the leadership of a flow, decided by the order of a log.

**Problem.** Two processes may both consider themselves the leader of a flow: a group coordinator
elects them, but a frozen process continues without noticing that its session has ended. If both
started lanes with the same generation, their terms in the offset map would be equal, and a lane of
one leader could overwrite rows of the other leader's lanes.

**Rule.** A claim is a row of the compacted state topic, which has one partition. It contains the
next generation number and the claimant. The first claim of a number in the log wins, whatever each
process read before. So two processes find out which of them leads before either sends a batch:

    offset   key                           value
    40       generation 7, claimant p1     <- wins generation 7
    41       generation 7, claimant p2     <- lost; p2 reads the log to its end, and waits
    55       closed 7                      <- all lanes of generation 7 have drained
    56       generation 8, claimant p2     <- wins; its lanes need not wait for late requests

Keys contain the claimant, so that compaction keeps both claims in order. For that reason no claim
is written twice (`internal_log.append_once`). The process whose claim wins removes the claims of
all earlier generations.

**What a newer generation voids.** It voids the older leadership: the older leader finds the newer
claim and stops (`control.leading.claims`). Rows that its lanes write to the offset map are void
from the newer generation's first row on, partition by partition (`mirror.map.offset_map`). It does
not void requests that lanes of the older generation have already sent, because all generations use
the same producer ID. So unless the older generation was closed, starts of the newer one assume for
a limited time that those requests may arrive (`control.running.giving`). A newer generation voids
no intents, and no records in the logs.

**A process may die at each step**

- *Before its claim is written*: nothing happened.
- *After its claim, before a lane starts*: the generation had no lane. The next leader waits for
  late requests all the same, unless a row states that it is closed.
- *After its lanes have drained, before `closed` is written*: the next leader waits 20 s although
  nothing is in flight.
- *While it removes earlier claims*: the next leader removes the rest (`rows_to_remove`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.state.state_row import Rows, StateRow, encode_row, read_row, read_rows, row

WROTE: Final = "wrote"
OF_PRODUCERS: Final = ("generation", "producer", WROTE)
"""Kinds of rows that contain a producer ID."""
CLAIMS: Final = ("generation", "closed")
"""Kinds of rows that determine the leader of a flow."""


@row("generation", key=("generation", "claimant"))
class Claim(StateRow, frozen=True, kw_only=True):
    generation: int
    claimant: str
    producer_id: int
    meaning: str
    """Hash of the settings that decide which records the flow writes: filters, isolation level, and
    where copies start.
    """
    host: str
    pid: int
    started_ms: int
    source_cluster_id: str
    target_cluster_id: str


def closing_row(flow: str, generation: int) -> tuple[bytes, bytes]:
    """Return (key, value) of the row which states that all lanes of this generation have
    drained.
    """
    return encode_row(["flow", flow, "closed", generation], {})


def producer_row(flow: str, number: int, claimant: str, producer_id: int) -> tuple[bytes, bytes]:
    """Return (key, value) of the row that assigns a producer ID to source partition `number` of
    every keyed topic (`mirror.copy.fan_out`).
    """
    key = ["flow", flow, "producer", number, claimant]
    return encode_row(key, {"producer_id": producer_id})


def rows_to_remove(flow: str, generation: int, records: Rows) -> list[tuple[bytes, bytes | None]]:
    """Return tombstones for the flow's claims below a generation that has won, and for the rows
    that closed these claims. Before the tombstones comes a row (`has_written_row`) for each
    producer ID that is in none but these claims.

    Only the newest claim determines the leader. A claim is closed only when no request of an
    earlier generation can arrive any more. So earlier claims may be removed at any time, closed or
    not:

    - *The leader dies between these rows*: some producer IDs are in two rows, and the next leader
      removes the remaining claims.
    - *A process that no longer leads writes the rows late*: the rows concern generations below its
      own, and so below that of its successor.
    - *A claimant that was frozen claims a number whose claims were removed*: the newest claim has a
      higher number.
    - *The topic loses its end*: the tombstones are after the winning claim, so they are lost first.
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
    wrote = (has_written_row(flow, producer_id) for producer_id in sorted(removed - named))
    return [*wrote, *((key, None) for key in keys)]


def fan_producers(records: Rows) -> dict[tuple[str, int], int]:
    """Return the producer IDs of keyed topics, by (flow, source partition). If there are several
    rows, the first one in the log counts.
    """
    out: dict[tuple[str, int], int] = {}
    for parts, fields in read_rows(records):
        if parts[2] == "producer":
            out.setdefault((parts[1], parts[3]), fields["producer_id"])
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowHistory:
    """The newest leadership of one flow, according to the state topic."""

    latest: Claim | None
    is_closed: bool
    """Whether the latest generation has ended cleanly, with all lanes drained."""


def winning_claims(records: Rows) -> dict[str, FlowHistory]:
    """Return the newest leadership of every flow. `records`: (key, value) of the state topic in log
    order.
    """
    claims: dict[tuple[str, int], Claim] = {}
    closed: set[tuple[str, int]] = set()
    for parts, fields in read_rows(records):
        if parts[2] == "closed":
            closed.add((parts[1], parts[3]))
        elif parts[2] == "generation":
            claims.setdefault((parts[1], parts[3]), Claim.decode(parts, fields))
    out: dict[str, FlowHistory] = {}
    for (flow, generation), claim in sorted(claims.items()):
        out[flow] = FlowHistory(latest=claim, is_closed=(flow, generation) in closed)
    return out


def producers_of(flow: str, records: Rows) -> frozenset[int]:
    """Return every producer ID under which a generation of the flow may have written.

    Producer IDs of keyed topics' partitions are included only if the rows that assign them were
    lost.
    """
    return frozenset(
        int(fields["producer_id"])
        for parts, fields in read_rows(records)
        if parts[1] == flow and parts[2] in ("generation", WROTE)
    )


def producers_of_others(flow: str, records: Rows) -> frozenset[int]:
    """Return every producer ID under which other Twinlog flows may have written to this cluster."""
    return frozenset(
        int(fields["producer_id"])
        for parts, fields in read_rows(records)
        if parts[1] != flow and parts[2] in OF_PRODUCERS
    )


def has_written_row(flow: str, producer_id: int) -> tuple[bytes, bytes]:
    """Return (key, value) of the row which states that the flow has written under this producer ID.

    The row replaces a claim that a later leader removed, or that the state topic has lost. What it
    states never becomes false, so it may be written twice, late, or by a process that no longer
    leads.
    """
    key = ["flow", flow, WROTE, producer_id]
    return encode_row(key, {"producer_id": producer_id})
