"""The steps of an in-memory flow: names of `MemoryFlow`'s methods, each repeated as often as its
weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["CHANGES", "STEPS", "UNHEARD"]


def _steps() -> Iterator[str]:
    weights = {
        "produce": 5,
        "begin_transaction": 2,
        "end_transaction": 2,
        "compact_source": 2,
        "delete_source": 1,
        "start": 6,
        "copy_on": 4,
        "fetch": 6,
        "write_map": 6,
        "rows_are_durable": 6,
        "rows_are_refused": 1,
        "map_connection_breaks": 1,
        "send": 9,
        "arrive": 8,
        "refuse": 1,
        "answer": 7,
        "connection_breaks": 2,
        "late_request_arrives": 4,
        "late_row_arrives": 2,
        "report": 1,
        "release": 1,
        "kill": 2,
        "lose": 2,
        "living_lane_moves": 14,
        "forget": 2,
        "wait": 1,
        "lose_tail": 1,
        "compress_anew": 1,
        "stranger_writes": 1,
        "compact_map": 1,
    }
    for name, weight in weights.items():
        yield from (name,) * weight


STEPS: Final = tuple(_steps())
CHANGES: Final = {
    "copy_on",
    "arrive",
    "living_lane_moves",
    "late_request_arrives",
    "late_row_arrives",
    "lose_tail",
    "compact_map",
}
"""Names of the steps that change the target or the map."""
UNHEARD: Final = (
    *("fetch", "write_map", "rows_are_durable", "send", "arrive", "answer"),
    *("copy_on", "send", "arrive", "refuse", "connection_breaks", "map_connection_breaks"),
)
"""Names of the steps of a lane that the driver considers dead."""
