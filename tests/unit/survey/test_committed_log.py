"""Reading a log to an end that was queried before, while its leader changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords
from twinlog.errors import Fate, TwinlogError
from twinlog.model import TopicPartition
from twinlog.survey import committed_log
from twinlog.survey.committed_log import read_committed


def test_a_new_leader_that_returns_nothing_yet_does_not_end_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If nothing is returned because of an open transaction or the cleaner, the read ends. But if
    the leader has a lower high watermark than before, it has not returned everything.
    """
    high_watermarks = [5, 4]

    def fetch(*_: object, **__: object) -> FetchedRecords:
        return FetchedRecords(
            records=memoryview(b""),
            high_watermark=high_watermarks.pop(0),
            last_stable_offset=3,
            log_start=0,
            aborted=(),
        )

    monkeypatch.setattr(committed_log, "fetch_partition", fetch)
    client, tp = cast("ClusterClient", SimpleNamespace(alias="B")), TopicPartition("orders", 0)
    assert list(read_committed(client, tp, 3, 5)) == []
    with pytest.raises(TwinlogError) as caught:
        list(read_committed(client, tp, 3, 5))
    assert caught.value.fate is Fate.RETRIABLE
