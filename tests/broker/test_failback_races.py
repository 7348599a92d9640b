"""A failback and a demotion run at the same time. The records of the tail reach the target once,
and the later command reports the conflict.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import eventually, produce
from tests.support.cutover import killed
from tests.support.failback_case import Case, seen
from tests.support.groups import numbered
from tests.support.mirror import EmittingMirror, Mirror
from twinlog.cli.main import run
from twinlog.client.steering import FlowSteering
from twinlog.cluster.groups.transactions import Transactions
from twinlog.config.load import load
from twinlog.control.failback.saved import SavedTail
from twinlog.control.flow.wiring import flow_setup
from twinlog.mirror.state.intents import IntentKind
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]

CONFIRM = "twinlog.cli.commands.cutover.is_confirmed"
APPEND = "twinlog.client.steering:FlowSteering.append"


@pytest.fixture(params=[False, True], ids=["default", "identity"])
def case(
    request: pytest.FixtureRequest,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Case:
    return Case(source_cluster, target_cluster, tmp_path, capsys, identity=request.param)


def steering_of(case: Case) -> FlowSteering:
    config = load(case.pair.config, environment={}).flows[0]
    setup = flow_setup(config)
    return FlowSteering(config, setup.source, setup.target, "a test")


def demote_anyway(case: Case) -> None:
    """Demote without checking for replays, like an older release or a command that was killed after
    its check.
    """
    with closing(steering_of(case)) as steering:
        steering.append(
            [one.intent.encode() for one in steering.changes(IntentKind.PROMOTE, is_set=False)]
        )


def demote(case: Case) -> tuple[int, str]:
    case.failback.capsys.readouterr()
    code = run(["flow", "demote", "--yes", str(case.pair.config), "--reason", "A is back"])
    said = case.failback.capsys.readouterr()
    return code, said.out + said.err


def copy(case: Case) -> list[str]:
    with Mirror(case.pair.config, once=True, lanes=1) as mirror:
        return [part.code for flow in mirror.wait() for part in flow.partitions]


def wishes(case: Case, kind: IntentKind) -> int:
    """Return the number of intents of this kind for the flow and its topics."""
    with closing(steering_of(case)) as steering:
        return len(steering.intents().topics(kind)) + (steering.intents().get(kind) is not None)


def on_target(case: Case) -> list[int]:
    return [int(value or b"-1") for value in seen(case.pair, case.pair.b)]


def demote_while_saving(
    case: Case, monkeypatch: pytest.MonkeyPatch, *, promotes_again: bool = False
) -> None:
    """Start a failback during which another operator demotes the flow while the tail is saved, so
    that a mirror copies the tail.
    """
    produce(case.pair.a, case.pair.topic, numbered(20, 30))
    case.fail_over(new_owners=0)
    save = SavedTail.write_manifest

    def demoted(self: SavedTail, *args: Any) -> None:
        save(self, *args)
        assert demote(case)[0] == 0
        assert copy(case) == [""]
        if promotes_again:
            assert run(["failover", "run", str(case.pair.config), "--yes"]) == 0

    monkeypatch.setattr(SavedTail, "write_manifest", demoted)


@pytest.mark.witness("a failback appends nothing once its flow is demoted", case="default")
def test_a_flow_that_is_demoted_while_the_tail_is_saved(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    demote_while_saving(case, monkeypatch)
    code, said = case.run("replay")
    assert on_target(case) == [*range(50)], said
    assert (code, "[NOT_PROMOTED]" in said) == (1, True), said
    assert wishes(case, IntentKind.REPLAY) == 0
    monkeypatch.undo()
    produce(case.pair.a, case.pair.topic, numbered(50, 5))
    assert copy(case) == [""]
    assert on_target(case) == [*range(55)]


def test_a_flow_that_is_demoted_and_promoted_again_while_the_tail_is_saved(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow is demoted and promoted again while the failback saves the tail. The intents are
    then the same as before the save, but the mirror has copied the tail in the meantime. The
    failback must detect the demotion and stop with NOT_PROMOTED.
    """
    demote_while_saving(case, monkeypatch, promotes_again=True)
    for tail in ("replay", "keep"):
        code, said = case.run(tail)
        assert on_target(case) == [*range(50)], said
        assert (code, "[NOT_PROMOTED]" in said) == (1, True), said
    monkeypatch.undo()
    code, said = case.run("replay")
    assert (code, on_target(case)) == (0, [*range(50)]), said


