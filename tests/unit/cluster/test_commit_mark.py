"""Which offsets of a group are a valid commit mark of a writer (`cluster.groups.commit_mark`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twinlog.cluster.groups.commit_mark import CommitMark, mark_group, read_mark
from twinlog.cluster.groups.group_offsets import Committed
from twinlog.model import TopicPartition, is_own_group

HERE = "4L6g3nShT-eMCtK--X86sw"
TP = TopicPartition("orders", 0)


def metadata(**fields: Any) -> str:
    return json.dumps({"batch": 7, "rows": 5, "cluster": HERE, **fields})


def test_the_offsets_of_a_mark_are_read_as_that_mark() -> None:
    mark = CommitMark(batch=7, rows=5, topics=frozenset({"orders", "returns"}))
    for cluster_id in (HERE, None):
        assert read_mark(mark.offsets(cluster_id), cluster_id) == (mark, [])


def test_the_newest_mark_is_read_with_its_topics() -> None:
    old = CommitMark(batch=6, rows=2, topics=frozenset({"orders", "returns", "others"}))
    new = CommitMark(batch=7, rows=5, topics=frozenset({"orders", "returns"}))
    found = {**old.offsets(HERE), **new.offsets(HERE)}
    assert read_mark(found, HERE) == (new, [])


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (8, metadata()),
        (7, metadata(cluster="another")),
        (7, metadata(batch="7")),
        (7, metadata(rows=None)),
        (7, ""),
        (7, "7"),
        (7, "[7]"),
        (7, "{}"),
        (7, "[" * 4000),
    ],
)
def test_another_offset_is_none(offset: int, text: str) -> None:
    assert read_mark({TP: Committed(offset, text)}, HERE) == (None, [TP])


def test_a_mark_of_an_earlier_release_has_no_cluster() -> None:
    found, invalid = read_mark({TP: Committed(7, '{"batch": 7, "rows": 5}')}, HERE)
    assert found == CommitMark(batch=7, rows=5, topics=frozenset({"orders"}))
    assert invalid == []


@pytest.mark.parametrize("name", ["twinlog-1f2e", "1f2e"])
def test_the_group_of_a_mark_is_one_of_twinlogs_own(name: str) -> None:
    """The group whose offsets are a query's commit mark is one of Twinlog's own groups. This is so
    whether the query's ID comes from the checkpoint's location or is configured.
    """
    assert mark_group(name, "query") == "__twinlog-1f2e.query"
    assert is_own_group(mark_group(name, "query"))
