"""A migration that moves consumers first, under the identity policy. Groups move while producers
still write to the source.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.support.client import consumer, eventually, produce
from tests.support.groups import (
    Pair,
    commit,
    committed,
    numbered,
    resume,
    with_compaction,
    with_transactions,
)
from tests.support.mirror import Mirror
from tests.support.topics import end_offsets
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.mark.parametrize("fill", [with_transactions, with_compaction])
def test_groups_move_before_the_producers_and_read_each_record_once(
    fill: Callable[[Pair], None],
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False, identity=True)
    fill(pair)
    end = end_offsets(pair.a, pair.topic)[0]
    groups = [pair.stop_at(offset) for offset in range(end + 1)]
    expected = pair.left_to_read(end)
    live = f"{pair.group}-live"

    with Mirror(pair.config) as mirror:
        read: list[bytes] = []
        client = consumer(
            pair.a,
            isolation="read_committed",
            config={"group.id": live, "auto.offset.reset": "earliest"},
        )
        try:
            client.subscribe([pair.topic])
            # the group reads and commits, and the offset is translated while the copy runs
            for first in (1000, 1003):
                produce(pair.a, pair.topic, numbered(first, 3))
                last = b"%d" % (first + 2)
                eventually(lambda: last in read_some(client, read))  # noqa: B023
        finally:
            client.close()
        produce(pair.a, pair.topic, numbered(1006, 2))  # while the group has no member
        new = [b"%d" % n for n in range(1000, 1008)]
        for group in (*groups, live):
            eventually(lambda: committed(pair.b, group, pair.topic) >= 0)  # noqa: B023
        for group, values in zip(groups, expected, strict=True):
            assert resume(pair.b, group, pair.topic, at_most=len(values) + 8) == [*values, *new]

        everything = [*expected[0], *new]
        there = translated(pair, committed(pair.a, live, pair.topic), capsys)
        eventually(lambda: committed(pair.b, live, pair.topic) == there)
        assert [*read, *resume(pair.b, live, pair.topic, at_most=2)] == everything
        # the group moves back to the source by the command, because under the identity policy no
        # flow knows from which cluster a topic was copied
        back = translated(pair, committed(pair.b, live, pair.topic), capsys, "--reverse")
        produce(pair.a, pair.topic, numbered(1008, 2))
        commit(pair.a, f"back-{live}", pair.topic, back)
        assert resume(pair.a, f"back-{live}", pair.topic) == [b"1008", b"1009"]
        mirror.stop()


def read_some(client: Consumer, values: list[bytes]) -> list[bytes]:
    """Read the records that arrive within half a second, commit them, and return their values."""
    for message in client.consume(100, 0.5):
        if message.error() is None:
            values.append(message.value() or b"")
            client.commit(message=message, asynchronous=False)
    return values


def translated(pair: Pair, offset: int, capsys: pytest.CaptureFixture[str], *more: str) -> int:
    """Return the offset to which `offsets translate` translates an offset. It must be exact."""
    capsys.readouterr()
    arguments = ["--topic", pair.topic, "--partition", "0", "--offset", str(offset)]
    code = run(["offsets", "translate", str(pair.config), *arguments, "--format", "json", *more])
    assert code == 0, capsys.readouterr().err
    answer = json.loads(capsys.readouterr().out)
    (found,) = answer["offsets"]
    assert found["is_exact"], found
    return int(found["to_offset"])
