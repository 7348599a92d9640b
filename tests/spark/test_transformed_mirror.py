"""The command with transforms. Each record that is not filtered arrives once, masked and in order,
whichever process is killed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.client import Outgoing, Seen, produce, produce_transaction, read_all
from tests.support.command import Command
from tests.support.connect_chains import chain_lines, router
from tests.support.eventually import eventually
from tests.support.greedy import GREEDY
from tests.support.groups import CLEAN_SOON, commit, committed
from tests.support.masking_flow import MASK, Case, masking, values, values_in, verified_records
from tests.support.spark_mirror import (
    PARTITIONS,
    Load,
    alias_of,
    arrived,
    arrived_in,
    as_copied,
    assert_identical,
    config,
    orders,
)
from tests.support.topics import (
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    topic_names,
)
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import Flow
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("commands")]

PASSWORD: Final = "a-password-of-a-cluster"
STANDS_AT: Final = 1000
"""Offset of a group on the source, in partition 0."""
FAILS: Final = "partition = 1 AND (offset IN (60, 61) OR offset % 20011 = 70)"
"""SQL condition for the records on which the function fails, in the test that kills processes."""
LETTERS: Final = "mm2-twinlog-dead-letters.A.internal"


def is_bad(one: Seen) -> bool:
    is_listed = one.offset in (60, 61) or one.offset % 20011 == 70
    return one.partition == 1 and is_listed and one.value is not None


def assert_quarantined(source: LocalCluster, target: LocalCluster, topic: str) -> int:
    """Check that the dead-letter topic has each record on which the function fails once. Return the
    number of these records.
    """
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
    """Check that each good record with a value is on the target once, masked, in the order of its
    partition. Return the number of these records.
    """
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


def application_of(mirror: Command) -> psutil.Process:
    """Return the process of the application that runs the transforms."""
    module = "twinlog.transforms.application"
    return eventually(
        lambda: [one for one, words in commands(mirror.children()) if module in words]
    )[0]


def jvm_of(application: psutil.Process) -> psutil.Process:
    """Return the JVM of the transforms' application. Wait for it, because the application may have
    just been started.
    """
    found = eventually(
        lambda: [
            one
            for one, words in commands(application.children(recursive=True))
            if words and words[0].endswith("java")
        ]
    )
    return found[0]


def commands(processes: Iterable[psutil.Process]) -> Iterator[tuple[psutil.Process, list[str]]]:
    """Yield the processes with their command lines. Processes that end in the meantime are left
    out, because each failed job ends some of Spark's workers.
    """
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            yield one, one.cmdline()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one, words in commands(processes) if words]


def environments(processes: list[psutil.Process]) -> Iterator[dict[str, str]]:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
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
            time.sleep(dice.uniform(0.0, 1.0))  # kill at a random moment
            application = application_of(mirror)
            family = [application, *application.children(recursive=True)]
            assert not any(PASSWORD in environ.values() for environ in environments(family))
            match number % 4:
                case 0:
                    application.kill()
                case 1:
                    jvm_of(application).kill()
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
    assert verified_records(tmp_path, file, fresh_topic) == wanted, "letters are on neither side"
    assert assert_identical(source_cluster, target_cluster, f"{fresh_topic}-raw") == 2000


def a_record_fails_and_the_transform_is_removed(case: Case) -> None:
    """A transform fails on a record. With `stop` only the record's partition stops; with `skip` the
    record is left out. After the transform is removed from the file, nothing is copied until the
    file states that this is intended.
    """
    create_topic(case.source, case.topic, partitions=PARTITIONS)
    create_topic(case.source, f"{case.topic}-new")
    produce(case.source, case.topic, orders(400), codec="lz4")
    flow = case.flow
    fails = "CASE WHEN partition = 1 AND offset = 40 THEN raise_error('bad') ELSE offset END"
    query = {
        f"{flow}.topics": case.topic,
        f"{flow}.twinlog.transforms.mask.sql": MASK.replace(
            "'masked ', offset", f"'masked ', {fails}"
        ),
    }
    file = case.file(**query)
    stopped = case.once("stop", file, 1)
    (failed,) = stopped.json["flows"][0]["failed"]
    assert failed["code"] == "RECORD_NOT_TRANSFORMED"
    assert "upstream record 40" in failed["message"] and "bad" not in stopped.stderr
    wanted = [
        (one.partition, b"masked %d" % one.offset)
        for one in read_all(case.source, case.topic)
        if one.value is not None
    ]
    before = [one for one in wanted if one[0] != 1 or int(one[1].split()[1]) < 40]
    assert values(case.target, case.topic) == before

    skip = {f"{flow}.twinlog.transforms.on-error": "skip"}
    file = case.file(**query, **skip)
    case.once("skip", file, 0)
    expected = [one for one in wanted if one != (1, b"masked 40")]
    assert values(case.target, case.topic) == expected

    produce(case.source, case.topic, orders(100, begin=400), codec="lz4")
    produce(case.source, f"{case.topic}-new", [Outgoing(value=b"in the clear")])
    topics = {f"{flow}.topics": f"{case.topic}, {case.topic}-new"}
    plain = config(case.folder, case.source, case.target, case.topic, **topics)
    refused = case.once("plain", plain, 1)
    codes = [one["code"] for one in refused.json["flows"][0]["failed"]]
    assert codes == ["TRANSFORMS_DIFFER"] * (PARTITIONS + 1)
    assert values(case.target, case.topic) == expected
    assert values(case.target, f"{case.topic}-new") == []

    with plain.open("a") as lines:
        lines.write(f"{flow}.twinlog.transforms.removed = {case.topic}\n")
    case.once("removed", plain, 0)
    assert len(values(case.target, case.topic)) == len(expected) + 100
    assert values(case.target, f"{case.topic}-new") == [(0, b"in the clear")]
    with Command(case.folder / "verify", "verify", str(plain), "--format", "json") as verified:
        verified.wait()
    assert (
        verified.stdout.count("records had other transforms, or none, before offset") == PARTITIONS
    )


def a_record_needs_too_much_memory(case: Case) -> None:
    """A transform needs too much memory for one record. Only the record's partition stops, after
    all earlier records were copied.
    """
    create_topic(case.source, case.topic, partitions=PARTITIONS)
    produce(case.source, case.topic, orders(800), codec="lz4")
    key = f"{case.flow}.twinlog.transforms"
    lines = {
        "clusters": f"A, {alias_of(case.topic)}",
        f"{key}": "mask",
        f"{key}.mask.topics": case.topic,
        f"{key}.mask.function": "tests.support.greedy:greedy",
    }
    file = config(case.folder, case.source, case.target, case.topic, **lines)
    stopped = case.once("greedy", file, 1)
    (failed,) = stopped.json["flows"][0]["failed"]
    at, partition = divmod(GREEDY, PARTITIONS)
    assert failed["code"] == "RECORD_NOT_TRANSFORMED"
    assert f"{case.topic}-{partition}: " in failed["message"]
    assert f"upstream record {at}: MemoryError (greedy.py, line" in failed["message"]
    wanted = [
        one
        for one in read_all(case.source, case.topic)
        if one.partition != partition or one.offset < at
    ]
    assert as_copied(read_all(case.target, f"A.{case.topic}")) == as_copied(wanted)


def kept_before(case: Case, topic: str, offset: int) -> int:
    """Return the number of records of partition 0 before a source offset that are not filtered.
    This is the target offset of a group at that source offset.
    """
    return sum(
        one.partition == 0 and one.value is not None and one.offset < offset
        for one in read_all(case.source, topic)
    )


def tombstones(count: int) -> list[Outgoing]:
    """Return tombstones, which the transform filters out."""
    return [Outgoing(key=b"%d" % n, value=None, partition=n % PARTITIONS) for n in range(count)]


def is_compacted(case: Case, topic: str) -> bool:
    """Produce some more records. Return True if the topic's copy was compacted."""
    produce(case.source, topic, [Outgoing(key=b"%d" % (n % 4), value=b"v") for n in range(12)])
    return arrived(case.target, topic) > 0 and read_all(case.target, f"A.{topic}")[0].offset > 0


