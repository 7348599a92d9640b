"""Reading a topic of Twinlog's own state while its leader changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords
from twinlog.cluster.topics import internal_log
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import Fate, TwinlogError
from twinlog.model import TopicPartition


@pytest.mark.parametrize(
    ("high_watermark", "fate"), [(3, Fate.RETRIABLE), (5, Fate.CORRUPT)], ids=["new leader", "lost"]
)
def test_a_new_leader_that_returns_nothing_yet_has_no_damaged_log(
    monkeypatch: pytest.MonkeyPatch, high_watermark: int, fate: Fate
) -> None:
    answer = FetchedRecords(
        records=memoryview(b""),
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start=0,
        aborted=(),
    )

    def fetch(_client: Any, positions: Any, **_: Any) -> dict[TopicPartition, FetchedRecords]:
        return dict.fromkeys(positions, answer)

    monkeypatch.setattr(internal_log, "fetch_records", fetch)
    client = cast("ClusterClient", SimpleNamespace(alias="B"))
    with pytest.raises(TwinlogError) as caught:
        list(read_to_end(client, "state", 0, 3, end=5))
    assert caught.value.fate is fate
