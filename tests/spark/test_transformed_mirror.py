"""The real command with transforms: each surviving record once, masked and in order, whatever is
killed meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.client import Outgoing, Seen, produce, read_all
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.groups import commit, committed
from tests.support.spark_mirror import (
    PARTITIONS,
    Load,
    alias_of,
    arrived,
    assert_identical,
    config,
    orders,
)
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

PASSWORD: Final = "a-password-of-a-cluster"
STANDS_AT: Final = 1000
"""The position of a group on the source, in partition 0."""
MASK: Final = (
    "SELECT key, concat('masked ', offset) AS value, topic, partition, offset, timestamp, "
    "timestampType, headers FROM records WHERE value IS NOT NULL"
)
"""Leaves out tombstones."""
FAILS: Final = "partition = 1 AND (offset IN (60, 61) OR offset % 20011 = 70)"
"""Records on which the function fails in the test that kills."""
LETTERS: Final = "mm2-twinlog-dead-letters.A.internal"


def masking(
    folder: Path, source: LocalCluster, target: LocalCluster, topic: str, **more: str
) -> Path:
    flow = f"A->{alias_of(topic)}"
    lines = {
        f"{flow}.topics": f"{topic}, {topic}-raw",
        f"{flow}.twinlog.transforms": "mask",
        f"{flow}.twinlog.transforms.mask.topics": topic,
        f"{flow}.twinlog.transforms.mask.sql": MASK,
    }
    return config(folder, source, target, topic, **(lines | more))


def is_bad(one: Seen) -> bool:
    is_listed = one.offset in (60, 61) or one.offset % 20011 == 70
    return one.partition == 1 and is_listed and one.value is not None


def assert_quarantined(source: LocalCluster, target: LocalCluster, topic: str) -> int:
    """Each record on which the function fails is once in the dead-letter topic, unchanged."""
    flow, name = f"A->{alias_of(topic)}".encode(), "__connect.errors.{}".format
    found = []
    for one in read_all(target, LETTERS):
        said = dict(one.headers)
        if said[name("connector.name")] == flow:
            assert said[name("topic")] == topic.encode() and said[name("partition")] == b"1"
            assert said[name("class.name")] == b"mask"
            assert said[name("exception.class.name")] == b"USER_RAISED_EXCEPTION"
            found.append((int(said[name("offset")] or b""), one.key, one.value, one.timestamp))
    bad = filter(is_bad, read_all(source, topic))
    expected = [(one.offset, one.key, one.value, one.timestamp) for one in bad]
    assert sorted(found) == expected
    return len(found)


def assert_masked(source: LocalCluster, target: LocalCluster, topic: str) -> int:
    """Each good record with a value is there once, masked, in the order of its partition."""
    expected = [
        (one.partition, one.key, b"masked %d" % one.offset, one.headers, one.timestamp)
        for one in read_all(source, topic)
        if one.value is not None and not is_bad(one)
    ]
    found = [
        (one.partition, one.key, one.value, one.headers, one.timestamp)
        for one in read_all(target, f"A.{topic}")
    ]
    assert len(found) == len(expected)
    assert found == expected
    return len(found)


def masked_count(source: LocalCluster, topic: str) -> int:
    return sum(one.value is not None and not is_bad(one) for one in read_all(source, topic))


def values(target: LocalCluster, topic: str) -> list[tuple[int, bytes | None]]:
    return [(one.partition, one.value) for one in read_all(target, f"A.{topic}")]


def application_of(mirror: Command) -> psutil.Process:
    """Return the process of the application of the transforms."""
    module = "twinlog.transforms.application"
    return eventually(lambda: [one for one in mirror.children() if module in one.cmdline()])[0]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != "zombie"]


def environments(processes: list[psutil.Process]) -> Iterator[dict[str, str]]:
    for one in processes:
        with suppress(psutil.NoSuchProcess):  # workers of Spark come and go
            yield one.environ()


@pytest.mark.witness(
    "a masking flow loses and repeats nothing, and copies nothing unmasked", case="each once"
)
@pytest.mark.parametrize("kills", [4, 20], ids=["each once", "at many moments"])
def test_processes_are_killed_while_records_are_masked(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", PASSWORD)
    for name in (fresh_topic, f"{fresh_topic}-raw"):
        create_topic(source_cluster, name, partitions=PARTITIONS)
    produce(source_cluster, f"{fresh_topic}-raw", orders(2000), codec="lz4")
    flow, group = f"A->{alias_of(fresh_topic)}", f"group-{fresh_topic}"
    commit(source_cluster, group, fresh_topic, STANDS_AT)
    syncs = {
        f"{flow}.sync.group.offsets.enabled": "true",
        f"{flow}.sync.group.offsets.interval.seconds": "1",
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.groups": group,
    }
    value = f"CASE WHEN {FAILS} THEN raise_error('bad') ELSE offset END"
    fails = {
        f"{flow}.twinlog.transforms.mask.sql": MASK.replace(
            "masked ', offset", f"masked ', {value}"
        ),
        f"{flow}.twinlog.transforms.on-error": "quarantine",
    }
    file = masking(tmp_path, source_cluster, target_cluster, fresh_topic, **syncs, **fails)
    arguments = ("mirror", str(file), "--listen", "off")
    dice = random.Random(kills)
    load = Load(source_cluster, fresh_topic, 0)
    mirror = Command(tmp_path / "0", *arguments)
    try:
        for number in range(kills):
            seen = arrived(target_cluster, fresh_topic)
            eventually(
                lambda seen=seen: arrived(target_cluster, fresh_topic) > seen + 500,  # type: ignore[misc]
                what=f"masked records before kill {number}",
            )
            time.sleep(dice.uniform(0.0, 1.0))  # at any moment
            application = application_of(mirror)
            family = [application, *application.children(recursive=True)]
            assert not any(PASSWORD in environ.values() for environ in environments(family))
            match number % 4:
                case 0:
                    application.kill()
                case 1:
                    next(one for one in family if "java" in one.name()).kill()
                case 2:
                    os.kill(eventually(mirror.lane_pids)[0], signal.SIGKILL)
                case _:
                    mirror.process.kill()
                    eventually(lambda family=family: not alive(family))  # type: ignore[misc]
                    mirror.__exit__()
                    mirror = Command(tmp_path / f"{number}", *arguments)
        load.stop()
        wanted = masked_count(source_cluster, fresh_topic)
        eventually(
            lambda: arrived(target_cluster, fresh_topic) >= wanted, what=f"all of {wanted} records"
        )
        there = values(target_cluster, fresh_topic)
        upstream = [int((value or b"").split()[1]) for partition, value in there if partition == 0]
        expected = next(n for n, offset in enumerate(upstream) if offset >= STANDS_AT)
        eventually(
            lambda: committed(target_cluster, group, f"A.{fresh_topic}") == expected,
            what="the group's position",
        )
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    finally:
        load.stop()
        mirror.__exit__()
    assert assert_masked(source_cluster, target_cluster, fresh_topic) == wanted
    assert assert_quarantined(source_cluster, target_cluster, fresh_topic) >= 3
    assert assert_identical(source_cluster, target_cluster, f"{fresh_topic}-raw") == 2000


def test_a_record_fails_and_the_transform_is_removed(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """With `stop` only its partition stops, with `skip` it is left out, and a file without the
    transform copies nothing until it says that this is meant.
    """
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    create_topic(source_cluster, f"{fresh_topic}-new")
    produce(source_cluster, fresh_topic, orders(400), codec="lz4")
    flow = f"A->{alias_of(fresh_topic)}"
    fails = "CASE WHEN partition = 1 AND offset = 40 THEN raise_error('bad') ELSE offset END"
    query = {
        f"{flow}.topics": fresh_topic,
        f"{flow}.twinlog.transforms.mask.sql": MASK.replace(
            "'masked ', offset", f"'masked ', {fails}"
        ),
    }
    once = ("--once", "--format", "json", "--listen", "off")

    def run(name: str, file: Path, exits: int) -> Command:
        with Command(tmp_path / name, "mirror", str(file), *once) as command:
            assert command.wait() == exits, command.stderr
        return command

    file = masking(tmp_path, source_cluster, target_cluster, fresh_topic, **query)
    stopped = run("stop", file, 1)
    (failed,) = stopped.json["flows"][0]["failed"]
    assert failed["code"] == "RECORD_NOT_TRANSFORMED"
    assert "upstream record 40" in failed["message"] and "bad" not in stopped.stderr
    wanted = [
        (one.partition, b"masked %d" % one.offset)
        for one in read_all(source_cluster, fresh_topic)
        if one.value is not None
    ]
    before = [one for one in wanted if one[0] != 1 or int(one[1].split()[1]) < 40]
    assert values(target_cluster, fresh_topic) == before

    skip = {f"{flow}.twinlog.transforms.on-error": "skip"}
    file = masking(tmp_path, source_cluster, target_cluster, fresh_topic, **query, **skip)
    run("skip", file, 0)
    expected = [one for one in wanted if one != (1, b"masked 40")]
    assert values(target_cluster, fresh_topic) == expected

    produce(source_cluster, fresh_topic, orders(100, begin=400), codec="lz4")
    produce(source_cluster, f"{fresh_topic}-new", [Outgoing(value=b"in the clear")])
    topics = {f"{flow}.topics": f"{fresh_topic}, {fresh_topic}-new"}
    plain = config(tmp_path, source_cluster, target_cluster, fresh_topic, **topics)
    refused = run("plain", plain, 1)
    codes = [one["code"] for one in refused.json["flows"][0]["failed"]]
    assert codes == ["TRANSFORMS_DIFFER"] * (PARTITIONS + 1)
    assert values(target_cluster, fresh_topic) == expected
    assert values(target_cluster, f"{fresh_topic}-new") == []

    with plain.open("a") as lines:
        lines.write(f"{flow}.twinlog.transforms.removed = {fresh_topic}\n")
    run("removed", plain, 0)
    assert len(values(target_cluster, fresh_topic)) == len(expected) + 100
    assert values(target_cluster, f"{fresh_topic}-new") == [(0, b"in the clear")]
    with Command(tmp_path / "verify", "verify", str(plain), "--format", "json") as verified:
        verified.wait()
    assert "its records were transformed" in verified.stdout
