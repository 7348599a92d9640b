"""`twinlog verify` on real clusters: on targets with exactly one error each, which the test has
written, and on real copies.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support import surgery
from tests.support.client import Outgoing, eventually, produce, produce_transaction
from tests.support.command import ENTRY
from tests.support.groups import commit
from tests.support.rest import rest_of
from tests.support.rig import COMPACTED, Rig
from tests.support.terminal import Terminal
from tests.support.topics import add_partitions, alter_topic_configs, create_topic
from tests.support.verified import COUNT, NOW, ByHand, bar_shares, page_script, verify
from twinlog.cli.main import run
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.config.load import load
from twinlog.control.verify.result import digest
from twinlog.control.watch.monitor import Monitor
from twinlog.mirror.map.offset_map import (
    Run,
)
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.fixture
def by_hand(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[ByHand]:
    made = ByHand(source_cluster, target_cluster, tmp_path)
    yield made
    made.close()


@pytest.mark.witness("verify finds each fault at its offset")
def test_each_fault_is_found_at_its_place(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str]
) -> None:
    records = by_hand.records()
    flipped = records[:]
    flipped[17] = flipped[17]._replace(value=b"valuf 17")
    swapped = records[:]
    swapped[23], swapped[24] = swapped[24], swapped[23]
    by_hand.put("clean", records)
    by_hand.put("flipped", flipped)
    by_hand.put("lost", records[:-1])
    by_hand.put("twice", records[:12] + records[11:])
    by_hand.put("swapped", swapped)
    by_hand.put("row", records, (Run(0, 0, 0), Run(30, 31, 30)))

    code, flow = verify(capsys, by_hand.file)
    parts = {one["topic"].partition("-")[2]: one for one in flow["partitions"]}
    found = {
        name: [(d["kind"], d["source"], d["target"]) for d in one["differences"]]
        for name, one in parts.items()
    }
    assert (code, flow["answer"]) == (1, "different")
    assert found == {
        "clean": [],
        "flipped": [("different", [17, 18], [17, 18])],
        "lost": [("missing", [39, 40], None)],
        "twice": [("extra", None, [12, 13]), ("shifted", [12, 40], [13, 41])],
        "swapped": [("reordered", [23, 25], [23, 25])],
        # the map row maps source offset 31 instead of 30 to target offset 30. So record 30 has no
        # target offset, and all later records have a wrong one
        "row": [("shifted", [30, 31], [30, 31]), ("shifted", [31, 40], [31, 40])],
    }
    assert parts["clean"]["compared_as_bytes"] == COUNT
    (day,) = parts["flipped"]["days"]
    assert day["day"] == "2025-06-15"
    assert (day["source"]["records"], day["target"]["records"]) == (COUNT, COUNT)
    assert parts["clean"]["map"] == parts["flipped"]["map"] != parts["row"]["map"]

    only = f"{by_hand.mark}-clean"
    code, flow = verify(capsys, by_hand.file, "--topics", only, "--deep")
    assert (code, flow["answer"]) == (0, "identical")
    assert flow["partitions"][0]["compared_as_bytes"] == 0
    between = ("--since", str(NOW + 10), "--until", str(NOW + 15))
    for name, expected in (("clean", 0), ("flipped", 0), ("twice", 1)):
        code, flow = verify(capsys, by_hand.file, "--topics", f".*-{name}", *between)
        assert code == expected, flow
    code, flow = verify(capsys, by_hand.file, "--topics", only, *between)
    assert flow["partitions"][0]["equal_records"] == 5

    # a group whose translated offset would skip record 20
    group, remote = f"{by_hand.mark}-g", f"{by_hand.alias}.{only}"
    commit(by_hand.source, group, only, 20)
    commit(by_hand.target, group, remote, 20)
    assert verify(capsys, by_hand.file, "--topics", only)[0] == 0
    commit(by_hand.target, group, remote, 21)
    code, flow = verify(capsys, by_hand.file, "--topics", only)
    (standing,) = [one for one in flow["groups"] if one["standing"] != "equal"]
    assert (code, standing["wanted"], standing["stands"]) == (1, 20, 21)
    commit(by_hand.target, group, remote, 7)
    code, flow = verify(capsys, by_hand.file, "--topics", only)
    assert (code, [one["standing"] for one in flow["groups"]]) == (0, ["behind"])

    capsys.readouterr()
    assert run(["verify", str(by_hand.file)]) == 1
    said = capsys.readouterr().out
    assert f"different: {by_hand.mark}-flipped-0 [17, 18) / " in said, said


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_byte_that_a_disk_has_turned(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str], side: str
) -> None:
    """A disk changes a byte, so the checksum of its batch is wrong. All ten records of the batch
    are reported, and all other batches are compared.
    """
    by_hand.put("disk", by_hand.records())
    topic = f"{by_hand.mark}-disk"
    of = {"source": (by_hand.source, topic), "target": (by_hand.target, f"{by_hand.alias}.{topic}")}
    cluster, name = of[side]
    surgery.flip_byte(cluster, TopicPartition(name, 0), 20)
    for words in ((), ("--deep",)):
        code, flow = verify(capsys, by_hand.file, *words)
        (part,) = flow["partitions"]
        found = [(one["kind"], one["source"], one["target"]) for one in part["differences"]]
        assert (code, found) == (1, [("different", [20, 30], [20, 30])])
        assert part["equal_records"] == COUNT - 10


def test_an_undecided_comparison_is_not_identical(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand.put("never", [])
    create_topic(by_hand.source, f"{by_hand.mark}-alone")
    # the topic is empty, so nothing is missing
    assert verify(capsys, by_hand.file, "--topics", ".*-alone")[0] == 0
    assert run(["verify", str(by_hand.file), "--topics", "nothing-.*"]) == 2
    assert "no flow mirrors a topic that matches" in capsys.readouterr().err
    code, flow = verify(capsys, by_hand.file, "--topics", ".*-never")
    assert [d["source"] for d in flow["partitions"][0]["differences"]] == [[0, COUNT]]
    assert code == 1
    by_hand.put("no-row", by_hand.records(), ())
    code, flow = verify(capsys, by_hand.file, "--topics", ".*-no-row")
    assert (code, flow["answer"]) == (2, "not compared")
    assert "MAP_MISSING" in flow["partitions"][0]["why_not"]

    capsys.readouterr()
    by_hand.file.write_text(
        by_hand.file.read_text().replace(by_hand.source.bootstrap, "127.0.0.1:1")
    )
    assert run(["verify", str(by_hand.file)]) == 2
    assert "UNREACHABLE" in capsys.readouterr().err


@pytest.mark.parametrize("copy", ["no topic", "no records"])
@pytest.mark.parametrize(
    ("words", "lacks"),
    [
        ((), [0, COUNT]),
        (("--since", str(NOW + 10)), [10, COUNT]),
        (("--until", str(NOW + 15)), [0, 15]),
        (("--since", str(NOW + 10), "--until", str(NOW + 15)), [10, 15]),
        (("--since", str(NOW + COUNT)), None),
        (("--until", str(NOW)), None),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_the_scope_decides_about_topics_that_were_never_copied(
    by_hand: ByHand,
    capsys: pytest.CaptureFixture[str],
    copy: str,
    words: tuple[str, ...],
    lacks: list[int] | None,
) -> None:
    if copy == "no topic":
        by_hand.put_source("never")
    else:
        by_hand.put("never", [], ())
    code, flow = verify(capsys, by_hand.file, *words)
    found = [(one["kind"], one["source"]) for one in flow["partitions"][0]["differences"]]
    assert found == ([] if lacks is None else [("missing", lacks)])
    assert code == (lacks is not None)


def test_a_terminal_shows_how_far_it_is_and_a_pipe_nothing_of_it(
    by_hand: ByHand, tmp_path: Path
) -> None:
    records = by_hand.records()
    for name, there in (("clean", records), ("lost", records[:-1]), ("late", records)):
        by_hand.put(name, there)
    file, out, err = str(by_hand.file), tmp_path / "out", tmp_path / "err"
    ensure_compacted_topic(by_hand.there, STATE_TOPIC, partitions=1, replication_factor=1)
    with Terminal(80, "verify", file) as shown:
        assert shown.wait() == 1
        shares = bar_shares(shown.written)
        assert (shares, shares[-1]) == (sorted(shares), 100)
        # the report's first line has no remains of the progress line
        assert shown.text.startswith(f"{by_hand.alias}->B: different\n"), shown.text
        assert "%" not in shown.text
    # a part of the logs is also shown as 100 %
    into = ["sh", "-c", f'exec "$0" "$@" > {out}', *ENTRY]
    words = ("--format", "json", "--since", str(NOW + 10), "--until", str(NOW + 15))
    with Terminal(80, "verify", file, *words, command=into) as shown:
        assert shown.wait() == 0
        assert bar_shares(shown.written)[-1] == 100
        assert not shown.text.strip()
    assert json.loads(out.read_text())["answer"] == "identical"
    into = ["sh", "-c", f'exec "$0" "$@" 2> {err}', *ENTRY]
    with Terminal(80, "verify", file, command=into) as shown:
        assert shown.wait() == 1
        assert not bar_shares(shown.written)
    assert not err.read_text()


def test_an_empty_comparison_is_not_called_identical(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand.put("wide", by_hand.records())
    file = str(by_hand.file)
    for words, said in (
        (("--since", str(NOW + 20), "--until", str(NOW + 20)), "the range is empty"),
        (("--topics", "nothing-.*"), "no flow mirrors a topic that matches nothing-.*"),
        (("--topics", "["), "[ is not a regular expression"),
        (("--master", "nonsense"), '"nonsense" is not a Spark master'),
    ):
        capsys.readouterr()
        assert run(["verify", file, *words]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1), (out, err)
        assert said in err
    remote = f"{by_hand.alias}.{by_hand.mark}-wide"
    add_partitions(by_hand.target, remote, 3)
    # no record is in the partitions that only the target has
    assert verify(capsys, by_hand.file)[0] == 0
    produce(by_hand.target, remote, [Outgoing(value=b"of others", partition=2)])
    code, flow = verify(capsys, by_hand.file)
    (note,) = flow["notes"]
    assert (code, flow["answer"]) == (2, "not compared")
    assert note.startswith(f"{remote}-2: not compared: it is not empty"), note


def test_configs_that_the_sync_would_change_are_different(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand.put("set", by_hand.records())
    assert verify(capsys, by_hand.file)[0] == 0
    topic = f"{by_hand.mark}-set"
    alter_topic_configs(by_hand.source, topic, {"retention.ms": "123456789"})
    code, flow = verify(capsys, by_hand.file)
    assert (code, flow["answer"]) == (1, "different")
    (config,) = flow["configs"]
    assert (config["topic"], config["config"], config["source"]) == (
        topic,
        "retention.ms",
        "123456789",
    )
    capsys.readouterr()
    run(["verify", str(by_hand.file)])
    assert f"config retention.ms of {topic} is 123456789" in capsys.readouterr().out


@pytest.mark.parametrize("policy", ["default", "identity"])
def test_copy_of_transactions_compaction_and_codecs_is_identical(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    policy: str,
) -> None:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.prefixed = policy == "default"
        rig.create(**COMPACTED)
        # each even record has the key of the next, odd record, which replaces it in a compacted
        # topic
        rig.put(range(40), keys={n: n + 1 for n in range(0, 40, 2)})
        for n, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
            first = 40 + 10 * n
            produce(rig.source, rig.topic, [rig.outgoing(m) for m in range(first, first + 10)],
                    codec=codec)  # fmt: skip
        produce_transaction(rig.source, rig.topic, [rig.outgoing(80)], commit=False)
        produce_transaction(rig.source, rig.topic, [rig.outgoing(81)], commit=True)
        rig.put([82])
        rig.compacted([*range(1, 40, 2), *range(40, 80), 81, 82])
        if not rig.prefixed:
            create_topic(target_cluster, rig.topic)
            produce(target_cluster, rig.topic, [Outgoing(key=b"of", value=b"others")])
        rig.copy_once()
        file = rig.config()
        for words in ((), ("--deep",)):
            code, flow = verify(capsys, file, *words)
            assert (code, flow["answer"]) == (0, "identical"), flow
            (part,) = flow["partitions"]
            assert part["equal_records"] == 62
            assert (part["compared_as_bytes"] > 0) is not bool(words)

        rig.put([83])  # a record that is not copied
        code, flow = verify(capsys, file)
        (part,) = flow["partitions"]
        (lacks,) = part["differences"]
        assert (code, lacks["kind"], lacks["records"]) == (1, "missing", 1)
        with rig.mirror():
            eventually(lambda: rig.record(83).value in {one.value for one in rig.on_target()})
            code, flow = verify(capsys, file)
            assert (code, flow["is_led"]) == (0, True), flow
        if not rig.prefixed:
            produce(target_cluster, rig.topic, [Outgoing(key=b"of", value=b"others")])
            assert verify(capsys, file)[0] == 0


def test_the_commands_of_the_page_work(
    spark: SparkSession,
    by_hand: ByHand,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert spark.active()  # the example script uses this session
    records = by_hand.records()
    by_hand.put("clean", records)
    by_hand.put("lost", records[:-1])
    by_hand.put("flipped", [*records[:17], records[17]._replace(value=b"other"), *records[18:]])
    script = page_script(
        {
            "mm2.properties": str(by_hand.file),
            "localhost:9092": by_hand.source.bootstrap,
            "localhost:9093": by_hand.target.bootstrap,
        }
    )
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    exec(compile(script, "verify.md", "exec"), {})  # noqa: S102 (our own page)
    said = capsys.readouterr().out
    name = by_hand.mark
    assert said.startswith("different\n")
    assert re.search(rf"^\| *{name}-clean\|2025-06-15\| *40\| *40\|$", said, re.MULTILINE), said
    assert f"different {name}-flipped 0 [17, 18] [17, 18]\n" in said
    assert f"missing {name}-lost 0 [39, 40] None\n" in said
    shown = re.findall(r"^\|(\d+) *\|[-: .\d]+\|([a-z0-9 ]*?) *\|$", said, re.MULTILINE)
    assert shown == [("17", "value 17"), ("17", "other"), ("39", "value 39")], said


def recorded(file: Path, flow: str) -> list[dict[str, Any]]:
    """Return the last results of verifications according to REST, newest first."""
    with rest_of(load(file, environment={}), file, Monitor()) as rest:
        path = f"/api/v1/flows/{flow.replace('>', '%3E')}"
        eventually(lambda: rest.get(path)["verifyRuns"] is not None)
        found: list[dict[str, Any]] = rest.get(path)["verifyRuns"]
        return found


def test_the_result_is_recorded_on_the_target(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{by_hand.alias}->B"
    by_hand.put("clean", by_hand.records())
    by_hand.put("lost", by_hand.records()[:-1])
    ensure_compacted_topic(by_hand.there, STATE_TOPIC, partitions=1, replication_factor=1)
    assert verify(capsys, by_hand.file, "--no-record")[0] == 1
    assert recorded(by_hand.file, name) == []

    code, flow = verify(capsys, by_hand.file)
    (whole,) = recorded(by_hand.file, name)
    assert (code, whole["answer"], whole["ranges"]) == (1, "different", {"missing": 1})
    assert (whole["isWhole"], whole["sha256"]) == (True, digest(flow))
    assert (whole["partitions"], whole["equalRecords"]) == (2, 2 * COUNT - 1)

    only = f"{by_hand.mark}-clean"
    assert verify(capsys, by_hand.file, "--topics", only)[0] == 0
    part, still = recorded(by_hand.file, name)
    assert (part["answer"], part["topics"], part["isWhole"]) == ("identical", only, False)
    assert still == whole, "a part does not stand in for the whole"

    # a run that began earlier and ends later
    clock = iter([1.0])
    module = "twinlog.cli.commands.verify.time"
    monkeypatch.setattr(module, SimpleNamespace(time=lambda: next(clock, time.time())))
    assert run(["verify", str(by_hand.file), "--format", "json"]) == 1
    monkeypatch.undo()
    assert "a run that began later has already ended" in capsys.readouterr().err
    assert recorded(by_hand.file, name) == [part, whole]
