"""Request sizes, waits and codec of the copy, from the client settings that tune MirrorMaker 2.

The keys and their precedence are MirrorMaker 2's (`B.producer.x`, `A->B.producer.override.x`,
`A.consumer.x`). A value that is valid in Java is never rejected. A value that the copy could not
work with is limited to the bounds that docs/configuration.md gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.config.values.origin import ClientProperties, Setting, refuse
from twinlog.config.values.types import to_choice, to_number, trimmed
from twinlog.wire.compression import Recompression
from twinlog.wire.record_batch import Codec

MEBIBYTE: Final = 1 << 20
LEAST_MEMORY_BYTES: Final = MEBIBYTE
MOST_REQUEST_BYTES: Final = 64 * MEBIBYTE
"""Limit of `request_bytes`. The last batch of a request may exceed it, and brokers accept 100 MiB
(socket.request.max.bytes).
"""

LEAST_TIMEOUT_MS: Final = 1_000
LEAST_WAIT_MS, MOST_WAIT_MS = 5, 500
"""Limits of a Fetch's wait at the broker. A broker answers the requests of a connection in order,
so newly assigned and revoked partitions wait until the current Fetch is answered.
"""

GATHER_MS: Final = 4

_CODECS: Final = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Request sizes, waits and codec of a lane. Benchmarks were run with the defaults."""

    fetch_bytes: int = 8 * MEBIBYTE
    """Maximum bytes per Fetch response."""
    partition_fetch_bytes: int = 2 * MEBIBYTE
    """Maximum bytes per partition in a Fetch response. A batch that is larger is returned whole."""
    fetch_least_bytes: int = 1
    """A Fetch response waits for this many bytes, but no longer than `fetch_wait_ms`."""
    fetch_wait_ms: int = MOST_WAIT_MS
    gather_ms: int = GATHER_MS
    """How long a Fetch waits for more batches while they arrive steadily, or 0 for no wait."""
    request_bytes: int = MEBIBYTE
    """A Produce request is sent when it reaches this size. A single batch may be larger."""
    join_bytes: int = 0
    """Small batches are joined up to this size; 0 means that they are not joined."""
    rack: str = ""
    """Rack of this client, or empty. Partitions are fetched from a replica in this rack, if there
    is one (KIP-392).
    """
    recompression: Recompression | None = None
    """Codec of batches that are re-encoded, or None if all batches keep their codec."""


def read_tuning(
    consumer: ClientProperties,
    producer: ClientProperties,
    compression: Setting | None,
    *,
    gathers: bool = True,
) -> Tuning:
    """Return the tuning. Raises ConfigError for an invalid number or codec. `compression` is the
    setting twinlog.compression. `gathers` is True if twinlog.latency = balanced.
    """
    usual = Tuning()
    least_bytes = _number(consumer, "fetch.min.bytes", usual.fetch_least_bytes)
    return Tuning(
        fetch_bytes=_number(consumer, "fetch.max.bytes", usual.fetch_bytes),
        partition_fetch_bytes=_number(
            consumer, "max.partition.fetch.bytes", usual.partition_fetch_bytes
        ),
        fetch_least_bytes=least_bytes,
        fetch_wait_ms=max(
            LEAST_WAIT_MS,
            min(MOST_WAIT_MS, _number(consumer, "fetch.max.wait.ms", usual.fetch_wait_ms)),
        ),
        # no gathering with fetch.min.bytes, which already defines how long records wait
        gather_ms=usual.gather_ms if gathers and least_bytes == 1 else 0,
        request_bytes=min(
            MOST_REQUEST_BYTES, _number(producer, "max.request.size", usual.request_bytes)
        ),
        join_bytes=_number(producer, "batch.size", usual.join_bytes),
        rack=trimmed(consumer["client.rack"]) if "client.rack" in consumer else usual.rack,
        recompression=_recompression(producer, compression),
    )


def lane_memory(setting: Setting | None, producer: ClientProperties, default: int) -> int:
    """Return twinlog.lane.memory.bytes, else the producer's buffer.memory, else the default."""
    if setting is not None:
        return default
    return _number(producer, "buffer.memory", default, width="long", least=LEAST_MEMORY_BYTES)


def request_timeout_ms(client: ClientProperties, default: int) -> int:
    return _number(client, "request.timeout.ms", default, least=LEAST_TIMEOUT_MS)


def _number(
    client: ClientProperties, key: str, default: int, *, width: str = "int", least: int = 1
) -> int:
    if key not in client:
        return default
    return max(least, to_number(client.origin(key), width=width, low=0))


def _recompression(producer: ClientProperties, compression: Setting | None) -> Recompression | None:
    every = compression is not None and trimmed(compression.value) == "enforce"
    if "compression.type" not in producer:
        if every and compression is not None:
            raise refuse(
                compression,
                "has no codec",
                "write <target alias>.producer.compression.type too",
                missing_key="producer.compression.type",
            )
        return None
    codec = _CODECS[to_choice(producer.origin("compression.type"), tuple(_CODECS))]
    if codec is Codec.NONE and not every:
        return None
    return Recompression(codec=codec, every=every)
