"""Client settings that tune the copy, on real brokers: their effects and their limits."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import raw
from tests.support.client import read_all
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.rig import Rig
from tests.support.topics import create_topic
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.config.flow.tuning import MEBIBYTE
from twinlog.errors import TwinlogError
from twinlog.lane.loop import HURRY_S
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import encode_batch

pytestmark = pytest.mark.broker


@pytest.fixture
def rig(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        yield rig


def codecs(rig: Rig) -> list[Codec]:
    answer = fetch_records(rig.target_client, {rig.there: (0, 1 << 20)})[rig.there]
    assert not isinstance(answer, TwinlogError)
    return [header.codec for header, _ in read_headers(answer.records)]


def put(rig: Rig, codecs_of_batches: Sequence[Codec]) -> None:
    """Write a batch of ten records for each codec, in this order."""
    for at, codec in enumerate(codecs_of_batches):
        records = [rig.record(n, size=200) for n in range(10 * at, 10 * at + 10)]
        raw.send(rig.source_client, rig.here, encode_batch(records, codec=codec)).expect_ok()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [Codec.NONE, Codec.LZ4, Codec.NONE]),
        ({"t.producer.compression.type": "gzip"}, [Codec.GZIP, Codec.LZ4, Codec.GZIP]),
        (
            {"t.producer.compression.type": "zstd", "twinlog.compression": "enforce"},
            [Codec.ZSTD] * 3,
        ),
    ],
)
def test_codec_of_the_copied_records(rig: Rig, keys: dict[str, str], expected: list[Codec]) -> None:
    rig.create()
    put(rig, [Codec.NONE, Codec.LZ4, Codec.NONE])
    rig.copy_once(keys)
    assert codecs(rig) == expected
    assert read_all(rig.target, rig.remote) == read_all(rig.source, rig.topic)
    # the next start compares the last records of both logs, and finds them equal
    rig.copy_once(keys)


def test_a_batch_that_is_encoded_again_anyway_gets_the_codec_too(rig: Rig) -> None:
    rig.create(message_timestamp_type="LogAppendTime")
    put(rig, [Codec.LZ4])
    rig.copy_once({"t.producer.compression.type": "gzip"})
    assert codecs(rig) == [Codec.GZIP]


@pytest.mark.witness("single-record batches are joined")
def test_batches_of_single_records_are_joined(rig: Rig) -> None:
    rig.create()
    put(rig, [Codec.NONE])  # a batch of ten records, which is not joined with others
    for n in range(10, 110):
        rig.put([n], size=200)
    rig.copy_once({"t.producer.batch.size": "4096"})
    batches = raw.batches(rig.target_client, rig.there)
    assert batches[0].records == 10
    assert len(batches) < 1 + 100 / 10
    rig.same()
    rig.offsets_are_exact()
    for n in range(110, 120):
        rig.put([n])
    # without the setting, a start finds the joined batches, and the copy continues after them
    rig.copy_once()
    rig.same()
    rig.offsets_are_exact()


COUNTS_ANSWERS = """
from twinlog.wire.fetch import FetchSession
parsed = FetchSession.parse
def count(self, view):
    answer = parsed(self, view)
    if any(one.records for one in answer.partitions):
        with open({path!r}, "a") as file:
            file.write("x")
    return answer
FetchSession.parse = count
"""
"""Prelude of a lane that appends a byte to a file for each Fetch response with records."""


@pytest.mark.parametrize(
    ("keys", "are_few"),
    [
        ({"fetch.min.bytes": "1000000"}, True),
        ({"fetch.min.bytes": "1000000", "fetch.max.wait.ms": "5"}, False),
        ({}, False),
    ],
    ids=["min", "min-short", "default"],
)
def test_small_batches_wait_at_the_source_until_they_are_many(
    rig: Rig, keys: dict[str, str], are_few: bool, tmp_path: Path
) -> None:
    rig.create()
    rig.put([0])
    counter = tmp_path / "answers"
    with rig.mirror(
        keys={f"{rig.alias}.consumer.{name}": value for name, value in keys.items()},
        prelude=COUNTS_ANSWERS.format(path=str(counter)),
    ):
        rig.copied(1)
        numbers, calm = itertools.count(1), time.monotonic() + HURRY_S
        # for this time, a lane that was just assigned a partition fetches without waiting
        while time.monotonic() < calm:
            rig.put([next(numbers)])
        before, began = counter.stat().st_size, time.monotonic()
        for number in itertools.islice(numbers, 200):
            rig.put([number])
        rig.copied(next(numbers))
        answers, took = counter.stat().st_size - before, time.monotonic() - began
    # fewer bytes than fetch.min.bytes wait for half a second
    assert (answers <= took / 0.5 + 4) is are_few, (answers, took)
    rig.same()


NOTES_LEAST_BYTES = """
from twinlog.wire.fetch import FetchSession
asked = FetchSession.request
def request(self, *, min_bytes, **others):
    with open({path!r}, "a") as file:
        print(min_bytes, file=file)
    return asked(self, min_bytes=min_bytes, **others)
