"""The old source is back after a failover. The records that only it has are found, saved and
replayed.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, produce_transaction, read_all
from tests.support.cutover import Commands
from tests.support.eventually import eventually
from tests.support.failback_case import Case, seen
from tests.support.groups import Pair, commit, committed, numbered, resume
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.settings import settings_of
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    offset_map_topic,
    partition_count,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, fetch_offsets
from twinlog.cluster.groups.transactions import Transactions
from twinlog.errors import BrokerRefused
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey import map_reader
from twinlog.wire.records import Record

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]

SAVE = "twinlog.control.failback.saved:SavedTail.save"
LINK = "twinlog.control.failback.saved:os.link"
TRANSACTIONS = "twinlog.cluster.groups.transactions:Transactions"
REPLAY = "twinlog.control.failback.failback:Replay"
LET_IN = "twinlog.control.failback.failback:Reverse._permit_reverse_copy"
MANIFEST = "twinlog.control.failback.saved:SavedTail.write_manifest"


@pytest.fixture
def case(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Case:
    return Case(source_cluster, target_cluster, tmp_path, capsys)


def tail_with_transactions(pair: Pair) -> None:
    """Write offsets 20 to 31 of A: records, markers, aborted records, and a record whose key and
    header are not text.
    """
    produce(pair.a, pair.topic, numbered(20, 3))
    produce_transaction(pair.a, pair.topic, numbered(900, 2), commit=False)
    produce_transaction(pair.a, pair.topic, numbered(23, 2), commit=True)
    odd = Outgoing(
        key=b"\xff\x00", value=None, headers=(("trace", b"\xfe"),), timestamp=1_700_000_000_000
    )
    produce(pair.a, pair.topic, [odd])


VALID = ["20", "21", "22", "23", "24", None]


@pytest.mark.witness("the divergent tail of an old source is saved once")
def test_tail_is_found_and_saved_once_though_the_command_dies_at_each_step(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = case.pair
    tail_with_transactions(pair)
    code, said = case.run()
    assert (code, "[NOT_PROMOTED]" in said) == (1, True), said
    case.fail_over()
    code, shown = case.failback.show("plan")
    (part,) = shown["plan"]["partitions"]
    end = end_offsets(pair.a, pair.topic)[0]
    assert (code, part["tail"], part["records"], part["aborted"]) == (0, [20, end], 8, 2)
    assert part["is_compared"]
    with monkeypatch.context() as forgotten:
        forgotten.setattr("twinlog.survey.picture.known_producers", lambda *_: {})
        assert case.failback.show("plan") == (code, shown)
    code, out, _ = case.failback.do(
        "run", "--tail", "keep", "--save", str(case.folder), "--dry-run"
    )
    assert (code, case.folder.exists()) == (0, False)
    assert "6 records that never arrived, and 2 of aborted transactions" in out
    for moment, where in (("before", LINK), ("behind", LINK), ("before", MANIFEST)):
        case.killed(moment, where)
    code, said = case.run()
    assert code == 0, said
    lines = case.lines()
    assert [one["value"] for one in lines if one["transaction"] != "aborted"] == VALID
    assert [one["value"] for one in lines if one["transaction"] == "aborted"] == ["900", "901"]
    assert {one["transaction"] for one in lines} == {"none", "committed", "aborted"}
    last = lines[-1]
    assert (last["key"], last["timestamp"]) == ({"base64": "/wA="}, 1_700_000_000_000)
    assert (last["headers"], last["timestamp_type"]) == (
        [["trace", {"base64": "/g=="}]],
        "CreateTime",
    )
    assert all(one["leader_epoch"] >= 0 for one in lines)
    (file,) = case.folder.glob("*.jsonl")
    (told,) = case.manifest()["files"]
    assert told["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    before = file.stat()
    produce(pair.a, pair.topic, numbered(25, 1))  # a client still writes to A
    assert case.run()[0] == 0
    assert file.stat() == before
    assert [one["value"] for one in case.lines()][-1] == "25"
    assert len(case.manifest()["files"]) == 2
    assert case.failback.do("abort")[0] == 0
    file.write_bytes(file.read_bytes().replace(b'"23"', b'"32"'))
    code, said = case.run()
    assert (code, "[SAVED_OTHERWISE]" in said) == (1, True), said
    code, said = case.run("recreate")
    assert (code, "recreate is not supported" in said) == (2, True), said


def test_deleted_ranges_are_reported_and_an_open_transaction_is_waited_for(case: Case) -> None:
    pair = case.pair
    produce(pair.a, pair.topic, numbered(20, 10))
    delete_records(pair.a, pair.topic, before=24)
    case.fail_over()

    def is_refused() -> None:
        code, said = case.run()
        assert (code, "[TAIL_OPEN]" in said) == (1, True), said

    produce_transaction(pair.a, pair.topic, numbered(30, 1), commit=True, before=is_refused)
    assert not case.folder.exists()
    code, said = case.run()
    assert code == 0, said
    assert f"{pair.topic}-0: [20, 24) never arrived, and the source's retention has" in said
    assert [one["value"] for one in case.lines()] == [str(n) for n in range(24, 31)]
    (part,) = case.manifest()["partitions"]
    assert part["deleted"] == [20, 24]


def test_replay_brings_every_record_once_though_the_command_dies_at_each_step(case: Case) -> None:
    """A failback's replay is killed at each of its steps and started again. Every record of the
    tail, which only A had, is on B once and in order. The replay takes three transactions, and new
    owners write to B before and between its runs.
    """
    pair = case.pair
    produce(pair.a, pair.topic, numbered(20, 2_100))
    produce_transaction(pair.a, pair.topic, numbered(9_000, 2), commit=False)
    produce_transaction(pair.a, pair.topic, numbered(3_000, 2), commit=True)
    case.fail_over()
    before = seen(pair, pair.b)
    for moment, where in (
        # the state topic has the first offset, but not the intent yet
        ("behind", f"{TRANSACTIONS}.write"),
        ("before", f"{REPLAY}._partition"),
        ("before", f"{TRANSACTIONS}.end"),  # appended, but not committed
        ("behind", f"{TRANSACTIONS}.end"),  # committed, but not yet recorded in the state topic
        ("behind", f"{REPLAY}._partition"),
    ):
        case.killed(moment, where, "replay")
        if where.endswith(".end"):
            produce(pair.b, pair.remote, numbered(2_000_000, 1))
    code, said = case.run("replay")
    assert (code, "0 records appended by this run" in said) == (0, True), said
    wanted = [b"%d" % n for n in range(20, 2_120)] + [b"3000", b"3001"]
    got = seen(pair, pair.b)[len(before) :]
    assert [one for one in got if one != b"2000000"] == wanted
    assert len(got) == len(wanted) + 2
    code, said = case.run("replay")
    assert (code, "0 records appended by this run" in said) == (0, True), said
    assert len(seen(pair, pair.b)) == len(before) + len(got)
    code, shown = case.failback.show("status")
    assert "all of it is on the target" in shown["plan"]["replayed"][0]
    code, _, err = case.failback.do("abort")
    assert (code, "[REPLAYED]" in err) == (1, True)


def test_a_replay_continues_only_from_the_folder_with_the_next_records(case: Case) -> None:
    """A replay is killed after its first transaction, and then retention deletes its next records
    on A. With another folder it fails with REPLAY_UNKNOWN. With the folder in which these records
    were saved, it continues.
    """
    pair, begun = case.pair, case.folder
    produce(pair.a, pair.topic, numbered(20, 1_010))
    case.fail_over()
    before = len(seen(pair, pair.b))
    case.killed("before", f"{REPLAY}._partition", "replay")
    case.killed("behind", f"{TRANSACTIONS}.end", "replay")
    delete_records(pair.a, pair.topic, before=1_025)
    case.folder = begun.with_name("another")
    code, said = case.run("replay")
    assert (code, "[REPLAY_UNKNOWN]" in said, "an earlier run" in said) == (1, True, True), said
    assert len(seen(pair, pair.b)) == before + 1_000
    case.folder = begun
    code, said = case.run("replay")
    assert (code, "10 records appended by this run" in said) == (0, True), said
    assert seen(pair, pair.b)[before:] == [b"%d" % n for n in range(20, 1_030)]


def test_a_source_whose_offset_map_was_deleted_is_not_taken_for_one_that_was_never_copied(
    case: Case,
) -> None:
    pair = case.pair
    produce(pair.a, pair.topic, numbered(20, 3))
    case.fail_over()
    before = seen(pair, pair.b)
    delete_topic(pair.b, offset_map_topic(pair.alias_a))
    code, said = case.run("replay")
    assert (code, "[TAIL_UNKNOWN]" in said, "offsets rebuild" in said) == (1, True, True), said
    assert seen(pair, pair.b) == before
    assert not case.folder.exists()


def test_a_partition_whose_rows_and_records_were_deleted_was_copied_nevertheless(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the offset map and the copied records of a partition were deleted, so the remote
    topic has only records of new owners. The partition was copied nevertheless, so the replay must
    report TAIL_UNKNOWN instead of appending everything.
    """
    pair = case.pair
    produce(pair.a, pair.topic, numbered(20, 3))
    case.fail_over()
    rows = offset_map_topic(pair.alias_a)
    alter_topic_configs(pair.b, rows, {"cleanup.policy": "delete"})
    for partition in range(partition_count(pair.b, rows)):
        delete_records(pair.b, rows, partition)
    alter_topic_configs(pair.b, rows, {"cleanup.policy": "compact"})
    delete_records(pair.b, pair.remote, before=20)
    before = seen(pair, pair.b)
    monkeypatch.setattr(map_reader, "_readers", {})  # a new process has read no map yet
    code, said = case.run("replay")
    assert (code, "[TAIL_UNKNOWN]" in said) == (1, True), said
    assert seen(pair, pair.b) == before
    assert not case.folder.exists()


