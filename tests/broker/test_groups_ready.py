"""`twinlog groups ready` reports which groups can move, on real clusters without a running
mirror.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, consumer, eventually, produce, produce_transaction
from tests.support.groups import commit, numbered, resume
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


class Copied:
    """A topic that was copied: records 0 to 4 in transactions, with markers between and after them,
    and a later record.
    """

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        mark = uuid.uuid4().hex[:8]
        self.source, self.target = source, target
        self.alias, self.topic, self.other = f"a{mark}", f"orders-{mark}", f"other-{mark}"
        self.group = f"app-{mark}"
        self.remote = f"{self.alias}.{self.topic}"
        self.config = folder / "mm2.properties"
        self.config.write_text(
            f"clusters = {self.alias}, B\n{self.alias}.bootstrap.servers = {source.bootstrap}\n"
            f"B.bootstrap.servers = {target.bootstrap}\n{self.alias}->B.enabled = true\n"
            f"topics = {self.topic}\ngroups = {self.group}.*\nreplication.factor = 1\n"
        )
        for topic in (self.topic, self.other):
            create_topic(source, topic)
        produce(source, self.other, numbered(0, 3))
        produce_transaction(source, self.topic, numbered(0, 3), commit=True)
        produce_transaction(source, self.topic, numbered(3, 2), commit=True)
        with Mirror(self.config, once=True) as mirror:
            (flow,) = mirror.wait()
            assert {p.state for p in flow.partitions} == {"DONE"}

    def stand(self, name: str, offset: int, topic: str = "") -> str:
        group = f"{self.group}-{name}"
        commit(self.source, group, topic or self.topic, offset)
        return group


@pytest.fixture(scope="module")
def copied(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    yield Copied(tmp_path_factory.mktemp("ready"), source_cluster, target_cluster)


def asked(
    copied: Copied, capsys: pytest.CaptureFixture[str], group: str
) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    words = ["groups", "ready", str(copied.config), "--group", group, "--format", "json"]
    code = run(words)
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    (one,) = flow["groups"]
    return code, one


@pytest.mark.witness("groups ready lists the groups that may move")
def test_idle_group_resumes_exactly_after_markers_and_waits_for_the_copy(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {}
    for offset in range(8):  # offsets: 0, 1, 2, a marker, 4, 5, a marker, the end
        group = copied.stand(f"at-{offset}", offset)
        code, one = asked(copied, capsys, group)
        assert (code, one["is_ready"], one["why_not"]) == (0, True, [])
        (place,) = one["offsets"]
        assert (place["is_exact"], place["lag"]) == (True, 7 - min(offset, 7))
        expected[offset] = place["to_offset"]
    # what an application reads from each translated offset, according to an independent client
    left = {}
    for offset, there in expected.items():
        if there < 5:
            group = f"{copied.group}-reads-{offset}"
            commit(copied.target, group, copied.remote, there)
            left[offset] = len(resume(copied.target, group, copied.remote))
    assert left == {0: 5, 1: 4, 2: 3, 3: 2, 4: 2, 5: 1}
    assert [expected[6], expected[7]] == [5, 5]

    # a group that has read further than the copy
    produce(copied.source, copied.topic, [Outgoing(value=b"5"), Outgoing(value=b"6")])
    ahead = copied.stand("ahead", 9)
    code, one = asked(copied, capsys, ahead)
    assert code == 1
    assert one["why_not"] == [f"1 partition ({copied.topic}-0): the copy has not reached it"]
    (place,) = one["offsets"]
    assert (place["to_offset"], place["is_exact"]) == (5, False)
    with Mirror(copied.config, once=True) as mirror:
        mirror.wait()
    code, one = asked(copied, capsys, ahead)
    assert (code, one["offsets"][0]["to_offset"], one["lag"]) == (0, 7, 0)


def test_active_group_is_named_and_waits(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    group = copied.stand("active", 1)
    member = consumer(copied.source, config={"group.id": group, "client.id": "till-3"})
    member.subscribe([copied.topic])
    eventually(lambda: bool(member.poll(0.1)) or bool(member.assignment()))
    code, one = asked(copied, capsys, group)
    assert (code, one["is_ready"]) == (1, False)
    assert one["members"] == [{"client_id": "till-3", "host": "/127.0.0.1"}]
    assert one["why_not"] == [f"it is active on {copied.alias}: till-3 at 127.0.0.1"]
    assert one["source"] == {"state": "Stable", "members": 1, "problem": ""}
    assert one["target"] == {"state": "Dead", "members": 0, "problem": ""}
    assert run(["groups", "ready", str(copied.config)]) == 1
    said = capsys.readouterr().out
    assert f"{copied.alias}->B: " in said
    assert "till-3 at 127.0.0.1" in said
    member.close()


def test_group_of_a_topic_that_is_not_mirrored(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = copied.stand("elsewhere", 2, copied.other)
    code, one = asked(copied, capsys, elsewhere)
    assert code == 1
    assert one["why_not"] == [f"1 partition ({copied.other}-0): not mirrored by this flow"]
    assert one["offsets"][0]["to_offset"] is None


def test_group_that_fails_back_resumes_in_the_original(
    copied: Copied, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    back = tmp_path / "back.properties"
    back.write_text(
        copied.config.read_text().replace(
            f"{copied.alias}->B.enabled", f"B->{copied.alias}.enabled"
        )
    )
    group = f"{copied.group}-back"
    commit(copied.target, group, copied.remote, 3)
    words = ["groups", "ready", str(back), "--group", group, "--format", "json"]
    assert run(words) == 0
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    (place,) = flow["groups"][0]["offsets"]
    assert (place["topic"], place["to_topic"]) == (copied.remote, copied.topic)
    assert (place["to_offset"], place["is_exact"]) == (4, True)  # after the first marker


def test_a_query_about_a_missing_group_is_an_error(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["groups", "ready", str(copied.config), "--group", "nobody"]) == 2
    assert "no flow selects a group nobody" in capsys.readouterr().err
