"""Clusters of one log in memory each, as `twinlog verify` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.memory_log import MemoryLog
from twinlog.cluster.logs.raw_log import FetchedRecords
from twinlog.errors import TwinlogError
from twinlog.survey.verify import partition


@dataclass
class Cluster:
    """Answers of one log; `ends`: what its leader says of the end, answer by answer."""

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
    """Every fetch of a verification goes to a `Cluster` from now on."""

    def fetch(client: Any, _tp: Any, position: int, *_: Any, **__: Any) -> Any:
        return client.answer(position)

    monkeypatch.setattr(partition, "fetch_partition", fetch)
