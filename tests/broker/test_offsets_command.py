"""`twinlog offsets` on real clusters: exact offsets without a running mirror, and resets to a
time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, consumer, eventually, produce, produce_transaction
from tests.support.groups import commit, committed, resume
from tests.support.mirror import Mirror
from tests.support.settings import settings_of
from tests.support.share import begin_at, stands_at
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.client import group_translation
from twinlog.client.offset_reset import Goal, GoalKind, OffsetReset
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import list_offsets
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000


class Copied:
    """A copied topic whose source has a gap. Records 0 to 2 precede the gap and records 3 to 5
    follow it; records are an hour apart.
    """

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        mark = uuid.uuid4().hex[:8]
        self.source, self.target = source, target
        self.alias, self.topic, self.group = f"a{mark}", f"orders-{mark}", f"shop-{mark}"
        self.remote = f"{self.alias}.{self.topic}"
        self.config = folder / "mm2.properties"
        create_topic(source, self.topic)
        self.put(0, 3)
        produce_transaction(source, self.topic, [Outgoing(value=b"no")], commit=False)
        self.put(3, 3)
        # an offset in the gap: the next record is record 3, at offset 5
        commit(source, self.group, self.topic, 4)
        self.write(source.bootstrap)
        with Mirror(self.config, once=True) as mirror:
            (flow,) = mirror.wait()
            assert {p.state for p in flow.partitions} == {"DONE"}

    def put(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        records = [Outgoing(value=b"%d" % n, timestamp=FIRST_MS + n * HOUR_MS) for n in numbers]
        produce(self.source, self.topic, records)

    def write(self, bootstrap: str) -> None:
        self.config.write_text(
            f"clusters = {self.alias}, B\n{self.alias}.bootstrap.servers = {bootstrap}\n"
            f"B.bootstrap.servers = {self.target.bootstrap}\n{self.alias}->B.enabled = true\n"
            f"topics = {self.topic}\ngroups = {self.group}\nreplication.factor = 1\n"
        )


@pytest.fixture(scope="module")
def copied(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    yield Copied(tmp_path_factory.mktemp("offsets"), source_cluster, target_cluster)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_share_group_is_translated_from_its_next_record(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    share = f"{copied.group}-share"
    begin_at(copied.source, copied.topic, {share: 4})  # an offset in the gap
    begin_at(copied.target, copied.remote, {share: 4})
    file = str(copied.config)
    (one,) = answer(capsys, "offsets", "translate", file, "--group", share)["offsets"]
    assert (one["to_topic"], one["to_offset"], one["is_exact"]) == (copied.remote, 3, True)
    (one,) = answer(capsys, "offsets", "translate", file, "--group", share, "--reverse")["offsets"]
    assert (one["to_topic"], one["to_offset"], one["is_exact"]) == (copied.topic, 6, True)


@pytest.mark.witness("offsets are translated by a command")
def test_group_and_single_offsets_are_translated_both_ways(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(copied.config)
    (one,) = answer(capsys, "offsets", "translate", file, "--group", copied.group)["offsets"]
    assert (one["to_topic"], one["to_offset"], one["is_exact"]) == (copied.remote, 3, True)
    for offset, expected in [(0, 0), (2, 2), (3, 3), (5, 3), (7, 5)]:
        given = ["--topic", copied.topic, "--offset", str(offset)]
        (one,) = answer(capsys, "offsets", "translate", file, *given)["offsets"]
        assert one["to_offset"] == expected
    for offset, expected in [(0, 0), (3, 5), (5, 7), (6, 8)]:
        given = ["--topic", copied.remote, "--offset", str(offset), "--reverse"]
        (one,) = answer(capsys, "offsets", "translate", file, *given)["offsets"]
        assert (one["to_topic"], one["to_offset"]) == (copied.topic, expected)
    (ahead,) = answer(
        capsys, "offsets", "translate", file, "--topic", copied.topic, "--offset", "99"
    )["offsets"]
    assert (ahead["to_offset"], ahead["is_exact"]) == (6, False)


@pytest.mark.witness("a group of a lost cluster is translated from its checkpoints")
def test_group_of_a_lost_cluster_is_translated_by_its_checkpoints(
    copied: Copied, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_translation, "SOURCE_TIMEOUT_S", 1.0)
    copied.write("127.0.0.1:9")
    try:
        file = str(copied.config)
        found = answer(capsys, "offsets", "translate", file, "--group", copied.group)
    finally:
        copied.write(copied.source.bootstrap)
    assert found["from_checkpoints"]
    assert [one["to_offset"] for one in found["offsets"]] == [3]


def test_wrong_questions_are_one_line(copied: Copied, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(copied.config)
    assert run(["offsets", "translate", file]) == 2
    assert run(["offsets", "translate", file, "--flow", "X->Y", "--group", "g"]) == 2
    assert run(["offsets", "translate", file, "--group", "nobody"]) == 1
    assert run(["offsets", "translate", file, "--topic", "nothing", "--offset", "1"]) == 1
    # a thread of another test's mirror may also write to stderr
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("twinlog: ")]
    assert len(lines) == 4
    assert "NO_OFFSETS" in lines[2]
    assert "NOT_COPIED" in lines[3]


def offsets(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the offsets of all groups in the output of `reset`."""
    return [one for group in found["groups"] for one in group["offsets"]]