@pytest.mark.witness("a replay ends when another run has taken over")
def test_a_run_that_another_one_has_overtaken_appends_nothing_more(
    target_cluster: LocalCluster,
) -> None:
    topic = create_topic(target_cluster, f"fenced-{uuid.uuid4().hex[:8]}")
    tp, name = TopicPartition(topic, 0), f"twinlog-failback-{topic}"
    one = Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=b"v", headers=())
    with ClusterClient(settings_of(target_cluster)) as client:
        runs = [Transactions(client, name, f"__{name}", timeout_ms=30_000) for _ in range(2)]
        runs[0].begin_epoch()
        runs[0].write(tp, [one], {tp: 1})
        runs[1].begin_epoch()
        with pytest.raises(BrokerRefused) as caught:
            runs[0].write(tp, [one], {tp: 2})
        assert caught.value.code == "REPLAY_FENCED"
        runs[1].write(tp, [one], {tp: 3})
        offsets = fetch_offsets(Coordinators(client), [f"__{name}"], settled=True)
    assert offsets == {f"__{name}": {tp: Committed(offset=3)}}
    assert len(read_all(target_cluster, topic, isolation="read_committed")) == 2


@pytest.mark.witness("the flow back begins after the last common record")
def test_under_identity_the_reverse_flow_begins_after_the_last_common_record(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(source_cluster, target_cluster, tmp_path, capsys, identity=True)
    pair = case.pair
    forth, back = f"{pair.alias_a}->{pair.alias_b}", f"{pair.alias_b}->{pair.alias_a}"
    tail_with_transactions(pair)
    case.fail_over()
    behind, ahead = (f"{pair.group}-{n}" for n in (7, 22))
    commit(pair.b, behind, pair.topic, 7)
    commit(pair.b, ahead, pair.topic, 22)
    old, end_of_old = seen(pair, pair.a), end_offsets(pair.a, pair.topic)[0]
    return_path = tmp_path / "back.properties"
    text = pair.config.read_text()
    for one, value in (
        (f"{forth}.enabled", "false"),
        (f"{back}.enabled", "true"),
        ("sync.group.offsets.enabled", "true"),
    ):
        text = re.sub(rf"{one} = .*", f"{one} = {value}", text)
    return_path.write_text(text)
    shown = case.failback.show("plan")
    with monkeypatch.context() as forgotten:
        forgotten.setattr("twinlog.survey.picture.known_producers", lambda *_: {})
        assert case.failback.show("plan") == shown
    case.killed("before", LET_IN, "replay")
    with Mirror(return_path, once=True) as mirror:
        assert [one.code for one in mirror.wait()] == ["COPIED_BACK"]
    code, said = case.run("replay")
    assert (code, "begins at offset 20 of the target" in said) == (0, True), said
    assert f"{back}.enabled = true" in said
    assert f"twinlog switchover run FILE --flow '{back}'" in said
    with Mirror(return_path, once=True, lanes=1) as mirror:
        assert [one.code for one in mirror.wait()] == [""]
    brought = [b"%d" % n for n in (*range(1_000, 1_005), *range(20, 25))]
    assert seen(pair, pair.a) == [*old, *brought, None]
    code, said = case.run("replay")
    assert code == 0, said
    assert "0 records appended by this run" in said, "what came back from B is no tail of A"
    assert len(seen(pair, pair.b)) == 20 + len(brought) + 1
    produce(pair.b, pair.topic, numbered(5_000, 2))
    with EmittingMirror(return_path) as running:
        eventually(lambda: committed(pair.a, ahead, pair.topic) == end_of_old + 2)
        eventually(lambda: committed(pair.a, behind, pair.topic) == 7)
        eventually(lambda: seen(pair, pair.a)[-2:] == [b"5000", b"5001"])
        home = Commands("switchover", return_path, capsys)
        eventually(lambda: _closed(home) == {"foreign"}, what="only A's old producers are left")
        running.stop()
    assert resume(pair.a, ahead, pair.topic) == [*brought[2:], b"", b"5000", b"5001"]


def _closed(home: Commands) -> set[str]:
    """Return the closed gates of a failback."""
    return {one["gate"] for one in home.show("plan")[1]["plan"]["gates"] if not one["is_open"]}