def the_flow_moves(case: Case) -> None:
    """A flow with transforms is switched over and failed over. Its last records were filtered out,
    which must not delay either. Groups resume at exactly the next record, and no masked record is
    copied back to the source. One topic has the same name on both clusters.
    """
    topic, two, flow = case.topic, f"{case.topic}-two", case.flow
    cleaned = f"{topic}-cleaned"
    for name, partitions in ((topic, PARTITIONS), (two, 1), (f"{topic}-raw", 1)):
        create_topic(case.source, name, partitions=partitions)
    create_topic(case.source, cleaned, configs=CLEAN_SOON)
    produce(case.source, topic, orders(2000), codec="lz4")
    numbers = [Outgoing(value=b"%d" % n if n % 3 else None) for n in range(90)]
    produce(case.source, two, numbers)
    produce(case.source, f"{topic}-raw", numbers)
    chain = chain_lines(router(rf"A\.({topic})", "$1"))
    masked = dict(f"{flow}.{line}".split(" = ", 1) for line in chain) | {
        f"{flow}.topics": f"{topic}, {two}, {topic}-raw, {cleaned}",
        f"{flow}.twinlog.transforms.mask.topics": f"{topic}, {two}, {cleaned}",
        f"{flow}.groups": f"group-{topic}.*",
        f"{flow}.sync.group.offsets.enabled": "false",
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.twinlog.status.interval.seconds": "1",
    }
    file = case.file(**masked)
    with Command(case.folder / "mirror", "mirror", str(file), "--listen", "off") as mirror:
        wanted = sum(one.value is not None for one in read_all(case.source, topic))
        eventually(lambda: arrived_in(case.target, topic) == wanted, what="masked records")
        produce(case.source, topic, tombstones(600))
        end = end_offsets(case.source, topic)[0]
        places = (0, 7, 8, STANDS_AT // PARTITIONS, end - 150, end - 10, end)
        for place in places:
            commit(case.source, f"group-{topic}-{place}", topic, place)
        commit(case.source, f"group-{topic}-two", two, 90)
        commit(case.source, f"group-{topic}-mid", two, 30)
        eventually(lambda: case.missing("switchover", topic) == [0] * PARTITIONS)
        eventually(lambda: is_compacted(case, cleaned), what="compaction of a copy")
        eventually(lambda: case.missing("switchover", cleaned) == [0])
        assert verified_records(case.folder, file, topic) == wanted
        words = ("switchover", "run", str(file), "--topics", topic, "--yes", "--fence", "none")
        eventually(lambda: case.run("plan", *words[:1], "plan", *words[2:5], exits=0))
        said = case.run("switchover", *words, exits=0).stdout
        assert "promote: clients may move to the target" in said
        for place in places:
            found = committed(case.target, f"group-{topic}-{place}", topic)
            assert found == kept_before(case, topic, place), place
        assert values_in(case.target, topic) == [
            (one.partition, b"masked %d" % one.offset)
            for one in read_all(case.source, topic)
            if one.value is not None
        ]
        assert f"A.{topic}" not in topic_names(case.target)
        eventually(lambda: case.missing("failover", two) == [0], what=f"the end of {two}")
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    assert case.missing("failover", two) == [0], "the last record is filtered, and was read"
    produce(case.source, two, numbers[:7])
    assert case.missing("failover", two) == [7]
    case.run("failover", "failover", "run", str(file), "--topics", two, "--yes", exits=0)
    for name, place in (("two", 90), ("mid", 30)):
        found = committed(case.target, f"group-{topic}-{name}", f"A.{two}")
        assert found == kept_before(case, two, place), name
    produce(case.target, f"A.{two}", [Outgoing(value=b"of the new owner")])
    tail = case.folder / "tail"
    replay = ("failback", "run", str(file), "--topics", two, "--save", str(tail), "--yes")
    refused = case.run("replay", *replay, "--tail", "replay", exits=1)
    assert "without their transforms" in refused.stderr and "[TRANSFORMS_NOT_RUN]" in refused.stderr
    assert values(case.target, two)[-1] == (0, b"of the new owner")

    produce(case.target, topic, [Outgoing(value=b"of the new owner")])
    nothing_comes_back(case, (topic, two, f"{topic}-raw"))


def nothing_comes_back(case: Case, topics: Sequence[str]) -> None:
    """Check that the flow back copies neither masked records nor records of a topic with the same
    name on both clusters to the source.
    """
    topic, flow = case.topic, case.flow
    here = {name: read_all(case.source, name) for name in topics}
    back, there = "back", alias_of(topic)
    lines = {
        f"{flow}.enabled": "false",
        f"{there}->A.enabled": "true",
        f"{there}->A.topics": f".*{topic}.*",
    }
    reverse = config(case.folder / back, case.source, case.target, topic, **lines)
    noted = case.once(back, reverse, 0).stderr
    assert f"topic {topic} of {there} holds records of A" in noted, noted
    assert {name: read_all(case.source, name) for name in here} == here
    assert not [name for name in topic_names(case.source) if name.startswith(f"{there}.A.")]


ABORTED: Final = (
    "CASE WHEN value LIKE 'aborted%' OR value = 'bad' THEN raise_error('bad') ELSE offset END"
)
"""Query that fails for bad records, and for records that a read_committed consumer never
receives.
"""
BAD: Final = Outgoing(value=b"bad", partition=0)


def produce_with_aborts_and_gaps(case: Case, clean: str) -> None:
    """Write committed and aborted transactions to one topic, and records that will be compacted to
    another.
    """
    produce(case.source, case.topic, orders(400), codec="lz4")
    for begin, commits in ((400, True), (0, False), (440, True), (0, False)):
        some = [*orders(40, begin=begin)]
        if not commits:
            some = [one._replace(value=b"aborted") for one in some]
        produce_transaction(case.source, case.topic, some, commit=commits)
    for number in range(12):
        produce(case.source, clean, [Outgoing(key=b"%d" % (number % 4), value=b"%d" % number)])

    def is_clean() -> bool:
        produce(case.source, clean, [Outgoing(key=b"last", value=b"last")])
        return read_all(case.source, clean)[0].offset > 0

    eventually(is_clean, what="compaction")


def only_filtered(case: Case) -> None:
    """All new records are filtered out for a while. The position and the groups move, and nothing
    is written.
    """
    topic, group = case.topic, f"group-{case.topic}"
    before, runs = values(case.target, topic), len(case.map(topic)[0].runs)
    for _ in range(6):
        produce(case.source, topic, tombstones(200))
        time.sleep(0.5)  # positions are written once a second, so some batches are between two
    ends = end_offsets(case.source, topic)
    commit(case.source, group, topic, ends[0])
    filtered = [ends[n] for n in range(PARTITIONS)]
    eventually(
        lambda: [case.map(topic)[n].runs[-1].upstream for n in range(PARTITIONS)] == filtered,
        90.0,
        "positions",
    )
    kept = sum(partition == 0 for partition, _ in before)
    eventually(lambda: committed(case.target, group, f"A.{topic}") == kept, 90.0, "the group")
    assert case.missing("switchover", topic) == [0] * len(ends)
    assert len(case.map(topic)[0].runs) <= runs + 1, "one position, however long it filters"
    assert values(case.target, topic) == before


def letters_are_deleted(case: Case, letters: str) -> None:
    """The dead-letter topic is deleted while the flow runs. The flow creates it again."""
    for number in (1, 2):
        produce(case.source, case.topic, [BAD])
        eventually(
            lambda: letters in topic_names(case.target) and read_all(case.target, letters),
            120.0,
            f"dead letter {number}",
        )
        (found,) = read_all(case.target, letters)
        assert found.value == BAD.value
        delete_topic(case.target, letters)


def the_source_changes(case: Case) -> None:
    """The source has transactions and compaction, gets more partitions, deletes filtered and unread
    records, and its topics are re-created.
    """
    topic, flow = case.topic, case.flow
    clean, again = f"{topic}-clean", f"{topic}-again"
    create_topic(case.source, topic, partitions=PARTITIONS)
    create_topic(case.source, again)
    create_topic(case.source, clean, configs=CLEAN_SOON)
    produce(case.source, again, [Outgoing(value=b"of the first one")] * 3)
    produce_with_aborts_and_gaps(case, clean)
    every = f"{topic}, {again}, {clean}"
    lines = {
        f"{flow}.topics": every,
        f"{flow}.twinlog.transforms.mask.topics": every,
        f"{flow}.twinlog.transforms.mask.sql": MASK.replace("offset)", f"{ABORTED})"),
        f"{flow}.consumer.isolation.level": "read_committed",
        f"{flow}.refresh.groups.interval.seconds": "1",
        f"{flow}.refresh.topics.interval.seconds": "1",
        f"{flow}.sync.group.offsets.enabled": "true",
        f"{flow}.sync.group.offsets.interval.seconds": "1",
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.groups": f"group-{topic}",
        f"{flow}.twinlog.transforms.on-error": "quarantine",
        f"{flow}.twinlog.transforms.quarantine.topic": (letters := f"__letters-{topic}"),
    }
    file = case.file(**lines)

    def expected(name: str) -> list[tuple[int, bytes | None]]:
        return [
            (one.partition, b"masked %d" % one.offset)
            for one in read_all(case.source, name, isolation="read_committed")
            if one.value not in (None, BAD.value)
        ]

    def is_copied(name: str) -> bool:
        return arrived(case.target, name) == len(expected(name))

    with Command(case.folder / "mirror", "mirror", str(file), "--listen", "off") as mirror:
        for name in (topic, again, clean):
            eventually(lambda name=name: is_copied(name), what=name)  # type: ignore[misc]
            assert values(case.target, name) == expected(name)
        add_partitions(case.source, topic, PARTITIONS + 1)
        more = [Outgoing(value=b"%d" % n, partition=PARTITIONS) for n in range(50)]
        produce(case.source, topic, more)
        eventually(lambda: is_copied(topic), what="the new partition")
        letters_are_deleted(case, letters)
        only_filtered(case)
        before, ends = values(case.target, topic), end_offsets(case.source, topic)
        mirror.process.kill()
    # no record of partition 0 is left, and the last ones were filtered out, so nothing is lost
    delete_records(case.source, topic, 0)
    lost = [Outgoing(value=b"%d" % n, partition=1) for n in range(30)]
    produce(case.source, topic, lost)
    delete_records(case.source, topic, 1, ends[1] + 20)
    delete_topic(case.source, again)
    create_topic(case.source, again)
    produce(case.source, again, [Outgoing(value=b"of the second one")] * 2)
    stopped = case.once("stopped", file, 1)
    codes = {f"{topic}-1": "SOURCE_TRUNCATED", f"{again}-0": "SOURCE_RECREATED"}
    assert case.failed(stopped) == codes, stopped.stdout
    assert values(case.target, topic) == before
    assert [value for _, value in values(case.target, again)] == [
        b"masked %d" % n for n in range(3)
    ]

    delete_topic(case.target, f"A.{again}")
    case.once("accepted", case.file(**lines, **{f"{flow}.twinlog.source.loss": "accept"}), 0)
    found = values(case.target, topic)
    late = [(1, b"masked %d" % offset) for offset in range(ends[1] + 20, ends[1] + 30)]
    assert sorted(found) == sorted([*before, *late])
    assert values(case.target, again) == [(0, b"masked 0"), (0, b"masked 1")]
    assert values(case.target, clean) == expected(clean)

    delete_topic(case.target, map_topic_of(Flow("A", alias_of(topic))))
    words = ("offsets", "rebuild", str(file), "--topics", topic, "--yes")
    refused = case.run("rebuild", *words, exits=1)
    assert "its records are transformed" in refused.stdout + refused.stderr


ROUTED: Final = "SELECT * FROM records WHERE (key LIKE 'customer-1%') IS {} TRUE"


def records_are_routed(case: Case) -> None:
    """Two flows between the same clusters route one topic to two topics. Each record is in exactly
    one of them, once. Groups resume at the next record of each topic, and nothing is copied back.
    """
    topic, flow, there = case.topic, case.flow, alias_of(case.topic)
    other, group = f"eu->{there}", f"group-{case.topic}"
    create_topic(case.source, topic, partitions=PARTITIONS)
    produce(case.source, topic, orders(2000), codec="lz4")
    commit(case.source, group, topic, STANDS_AT // PARTITIONS)
    lines = {
        "clusters": f"A, eu, {there}",
        "eu.bootstrap.servers": case.source.bootstrap,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "groups": group,
        f"{flow}.topics": topic,
        f"{other}.enabled": "true",
        f"{other}.topics": topic,
    }
    for name, negation in ((flow, "NOT"), (other, "")):
        lines |= {
            f"{name}.twinlog.transforms": "route",
            f"{name}.twinlog.transforms.route.topics": topic,
            f"{name}.twinlog.transforms.route.sql": ROUTED.format(negation),
        }
    folder = case.folder
    plain = config(folder, case.source, case.target, topic, **lines)
    refused = case.run("refused", "check", str(plain), exits=1)
    assert f"add {other}.twinlog.beside = {flow}" in refused.stdout, refused.stdout
    lines[f"{other}.twinlog.beside"] = flow
    file = config(folder, case.source, case.target, topic, **lines)
    checked = case.run("check", "check", str(file), exits=0)
    assert f"A.{topic}" in checked.stdout and f"eu.{topic}" in checked.stdout
    load = Load(case.source, topic, 2000)
    arguments = ("mirror", str(file), "--listen", "off")
    try:
        with Command(folder / "killed", *arguments) as mirror:
            eventually(lambda: arrived(case.target, topic) > 2000, what="records after a backlog")
            mirror.process.kill()
        with Command(folder / "mirror", *arguments) as mirror:
            load.stop()
            wanted = {f"{alias}.{topic}": routed(case, alias) for alias in ("A", "eu")}
            for name, expected in wanted.items():
                count, at = len(expected), STANDS_AT // PARTITIONS
                eventually(
                    lambda name=name, count=count: (  # type: ignore[misc]
                        sum(end_offsets(case.target, name).values()) >= count
                    ),
                    what=f"{count} records of {name}",
                )
                resumes = sum(one.partition == 0 and one.offset < at for one in expected)
                eventually(
                    lambda name=name, resumes=resumes: (  # type: ignore[misc]
                        committed(case.target, group, name) == resumes
                    ),
                    what=f"the group's position in {name}",
                )
            end = end_offsets(case.source, topic)[0]
            commit(case.source, group, topic, end - 5)
            for one, name in zip((flow, other), wanted, strict=True):
                switch_over(case, file, one)
                resumes = sum(it.partition == 0 and it.offset < end - 5 for it in wanted[name])
                assert committed(case.target, group, name) == resumes
            mirror.terminate()
            assert mirror.wait() == 0, mirror.stderr
    finally:
        load.stop()
    for name, expected in wanted.items():
        assert as_copied(read_all(case.target, name)) == as_copied(expected)
        assert expected
    back = {
        f"{flow}.enabled": "false",
        f"{there}->A.enabled": "true",
        f"{there}->A.topics": f".*{topic}",
    }
    case.once("back", config(folder / "back", case.source, case.target, topic, **back), 0)
    mirrored = [name for name in topic_names(case.source) if name.startswith(f"{there}.")]
    assert not [name for name in mirrored if name.endswith(topic)]


REKEYED: Final = (
    "SELECT CAST(offset % 13 AS STRING) AS key, value, topic, partition, offset, timestamp, "
    "timestampType, headers FROM records WHERE value IS NOT NULL"
)


def records_get_new_keys(case: Case) -> None:
    """One flow sets new keys, and a second flow partitions the records by them. Although the
    process is killed, each record is once in the partition that Java's partitioner chooses, in the
    order of its source partition.
    """
    topic, there = case.topic, alias_of(case.topic)
    placed, by_key = f"{there}-placed", f"{there}.by-key-{topic}"
    second = f"{there}->{placed}"
    create_topic(case.source, topic, partitions=PARTITIONS)
    produce(case.source, topic, orders(2000), codec="lz4")
    lines = {
        "clusters": f"A, {there}, {placed}",
        f"{placed}.bootstrap.servers": case.target.bootstrap,
        f"{case.flow}.topics": topic,
        f"{case.flow}.twinlog.transforms": "rekey",
        f"{case.flow}.twinlog.transforms.rekey.topics": topic,
        f"{case.flow}.twinlog.transforms.rekey.sql": REKEYED,
        f"{second}.enabled": "true",
        f"{second}.topics": rf"A\\.{topic}",
        f"{second}.refresh.topics.interval.seconds": "1",
        f"{second}.twinlog.rename": rf"A\\.({topic}):by-key-$1",
        f"{second}.twinlog.target.partitions": "all-keyed",
    }
    file = config(case.folder, case.source, case.target, topic, **lines)
    checked = case.run("check", "check", str(file), exits=0).stdout
    assert "sets the key, and records keep their partition" in checked
    load = Load(case.source, topic, 2000)
    arguments = ("mirror", str(file), "--listen", "off")
    try:
        with Command(case.folder / "killed", *arguments) as mirror:
            eventually(lambda: arrived_in(case.target, by_key) > 2000, what="placed records")
            mirror.process.kill()
        with Command(case.folder / "mirror", *arguments) as mirror:
            load.stop()
            here = [one for one in read_all(case.source, topic) if one.value is not None]
            wanted = len(here)
            eventually(lambda: arrived_in(case.target, by_key) >= wanted, what=f"{wanted} records")
            mirror.terminate()
            assert mirror.wait() == 0, mirror.stderr
    finally:
        load.stop()
    expected: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for one in here:
        key = b"%d" % (one.offset % 13)
        place = partition_for_key(key, PARTITIONS), one.partition
        expected.setdefault(place, []).append((key, one.value, one.headers, one.timestamp))
    home = {(one.headers, one.timestamp, one.value): one.partition for one in here}
    found: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for one in read_all(case.target, by_key):
        place = one.partition, home[one.headers, one.timestamp, one.value]
        found.setdefault(place, []).append((one.key, one.value, one.headers, one.timestamp))
    assert found == expected


def switch_over(case: Case, file: Path, flow: str) -> None:
    words = (str(file), "--flow", flow, "--topics", case.topic)
    eventually(lambda: case.run("plan", "switchover", "plan", *words, exits=0))
    case.run("move", "switchover", "run", *words, "--yes", "--fence", "none", exits=0)


def routed(case: Case, alias: str) -> list[Seen]:
    """Return the source's records that belong to the remote topic of this alias."""
    return [
        one
        for one in read_all(case.source, case.topic)
        if (one.key or b"").startswith(b"customer-1") is (alias == "eu")
    ]


@pytest.mark.parametrize(
    "scenario",
    [
        a_record_fails_and_the_transform_is_removed,
        the_flow_moves,
        the_source_changes,
        records_are_routed,
        records_get_new_keys,
        a_record_needs_too_much_memory,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_a_masking_flow(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    scenario: Callable[[Case], None],
) -> None:
    scenario(Case(source=source_cluster, target=target_cluster, topic=fresh_topic, folder=tmp_path))
