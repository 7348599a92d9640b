"""Clusters that consist of one in-memory log each, for `twinlog verify`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.memory_log import MemoryLog
from twinlog.cluster.logs.raw_log import FetchedRecords
from twinlog.errors import TwinlogError
from twinlog.survey import verify


@dataclass
class Cluster:
    """Returns Fetch responses from one log. `ends`: the log end in each response, in order."""

    log: MemoryLog
    ends: list[int] = field(default_factory=list)
    alias: str = "A"
    muted_until: float = 0.0

    def retrying(self, ask: Any) -> Any:
        while True:
            try:
                return ask()
            except TwinlogError:
                if not self.ends:
                    raise

    def answer(self, position: int) -> FetchedRecords:
        end = self.ends.pop(0) if self.ends else self.log.end
        return FetchedRecords(
            records=self.log.read(position) if position < end else memoryview(b""),
            high_watermark=end,
            last_stable_offset=end,
            log_start=0,
            aborted=(),
        )


def fetch_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirect every fetch of a verification to a `Cluster` until the end of the test."""

    def fetch(client: Any, _tp: Any, position: int, *_: Any, **__: Any) -> Any:
        return client.answer(position)

    monkeypatch.setattr(verify, "fetch_partition", fetch)