FetchSession.request = request
"""
"""Prelude of a lane that writes to a file for how many bytes each Fetch waits."""


@pytest.mark.parametrize(("latency", "gathers"), [("balanced", True), ("lowest", False)])
def test_steady_records_are_read_together_unless_latency_is_lowest(
    rig: Rig, latency: str, gathers: bool, tmp_path: Path
) -> None:
    partitions, notes = 4, tmp_path / "least-bytes"
    create_topic(rig.source, rig.topic, partitions)
    producer = Producer({"bootstrap.servers": rig.source.bootstrap, "linger.ms": 0})
    with rig.mirror(
        keys={"twinlog.latency": latency}, prelude=NOTES_LEAST_BYTES.format(path=str(notes))
    ):
        eventually(notes.exists)
        until = time.monotonic() + (PATIENCE_S if gathers else STEADY_S)
        while time.monotonic() < until and not _has_gathered(notes):
            for partition in range(partitions):
                producer.produce(rig.topic, b"x" * 100, partition=partition)
            producer.flush()
        rig.copied(1)
    assert _has_gathered(notes) is gathers


def _has_gathered(notes: Path) -> bool:
    return any(int(line) > 1 for line in notes.read_text().split())


def test_smallest_sizes_still_copy_everything(rig: Rig) -> None:
    rig.create()
    put(rig, [Codec.NONE] * 20)
    rig.copy_once(
        {
            f"{rig.alias}.consumer.fetch.max.bytes": "1",
            f"{rig.alias}.consumer.max.partition.fetch.bytes": "1",
            f"{rig.alias}.consumer.request.timeout.ms": "5000",
            "t.producer.max.request.size": "1",
            "t.producer.batch.size": "1",
            "t.producer.buffer.memory": "1",
            "t.producer.request.timeout.ms": "5000",
        }
    )
    assert len(read_all(rig.target, rig.remote)) == 200
    rig.same()


def test_a_batch_of_40_mib_passes_where_the_file_allows_requests_of_150(rig: Rig) -> None:
    """The file permits requests of 150 MB. A request of several batches stays smaller, as `check`
    reports, but a single batch may be that large: a batch of 40 MiB is copied.
    """
    rig.create(max_message_bytes=str(48 * MEBIBYTE))
    rig.put([0])
    records = [rig.record(n, size=MEBIBYTE) for n in range(1, 41)]
    raw.send(rig.source_client, rig.here, encode_batch(records, codec=Codec.NONE)).expect_ok()
    rig.put([41])
    rig.copy_once({"t.producer.max.request.size": "157286400"})
    assert [batch.records for batch in raw.batches(rig.target_client, rig.there)] == [1, 40, 1]
    rig.same()
    rig.offsets_are_exact()


NOTES_REQUESTS = """
import twinlog.lane.sides.target_side as target_side
from twinlog.wire.fetch import FetchSession
asked, produced = FetchSession.request, target_side.produce_request
def note(*numbers):
    with open({path!r}, "a") as file:
        print(*numbers, file=file)
def request(self, *, max_bytes, **others):
    wanted = max((one.max_bytes for one in self._wanted.values()), default=0)
    note("fetch", max_bytes, wanted)
    return asked(self, max_bytes=max_bytes, **others)
def produce(version, batches, ids, timeout_ms):
    parts = produced(version, batches, ids, timeout_ms)
    note("produce", sum(map(len, batches.values())), timeout_ms)
    return parts
FetchSession.request, target_side.produce_request = request, produce
"""
"""Prelude of a lane that writes to a file the limits of each Fetch, and the size and timeout of
each Produce.
"""

STEADY_S = 3.0

BATCH_BYTES = 22_000
"""Size limit in bytes, slightly larger than a batch in the tests below."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The largest limits and sizes in the requests of a copy."""

    fetch_bytes: int
    partition_bytes: int
    produced_bytes: int
    timeout_ms: int


def requests_of(rig: Rig, note: Path, keys: dict[str, str]) -> Requests:
    with rig.mirror(once=True, keys=keys, prelude=NOTES_REQUESTS.format(path=str(note))) as mirror:
        (flow,) = mirror.wait()
    assert [p.state for p in flow.partitions] == ["DONE"] * len(flow.partitions)
    lines = [line.split() for line in note.read_text().splitlines()]
    fetched = [(int(a), int(b)) for kind, a, b in lines if kind == "fetch"]
    produced = [(int(a), int(b)) for kind, a, b in lines if kind == "produce"]
    return Requests(
        *(max(column) for column in (*zip(*fetched, strict=True), *zip(*produced, strict=True)))
    )


def test_limits_of_requests_are_those_of_their_keys(rig: Rig, tmp_path: Path) -> None:
    create_topic(rig.source, rig.topic, 8)
    records = [rig.record(n, size=2_000) for n in range(10)]
    for partition in range(8):
        batch = encode_batch(records, codec=Codec.NONE)
        for _ in range(4):
            tp = TopicPartition(rig.topic, partition)
            raw.send(rig.source_client, tp, batch).expect_ok()
    usual = requests_of(rig, tmp_path / "usual", {})
    assert usual.fetch_bytes > 4 * MEBIBYTE
    assert usual.partition_bytes > MEBIBYTE
    assert usual.timeout_ms == 30_000
    other = f"o{rig.alias}"
    keys = {
        "replication.policy.separator": f"-{other}-",
        f"{rig.alias}.consumer.fetch.max.bytes": "90000",
        f"{rig.alias}.consumer.max.partition.fetch.bytes": "50000",
        "t.producer.max.request.size": "50000",
        "t.producer.request.timeout.ms": "7000",
    }
    small = requests_of(rig, tmp_path / "small", keys)
    assert small == replace(small, fetch_bytes=90_000, partition_bytes=50_000, timeout_ms=7_000)
    assert BATCH_BYTES < small.produced_bytes < 50_000 + BATCH_BYTES < usual.produced_bytes
    keys = {"replication.policy.separator": f"_{other}_", "t.producer.buffer.memory": "1"}
    narrow = requests_of(rig, tmp_path / "narrow", keys)
    assert narrow.fetch_bytes <= MEBIBYTE