def test_a_flow_that_is_demoted_while_the_command_waits_for_an_answer(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(case.pair.a, case.pair.topic, numbered(20, 30))
    case.fail_over(new_owners=0)

    def confirmed(*_: str) -> bool:
        assert demote(case)[0] == 0
        return True

    monkeypatch.setattr(CONFIRM, confirmed)
    monkeypatch.setattr("twinlog.cli.commands.cutover.require_an_answer", lambda **_: None)
    words = [word for word in case.words("replay") if word != "--yes"]
    code, out, err = case.failback.do("run", *words)
    assert (code, "[NOT_PROMOTED]" in err) == (1, True), out + err
    assert not case.folder.exists()
    assert copy(case) == [""]
    assert on_target(case) == [*range(50)]


@pytest.mark.witness("a flow whose tail was replayed cannot be demoted", case="default")
def test_a_flow_that_is_demoted_between_two_portions(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demotion between two portions (transactions) of a replay is refused. If the demotion is
    forced, the replay stops with NOT_PROMOTED, and commits no portion after it.
    """
    produce(case.pair.a, case.pair.topic, numbered(20, 2_500))
    case.fail_over()
    before = on_target(case)
    write, calls = Transactions.write, list[int]()

    def demoted(self: Transactions, *args: Any, **named: Any) -> None:
        calls.append(len(args[1]))
        if calls[-1] and len(calls) == 3:
            assert calls == [0, 1_000, 1_000]
            code, said = demote(case)
            assert (code, "[REPLAYED]" in said, "failback run" in said) == (1, True, True), said
            assert wishes(case, IntentKind.PROMOTE) == 1
            demote_anyway(case)
        write(self, *args, **named)

    monkeypatch.setattr(Transactions, "write", demoted)
    code, said = case.run("replay")
    assert (code, "[NOT_PROMOTED]" in said) == (1, True), said
    assert on_target(case) == [*before, *range(20, 1_020)]
    monkeypatch.undo()
    assert copy(case) == ["TAKEN_OVER" if case.pair.is_identity else "EXTRA_RECORDS"]
    assert on_target(case) == [*before, *range(20, 1_020)]
    assert run(["failover", "run", str(case.pair.config), "--yes"]) in (0, 1)
    code, said = case.run("replay")
    assert (code, on_target(case)) == (0, [*before, *range(20, 2_520)]), said


def test_a_demotion_and_a_replay_detect_each_other(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demotion's row may be written directly before or after the row that announces a replay. In
    the first case, the replay stops and appends nothing. In the second case, the demotion fails. It
    writes a new promotion, so a replay that relied on the earlier promotion stops.
    """
    produce(case.pair.a, case.pair.topic, numbered(20, 30))
    case.fail_over()
    before = on_target(case)
    append = FlowSteering.append

    def with_demotion(self: FlowSteering, rows: Any, **named: Any) -> None:
        monkeypatch.setattr(FlowSteering, "append", append)
        assert any(b"replay" in key for key, _ in rows)
        assert demote(case)[0] == 0
        append(self, rows, **named)

    monkeypatch.setattr(FlowSteering, "append", with_demotion)
    code, said = case.run("replay")
    assert (code, "[NOT_PROMOTED]" in said) == (1, True), said
    assert on_target(case) == before
    assert wishes(case, IntentKind.REPLAY) == 0, "or no demotion would pass any more"

    assert run(["flow", "promote", "--yes", str(case.pair.config)]) == 0
    promoted = steering_of(case)

    def with_replay(self: FlowSteering, rows: Any, **named: Any) -> None:
        monkeypatch.setattr(FlowSteering, "append", append)
        assert any(b"promote" in key for key, _ in rows)
        begun = promoted.changes(IntentKind.REPLAY, [case.pair.topic])
        promoted.append([one.intent.encode() for one in begun])
        append(self, rows, **named)

    with closing(promoted):
        was = promoted.intents().promotion
        monkeypatch.setattr(FlowSteering, "append", with_replay)
        code, said = demote(case)
        assert (code, "[REPLAYED]" in said) == (1, True), said
        now = promoted.intents().promotion
    assert None not in (was, now)
    assert was != now, "a replay that relied on it stops"
    code, said = case.run("replay")
    assert (code, on_target(case)) == (0, [*before, *range(20, 50)]), said


def test_a_demotion_that_dies_after_its_row(case: Case) -> None:
    """A replay was announced but has appended nothing. A demotion is refused until `failback abort`
    has undone the replay. The next demotion is killed directly after it has written its row. It has
    taken effect, so the copy continues.
    """
    produce(case.pair.a, case.pair.topic, numbered(20, 30))
    case.fail_over(new_owners=0)
    case.killed("before", "twinlog.control.failback.failback:Replay._partition", "replay")
    code, said = demote(case)
    assert (code, "[REPLAYED]" in said, "failback abort" in said) == (1, True, True), said
    assert run(["flow", "demote", "--yes", str(case.pair.config), "--dry-run"]) == 1
    code, out, err = case.failback.do("abort")
    assert code == 0, out + err
    killed("behind", APPEND, "flow", "demote", "--yes", str(case.pair.config))
    assert copy(case) == [""]
    assert on_target(case) == [*range(50)]


def test_topics_that_were_promoted_by_name_are_named_and_aborted(case: Case) -> None:
    """After a replay was announced, and before it has appended anything, its topic is promoted by
    name. The plan of the whole flow leaves the topic out, and says how to select it. `failback
    abort` undoes the replay nevertheless.
    """
    produce(case.pair.a, case.pair.topic, numbered(20, 30))
    case.fail_over(new_owners=0)
    case.killed("before", "twinlog.control.failback.failback:Replay._partition", "replay")
    assert run(["topic", "promote", str(case.pair.config), "--topics", case.pair.topic]) == 0
    code, _, err = case.failback.do("plan")
    assert (code, "[NOT_COPIED]" in err, "select them with --topics" in err) == (1, True, True)
    code, out, err = case.failback.do("plan", "--topics", case.pair.topic)
    assert (code, "30 records in all" in out) == (0, True), out + err
    code, out, err = case.failback.do("abort")
    assert (code, "it is undone" in out) == (0, True), out + err
    assert wishes(case, IntentKind.REPLAY) == 0


def test_a_replayed_topic_is_not_copied_after_a_demotion(case: Case) -> None:
    """After a replay, `flow demote` is refused until the replayed topic has been promoted by name.
    This topic is not copied again after the demotion, even if it is released and resumed.
    """
    pair = case.pair
    produce(pair.a, pair.topic, numbered(20, 30))
    case.fail_over()
    code, said = case.run("replay")
    assert code == 0, said
    there = on_target(case)
    code, said = demote(case)
    assert (code, "[REPLAYED]" in said, "topic promote" in said) == (1, True, True), said
    assert run(["topic", "promote", str(pair.config), "--topics", pair.topic]) == 0
    assert demote(case)[0] == 0
    assert run(["topic", "demote", str(pair.config), "--topics", pair.topic]) == 1
    # releasing and resuming the topic does not start its copy again either
    assert run(["topic", "release", str(pair.config), "--topics", pair.topic]) == 0
    assert run(["topic", "demote", str(pair.config), "--topics", pair.topic]) == 0
    assert run(["topic", "resume", str(pair.config), "--topics", pair.topic]) == 1
    copy(case)
    assert on_target(case) == there


@pytest.mark.witness("repair does not accept replayed records", case="default")
def test_repair_accepts_no_replay(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)
    pair = case.pair
    produce(pair.a, pair.topic, numbered(20, 30))
    case.fail_over()
    code, said = case.run("replay")
    assert code == 0, said
    there = on_target(case)
    demote_anyway(case)
    with pair.config.open("a") as config:
        config.write("twinlog.status.interval.seconds = 1\n")
    with EmittingMirror(pair.config, lanes=1) as mirror:
        found = standing(case)
        assert "[REPLAYED]" in found["problem"], found
        assert run(["repair", "run", str(pair.config), "--yes"]) == 1
        mirror.eventually(lambda parts: [bool(part.code) for part in parts] == [True])
        mirror.stop()
    assert copy(case) != [""]
    assert on_target(case) == there


def standing(case: Case) -> dict[str, Any]:
    """Return the stopped partition, as soon as the published status reports it."""
    capsys, found = case.failback.capsys, dict[str, Any]()

    def is_told() -> bool:
        capsys.readouterr()
        run(["repair", "plan", str(case.pair.config), "--format", "json"])
        said = capsys.readouterr().out
        found.update(*(json.loads(said or "{}").get("partitions") or []))
        return bool(found)

    eventually(is_told, what="its status row")
    return found


def test_files_and_folders_of_another_user_are_not_replayed(case: Case) -> None:
    produce(case.pair.a, case.pair.topic, numbered(20, 3))
    case.fail_over()
    before = on_target(case)
    topic = case.pair.topic
    case.folder.mkdir(mode=0o700)
    line = {"partition": 0, "offset": 23, "timestamp": 1, "timestamp_type": "CreateTime"}
    line |= {"key": None, "value": "666", "headers": [], "leader_epoch": 0, "transaction": "none"}
    planted = case.folder / f"{topic}-0-{23:020d}-{24:020d}.jsonl"
    planted.write_text(json.dumps(line) + "\n")
    code, said = case.run("replay")
    assert on_target(case) == before, said
    assert (code, "[SAVED_OTHERWISE]" in said) == (1, True), said
    planted.unlink()
    case.folder.chmod(0o770)
    code, said = case.run("replay")
    assert (code, "[FOLDER_NOT_PRIVATE]" in said) == (1, True), said
    case.folder.chmod(0o700)
    assert case.run("keep")[0] == 0
    planted.write_text(json.dumps(line) + "\n")
    code, said = case.run("replay")
    assert on_target(case) == before, said
    assert (code, "[SAVED_OTHERWISE]" in said, planted.name in said) == (1, True, True), said
    planted.unlink()
    assert case.run("replay")[0] == 0
    assert on_target(case) == [*before, 20, 21, 22]
    assert planted.name not in {one["file"] for one in case.manifest()["files"]}
    shutil.rmtree(case.folder)