def test_share_group_is_reset_by_time(copied: Copied, capsys: pytest.CaptureFixture[str]) -> None:
    group = f"{copied.group}-share-reset"
    begin_at(copied.target, copied.remote, {group: 5})
    at = ["--group", group, "--to-timestamp", str(FIRST_MS + 3 * HOUR_MS - 1)]
    command = ["offsets", "reset", str(copied.config), *at]
    (one,) = offsets(answer(capsys, *command, "--dry-run"))
    assert (one["before"], one["after"]) == (5, 3)
    assert stands_at(copied.target, group, copied.remote) == 5
    assert run([*command, "--yes"]) == 0
    assert stands_at(copied.target, group, copied.remote) == 3


def test_record_that_arrives_during_a_search_by_time_is_not_skipped(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset searches the first record at or after a time. None exists at the first query, and one
    arrives before the next query. The reset must not set the group to an offset after this record.
    """
    at_ms, ask = FIRST_MS + 20 * HOUR_MS, list_offsets
    topic = f"{copied.topic}-late"
    create_topic(copied.target, topic)
    produce(copied.target, topic, [Outgoing(value=b"old", timestamp=FIRST_MS)] * 3)

    def asked(client: ClusterClient, tps: Iterable[TopicPartition], at: int) -> Any:
        found = ask(client, tps, at)
        if at == at_ms:
            produce(copied.target, topic, [Outgoing(value=b"new", timestamp=at_ms)])
        return found

    monkeypatch.setattr("twinlog.client.offset_reset.list_offsets", asked)
    goal = Goal(kind=GoalKind.TIMESTAMP, value=at_ms)
    with ClusterClient(settings_of(copied.target)) as client:
        (found,) = OffsetReset(client).plan(goal, [f"{copied.group}-late"], topics=[topic])
    (one,) = found.offsets
    assert one.after == 3, "the record that came meanwhile is read"


def test_group_is_reset_by_time_only_on_request_and_if_idle(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"{copied.group}-reset"
    commit(copied.target, group, copied.remote, 6)
    at = ["--group", group, "--to-timestamp", str(FIRST_MS + 3 * HOUR_MS - 1)]
    command = ["offsets", "reset", str(copied.config), *at]
    (one,) = offsets(answer(capsys, *command, "--dry-run"))
    assert (one["before"], one["after"], one["start"], one["end"]) == (6, 3, 0, 6)
    assert run([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "B: to the first records since 2023-11-15T01:13:19.999Z, 1 group, 1 partition" in said
    assert "nothing was changed; without --dry-run these offsets are set" in said
    # the command cannot ask the user to confirm, because there is no terminal
    assert run(command) == 2
    assert committed(copied.target, group, copied.remote) == 6

    member = consumer(copied.target, config={"group.id": group, "client.id": "shop-7"})
    member.subscribe([copied.remote])
    eventually(lambda: bool(member.poll(0.1)) or bool(member.assignment()))
    idle = f"{group}-idle"
    commit(copied.target, idle, copied.remote, 6)
    capsys.readouterr()
    # the active group is refused and reported, and the idle one is reset
    both = [*command[:3], "--groups", f"{group}.*", *at[2:], "--yes"]
    assert run(both) == 1
    said = capsys.readouterr().out
    assert "GROUP_ACTIVE" in said
    assert "shop-7 at 127.0.0.1" in said
    assert committed(copied.target, idle, copied.remote) == 3
    member.close()
    assert committed(copied.target, group, copied.remote) == 6

    eventually(lambda: run([*command, "--execute"]) == 0)
    assert capsys.readouterr().out.endswith("1 offset of 1 group set\n")
    assert resume(copied.target, group, copied.remote) == [b"3", b"4", b"5"]
    late = [*command[:-1], str(FIRST_MS + 99 * HOUR_MS), "--dry-run"]
    (one,) = offsets(answer(capsys, *late))
    assert (one["after"], one["fit"]) == (6, "the end: no record is at or after that time")


def test_member_of_the_newer_protocol_is_named(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"{copied.group}-newer"
    config = {"group.id": group, "client.id": "shop-848", "group.protocol": "consumer"}
    member = consumer(copied.target, config=config)
    member.subscribe([copied.remote])
    eventually(lambda: bool(member.poll(0.1)) or bool(member.assignment()))
    command = ["offsets", "reset", str(copied.config), "--group", group, "--to-earliest"]
    assert run([*command, "--topic", copied.remote, "--yes"]) == 1
    assert "shop-848 at 127.0.0.1" in capsys.readouterr().out
    member.close()


def test_groups_of_the_source_are_reset_by_offset_and_by_a_shift(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"{copied.group}-shift"
    commit(copied.source, group, copied.topic, 4)
    command = ["offsets", "reset", str(copied.config), "--cluster", copied.alias, "--group", group]
    (one,) = offsets(answer(capsys, *command, "--shift-by", "2", "--yes"))
    assert (one["before"], one["after"], one["fit"]) == (4, 6, "")
    assert committed(copied.source, group, copied.topic) == 6
    (one,) = offsets(answer(capsys, *command, "--shift-by", "-100", "--yes"))
    assert (one["after"], one["fit"]) == (0, "the log begins there")
    (one,) = offsets(answer(capsys, *command, "--to-offset", "99", "--yes"))
    end = one["end"]
    assert (one["after"], one["fit"]) == (end, "the log ends there")
    assert committed(copied.source, group, copied.topic) == end
    # the group has no offset in this topic, so there is nothing to shift and nothing is set
    assert run([*command, "--topics", "other-.*", "--to-earliest", "--yes"]) == 1
    assert "NO_OFFSETS" in capsys.readouterr().out
    assert committed(copied.source, group, copied.topic) == end


def test_the_name_of_the_cluster_is_typed(
    copied: Copied, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"{copied.group}-typed"
    commit(copied.target, group, copied.remote, 6)
    command = ["offsets", "reset", str(copied.config), "--group", group, "--to-earliest"]
    asked: list[str] = []
    answers = iter(["y", "B"])

    def prompt(text: str, **_: object) -> str:
        asked.append(text)
        return next(answers)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.prompt", prompt)
    assert run(command) == 1
    assert committed(copied.target, group, copied.remote) == 6
    assert "nothing was changed" in capsys.readouterr().out
    assert run(command) == 0
    assert committed(copied.target, group, copied.remote) == 0
    assert asked == ["Type B to set the offsets of 1 group there"] * 2


def test_group_that_moved_since_the_plan_is_not_changed(copied: Copied) -> None:
    group = f"{copied.group}-moved"
    commit(copied.target, group, copied.remote, 6)
    with ClusterClient(settings_of(copied.target)) as client:
        work = OffsetReset(client)
        (plan,) = work.plan(Goal(kind=GoalKind.EARLIEST), [group])
        commit(copied.target, group, copied.remote, 5)
        done = work.execute(plan)
    assert done.refused is not None
    assert (done.is_done, done.refused.code) == (False, "GROUP_ACTIVE")
    assert committed(copied.target, group, copied.remote) == 5
