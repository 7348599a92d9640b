"""Sizes and codec of the copy, from the client settings that people tune MirrorMaker 2 with.

Where they stand is MirrorMaker 2's business (`B.producer.x`, `A->B.producer.override.x`,
`A.consumer.x`). A value that Java takes is never refused; one that the copy could not work with is
brought within bounds, which the key's row in docs/configuration.md gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.config.values.origin import ClientProperties, Setting, refuse
from twinlog.config.values.types import to_choice, to_number, trimmed
from twinlog.wire.recompress import Recompression
from twinlog.wire.record_batch import Codec

MEBIBYTE: Final = 1 << 20
LEAST_MEMORY_BYTES: Final = MEBIBYTE
MOST_REQUEST_BYTES: Final = 64 * MEBIBYTE
"""Brokers take 100 MiB (socket.request.max.bytes), and the last batch may go over."""

LEAST_TIMEOUT_MS: Final = 1_000
LEAST_WAIT_MS, MOST_WAIT_MS = 5, 500
"""Of a Fetch at the broker. A broker answers a connection in turn: what a lane is given meanwhile,
or is to hand over, waits behind the one that is there."""

_MOST_INT: Final = (1 << 31) - 1

_CODECS: Final = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a lane gets to know of sizes; the defaults are what the copy was measured with."""

    fetch_bytes: int = 8 * MEBIBYTE
    """Of one Fetch answer."""
    partition_fetch_bytes: int = 2 * MEBIBYTE
    """Of one partition in it; a batch that is larger comes as a whole."""
    fetch_least_bytes: int = 1
    """A Fetch answer waits for so much, and no longer than `fetch_wait_ms`."""
    fetch_wait_ms: int = MOST_WAIT_MS
    request_bytes: int = MEBIBYTE
    """A Produce request is closed when it holds so much; one batch may be larger."""
    join_bytes: int = 0
    """Batches of a few records are joined up to this size; 0: they stay as they are."""
    rack: str = ""
    """Where we are: partitions are read from a replica there, if the leader knows one (KIP-392)."""
    recompression: Recompression | None = None
    """None: every batch keeps its codec."""


def read_tuning(
    consumer: ClientProperties, producer: ClientProperties, compression: Setting | None
) -> Tuning:
    """Raises ConfigError for what is no number or no codec; `compression` is ours, or None."""
    usual = Tuning()
    return Tuning(
        fetch_bytes=_size(consumer, "fetch.max.bytes", usual.fetch_bytes),
        partition_fetch_bytes=_size(
            consumer, "max.partition.fetch.bytes", usual.partition_fetch_bytes
        ),
        fetch_least_bytes=_size(consumer, "fetch.min.bytes", usual.fetch_least_bytes),
        fetch_wait_ms=max(
            LEAST_WAIT_MS,
            min(MOST_WAIT_MS, _size(consumer, "fetch.max.wait.ms", usual.fetch_wait_ms)),
        ),
        request_bytes=min(
            MOST_REQUEST_BYTES, _size(producer, "max.request.size", usual.request_bytes)
        ),
        join_bytes=_size(producer, "batch.size", usual.join_bytes),
        rack=trimmed(consumer["client.rack"]) if "client.rack" in consumer else usual.rack,
        recompression=_recompression(producer, compression),
    )


def is_cut(asked: Setting) -> bool:
    """Whether this `max.request.size` is more than a request may hold here."""
    return to_number(asked, width="int", low=0, high=_MOST_INT) > MOST_REQUEST_BYTES


def lane_memory(own: Setting | None, producer: ClientProperties, usual: int) -> int:
    """Our own key, else the producer's buffer.memory, else the usual."""
    if own is not None or "buffer.memory" not in producer:
        return usual
    asked = to_number(producer.origin("buffer.memory"), width="long", low=0)
    return max(LEAST_MEMORY_BYTES, asked)


def request_timeout_ms(client: ClientProperties, usual: int) -> int:
    """How long an answer of this client may take."""
    if "request.timeout.ms" not in client:
        return usual
    asked = to_number(client.origin("request.timeout.ms"), width="int", low=0)
    return max(LEAST_TIMEOUT_MS, asked)


def _size(client: ClientProperties, key: str, usual: int) -> int:
    if key not in client:
        return usual
    return max(1, to_number(client.origin(key), width="int", low=0, high=_MOST_INT))


def _recompression(producer: ClientProperties, compression: Setting | None) -> Recompression | None:
    every = compression is not None and trimmed(compression.value) == "enforce"
    if "compression.type" not in producer:
        if every and compression is not None:
            raise refuse(
                compression,
                "names no codec",
                "write <target alias>.producer.compression.type too",
                lacks="producer.compression.type",
            )
        return None
    codec = _CODECS[to_choice(producer.origin("compression.type"), tuple(_CODECS))]
    if codec is Codec.NONE and not every:
        return None
    return Recompression(codec=codec, every=every)
