"""All rows that the state topic had when it was read, by flow and kind.

The newest row of each key counts, as after compaction. A tombstone removes a claim (`generations`).
The tombstone of any other row is kept, because readers must see that the row no longer applies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from twinlog.errors import CorruptData
from twinlog.mirror.state.copies import COPY, CopyRow, copy_rows
from twinlog.mirror.state.generations import (
    CLAIMS,
    OF_PRODUCERS,
    FlowHistory,
    winning_claims,
)
from twinlog.mirror.state.intents import (
    INTENT,
    FlowIntents,
    IntentKind,
    fenced_since_promotion,
    flow_intents,
)
from twinlog.mirror.state.state_row import Row, read_row, read_rows

Bucket = dict[bytes, bytes | None]
"""Rows of one kind of one flow, by key in log order."""
Copies = Mapping[tuple[str, str], CopyRow]


class StateRows(Iterable[Row]):
    """All rows of the state topic at one moment, in log order within each kind. Immutable.

    A row that cannot be read may be about any flow. So each selection contains it, and decoding the
    selection raises CorruptData.
    """

    def __init__(
        self,
        kept: Mapping[str, Mapping[str, Bucket]],
        unreadable: Mapping[bytes, bytes],
        decoded: dict[str, tuple[Bucket, Copies]],
    ) -> None:
        """`kept`: rows by flow, kind and key. `unreadable`: rows that cannot be read. `decoded`:
        the decoded rows about copies, by flow; later `StateRows` use them again while the rows are
        the same.
        """
        self._kept, self._unreadable, self._decoded = kept, unreadable, decoded

    def __iter__(self) -> Iterator[Row]:
        return (row for flow in self._kept for row in self._rows_of(flow))

    def of(self, flow: str, *kinds: str) -> list[Row]:
        """Return a flow's rows of these kinds (default: all kinds), and all unreadable rows."""
        return [*self._rows_of(flow, *kinds), *self._unreadable.items()]

    def of_alone(self, flow: str, *kinds: str) -> list[Row]:
        """Return the same as `of`, except for unreadable rows whose key names another flow."""
        unread = (
            row for row in self._unreadable.items() if _flow_and_kind(row[0])[0] in ("", flow)
        )
        return [*self._rows_of(flow, *kinds), *unread]

    def of_kinds(self, *kinds: str) -> list[Row]:
        """Return the rows of these kinds of all flows, and all unreadable rows."""
        rows = (row for flow in self._kept for row in self._rows_of(flow, *kinds))
        return [*rows, *self._unreadable.items()]

    def history(self, flow: str) -> FlowHistory | None:
        """Return the flow's newest claim, and whether its generation has ended with all lanes
        drained. Return None if no process has led the flow.
        """
        return winning_claims(self.of(flow, *CLAIMS)).get(flow)

    def intents(
        self, flow: str, *, corrupt: set[tuple[IntentKind, str]] | None = None
    ) -> FlowIntents:
        """Return the flow's intents. For `corrupt` see `flow_intents`."""
        return flow_intents(flow, self.of(flow, INTENT), corrupt=corrupt)

    def fenced(self, flow: str) -> set[str]:
        """Return the topics that were fenced (intent `fence`) after the last promotion of the topic
        or of the flow.
        """
        return fenced_since_promotion(flow, self.of(flow, INTENT))

    def has_same_rows(self, flow: str, before: StateRows) -> bool:
        """Return True if neither rows of the flow nor unreadable rows have changed since
        `before`.
        """
        is_same = self._kept.get(flow) is before._kept.get(flow)
        return is_same and self._unreadable is before._unreadable

    @cached_property
    def copies(self) -> Copies:
        """The newest row of each copy, by flow and topic."""
        out = copy_rows(self._unreadable.items())  # raises for an unreadable row
        for flow, kinds in self._kept.items():
            bucket = kinds.get(COPY, {})
            before, copies = self._decoded.get(flow, (None, {}))
            if before is not bucket:
                copies = copy_rows(bucket.items())
                self._decoded[flow] = bucket, copies
            out |= copies
        return out

    @cached_property
    def producers(self) -> frozenset[int]:
        """All producer IDs under which Twinlog flows may have written to this cluster."""
        rows = read_rows(self.of_kinds(*OF_PRODUCERS))
        return frozenset(int(fields["producer_id"]) for _, fields in rows)

    def _rows_of(self, flow: str, *kinds: str) -> Iterator[Row]:
        kept = self._kept.get(flow, {})
        for kind in kinds or kept:
            yield from kept.get(kind, {}).items()


NO_ROWS: Final = StateRows({}, {}, {})


class RowFolder:
    """Collects rows of the state topic, which are added in log order. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Bucket]] = {}
        self._unreadable: dict[bytes, bytes] = {}
        self._decoded: dict[str, tuple[Bucket, Copies]] = {}
        self._fresh: set[tuple[str, str]] = set()
        """(flow, kind) of each `Bucket` that is not shared with a returned `StateRows`, so it may
        be changed.
        """

    def add(self, key: bytes, value: bytes | None) -> None:
        """Add the next row of the log."""
        flow, kind = _flow_and_kind(key)
        if (flow, kind) not in self._fresh:
            self._fresh.add((flow, kind))
            kinds = self._kept[flow] = dict(self._kept.get(flow, {}))
            kinds[kind] = dict(kinds.get(kind, {}))
        bucket = self._kept[flow][kind]
        bucket.pop(key, None)  # added again below, so that buckets stay in log order
        if value is not None or kind not in CLAIMS:
            bucket[key] = value
        if value is not None and not _is_readable(key, value):
            self._unreadable = {**self._unreadable, key: value}
        elif key in self._unreadable:
            self._unreadable = {
                row_key: v for row_key, v in self._unreadable.items() if row_key != key
            }

    def rows(self) -> StateRows:
        """Return all rows that were added."""
        self._fresh.clear()
        return StateRows(dict(self._kept), self._unreadable, self._decoded)


def _flow_and_kind(key: bytes) -> tuple[str, str]:
    """Return flow and kind of a row, or two empty strings if the key does not show them."""
    try:
        _, flow, kind, *_ = json.loads(key)
    except (ValueError, TypeError, RecursionError):
        return "", ""
    return (flow, kind) if isinstance(flow, str) and isinstance(kind, str) else ("", "")


def _is_readable(key: bytes, value: bytes) -> bool:
    try:
        read_row(key, value)
    except CorruptData:
        return False
    return True
