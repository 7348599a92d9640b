"""Searches in many partitions run together, round by round, without brokers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import pytest

from twinlog.control.failback import copy_end as module
from twinlog.control.failback.copy_end import SearchReads, search_in_parallel
from twinlog.errors import FlowError, TwinlogError, or_raise
from twinlog.model import TopicPartition

A, B = cast("Any", "A"), cast("Any", "B")
TPS = [TopicPartition("orders", number) for number in range(5)]


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """A list of the requests that were sent, each as the cluster and the number of partitions."""
    asked: list[tuple[str, int]] = []

    def fetch(client: str, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[Any, Any]:
        asked.append((client, len(wanted)))
        return {
            tp: FlowError("gone") if offset == 13 else f"{client}-{tp.partition}@{offset}"
            for tp, (offset, _) in wanted.items()
        }

    monkeypatch.setattr(module, "fetch_records", fetch)
    return asked


def search(tp: TopicPartition, reads: SearchReads) -> list[str]:
    """Run a search that reads both logs once. It then reads the target n more times, where n is the
    number of the partition.
    """
    found = [or_raise(reads.source.read(tp, 0, 1)), or_raise(reads.target.read(tp, 0, 1))]
    found += [or_raise(reads.target.read(tp, 10 + n, 1)) for n in range(tp.partition)]
    return cast("list[str]", found)


def test_each_round_is_one_request_for_all_looks_that_have_not_ended(
    rounds: list[tuple[str, int]],
) -> None:
    found = search_in_parallel({tp: partial(search, tp) for tp in TPS}, A, B)
    assert rounds == [("A", 5), ("B", 5), ("B", 4), ("B", 3), ("B", 2), ("B", 1)]
    assert found[TPS[2]] == ["A-2@0", "B-2@0", "B-2@10", "B-2@11"]
    assert isinstance(found[TPS[4]], TwinlogError), "what one of them was answered is its own"
    assert not any(isinstance(found[tp], TwinlogError) for tp in TPS[:4])


def test_the_bytes_of_a_round_are_bounded(
    rounds: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2)
    found = search_in_parallel({tp: partial(search, tp) for tp in TPS[:4]}, A, B)
    assert max(count for _, count in rounds) == 2
    assert [len(cast("list[str]", found[tp])) for tp in TPS[:4]] == [2, 3, 4, 5]
    assert search_in_parallel({}, A, B) == {}
