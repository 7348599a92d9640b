"""Client settings that tune the copy: the prefixes under which they take effect, their bounds, and
errors.
"""

from __future__ import annotations

import pytest

from tests.support.properties import Loader, flow_of, refusal
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.flow.tuning import GATHER_MS, MEBIBYTE, Tuning
from twinlog.control.flow.wiring import flow_setup
from twinlog.wire.compression import Recompression
from twinlog.wire.record_batch import Codec


def test_a_file_that_tunes_nothing(read: Loader) -> None:
    flow = flow_of(read())
    assert flow.tuning == Tuning()
    assert flow.lanes.memory_bytes == 64 * MEBIBYTE
    setup = flow_setup(flow)
    assert {one.request_timeout_ms for one in (setup.source, setup.lane_target)} == {30_000}


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("A.consumer.fetch.max.bytes = 1000000", "fetch_bytes", 1_000_000),
        ("A->B.consumer.fetch.max.bytes = 1000000", "fetch_bytes", 1_000_000),
        ("A->B.source.consumer.fetch.max.bytes = 0", "fetch_bytes", 1),
        ("A.consumer.max.partition.fetch.bytes = 5", "partition_fetch_bytes", 5),
        ("A.consumer.fetch.min.bytes = 100000", "fetch_least_bytes", 100_000),
        ("A.consumer.fetch.min.bytes = 0", "fetch_least_bytes", 1),
        ("A.consumer.fetch.max.wait.ms = 100", "fetch_wait_ms", 100),
        ("A.consumer.fetch.max.wait.ms = 0", "fetch_wait_ms", 5),
        ("A.consumer.fetch.max.wait.ms = 10000", "fetch_wait_ms", 500),
        ("twinlog.latency = balanced", "gather_ms", GATHER_MS),
        ("A->B.twinlog.latency = lowest", "gather_ms", 0),
        ("A.consumer.fetch.min.bytes = 2", "gather_ms", 0),
        ("B.producer.max.request.size = 157286400", "request_bytes", 64 * MEBIBYTE),
        ("A->B.producer.override.max.request.size = 9", "request_bytes", 9),
        ("B.producer.batch.size = 50000", "join_bytes", 50_000),
        ("B.producer.batch.size = 0", "join_bytes", 1),
        # none of these settings affects the copy from A to B
        ("B.consumer.fetch.max.bytes = 1000000", "fetch_bytes", 8 * MEBIBYTE),
        ("A.producer.max.request.size = 9", "request_bytes", MEBIBYTE),
        ("A->B.producer.max.request.size = 9", "request_bytes", MEBIBYTE),
    ],
)
def test_sizes(read: Loader, line: str, field: str, value: int) -> None:
    assert getattr(flow_of(read(line)).tuning, field) == value


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["B.producer.buffer.memory = 225000000"], 225_000_000),
        (["B.producer.buffer.memory = 32768"], MEBIBYTE),
        (["B.producer.buffer.memory = 225000000", "twinlog.lane.memory.bytes = 2000000"], 2000000),
    ],
)
def test_the_memory_of_a_lane(read: Loader, lines: list[str], expected: int) -> None:
    assert flow_of(read(*lines)).lanes.memory_bytes == expected


def timeouts(flow: FlowConfig) -> list[int]:
    setup = flow_setup(flow)
    clusters = (setup.source, setup.lane_source, setup.target, setup.lane_target)
    return [one.request_timeout_ms for one in clusters]


def test_each_client_has_its_own_time_limit(read: Loader) -> None:
    flow = flow_of(
        read(
            "A.admin.request.timeout.ms = 5000",
            "A.consumer.request.timeout.ms = 6000",
            "B.admin.request.timeout.ms = 7",
            "B.producer.request.timeout.ms = 60000",
        )
    )
    assert timeouts(flow) == [5_000, 6_000, 1_000, 60_000]
    assert flow_setup(flow).lanes_share_user, "another time limit does not make another user"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["B.producer.compression.type = gzip"], Recompression(codec=Codec.GZIP)),
        (["B.producer.compression.type = none"], None),
        (
            ["B.producer.compression.type = zstd", "twinlog.compression = enforce"],
            Recompression(codec=Codec.ZSTD, every=True),
        ),
        (
            ["A->B.producer.override.compression.type = none", "B.twinlog.compression = enforce"],
            Recompression(codec=Codec.NONE, every=True),
        ),
        (["A->B.producer.compression.type = gzip"], None),
    ],
)
def test_the_codec(read: Loader, lines: list[str], expected: Recompression | None) -> None:
    assert flow_of(read(*lines)).tuning.recompression == expected


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("B.producer.compression.type = brotli", "write none or gzip or snappy or lz4 or zstd"),
        ("B.producer.buffer.memory = much", "not a whole number (long)"),
        ("A.consumer.fetch.max.bytes = -1", "too small"),
        ("B.producer.request.timeout.ms = soon", "not a whole number (int)"),
        ("twinlog.compression = always", "write keep or enforce"),
        ("twinlog.compression = enforce", "write <target alias>.producer.compression.type too"),
    ],
)
def test_refusals_name_their_line(read: Loader, line: str, what: str) -> None:
    message = refusal(lambda: read("# a comment", line))
    assert message.startswith(f"mm2.properties:6: {line.partition(' ')[0]}: ")
    assert what in message
