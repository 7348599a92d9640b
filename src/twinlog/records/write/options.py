"""Options of writing, parsed once: those of Spark's `format("kafka")`, and additional ones."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.keys.client_keys import Role
from twinlog.config.values.origin import ClientProperties
from twinlog.records.bounds import option_error
from twinlog.records.given import client_of, named_options, positive, settings_of, warn_no_effect
from twinlog.wire.record_batch import Codec

TRANSACTIONAL_ID: Final = "transactional.id"
TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
MOST_TIMEOUT_MS: Final = 900_000
"""The brokers' default transaction.max.timeout.ms."""
MAX_REQUEST_SIZE: Final = 1 << 20
"""Java's max.request.size. Brokers accept batches that are 12 bytes larger (max.message.bytes)."""

IGNORED: Final = {"includeHeaders": "a column `headers` is always written"}

REFUSED_KEYS: Final = {
    "key.serializer": "keys are bytes or text; convert the column",
    "value.serializer": "values are bytes or text; convert the column",
    "partitioner.class": "records are partitioned as by Java's producer, or by a column partition",
    **dict.fromkeys(("interceptor.classes", "security.providers"), "Java code cannot run here"),
}
"""Keys of a producer that cannot have an effect, and what to do."""

FIXED_SETTINGS: Final = {
    "acks": (("all", "-1"), ("1", "0")),
    "enable.idempotence": (("true",), ("false",)),
}
"""For each key, the values that a transaction requires, and weaker values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What to write, where, and as which producer. Its repr hides secrets."""

    properties: ClientProperties
    topic: str
    """Topic of all rows; empty if rows name their topics."""
    transactional_id: str
    write_id: str
    """ID of a batch write; empty for streams, where Spark identifies the query."""
    timeout_ms: int
    codec: Codec
    max_bytes: int
    needs_mark: bool
    """True to refuse a micro-batch, except the first, if the cluster has no mark (`commit_mark`) of
    the previous one.
    """

    def cluster(self) -> ClusterSettings:
        """Return the connection settings. Raises ConfigError."""
        return settings_of(self.properties, "twinlog-writer")


def parse_write_options(given: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse the options. Raises ConfigError with the option, what is wrong, and what to do."""
    options, properties = named_options(given, Role.PRODUCER, IGNORED, REFUSED_KEYS)
    client = client_of(properties, Role.PRODUCER, REFUSED_KEYS)
    _warn_of_weaker(client)
    topic = options.get("topic", "").strip()
    if "topic" in options and not topic:
        raise option_error(
            "topic", "it is empty", "name a topic, or remove the option and add a column topic"
        )
    missing = options.get("missingMark", "fail").strip().lower()
    if missing not in ("fail", "write"):
        raise option_error(
            "missingMark", f"{missing!r} is not a valid value", "write fail or write"
        )
    write_id = _write_id(options, is_stream=is_stream)
    return WriteOptions(
        properties=client,
        topic=topic,
        transactional_id=_transactional_id(options, client, write_id),
        write_id=write_id,
        timeout_ms=positive(
            f"kafka.{TRANSACTION_TIMEOUT}", client.get(TRANSACTION_TIMEOUT, str(MOST_TIMEOUT_MS))
        ),
        codec=_codec(client.get("compression.type", "none")),
        max_bytes=positive(
            "kafka.max.request.size", client.get("max.request.size", str(MAX_REQUEST_SIZE))
        ),
        needs_mark=missing == "fail",
    )


def _warn_of_weaker(client: ClientProperties) -> None:
    """Warn of a setting weaker than a transaction's. Raises ConfigError for an invalid value."""
    for key, (always, weaker) in FIXED_SETTINGS.items():
        word = client.get(key, always[0]).strip().lower()
        if word in weaker:
            warn_no_effect(f"kafka.{key}", f"a transaction always has {always[0]}")
        elif word not in always:
            raise option_error(
                f"kafka.{key}", f"{word!r} is not a valid value", f"write {always[0]}"
            )


def _write_id(options: Mapping[str, str], *, is_stream: bool) -> str:
    if not is_stream:
        return options.get("writeId", "").strip() or str(uuid.uuid4())
    if "writeId" in options:
        raise option_error(
            "writeId", "only batches have it", "remove it, because Spark identifies a stream itself"
        )
    return ""


def _transactional_id(options: Mapping[str, str], client: ClientProperties, write_id: str) -> str:
    """Return the transactional ID. Every run of a query or write has the same ID, so that a new run
    fences earlier runs.
    """
    transactional_id = client.get(TRANSACTIONAL_ID, "").strip()
    if transactional_id:
        return transactional_id
    seed = write_id or options.get("checkpointLocation", "").strip()
    if not seed:
        raise option_error(
            f"kafka.{TRANSACTIONAL_ID}",
            "missing, and an ID cannot be derived without the option checkpointLocation (the "
            "session's spark.sql.streaming.checkpointLocation is not visible here)",
            "write one of the two options; each query needs its own ID",
        )
    return f"twinlog-{hashlib.sha256(seed.rstrip('/').encode()).hexdigest()[:20]}"


def _codec(text: str) -> Codec:
    name = text.strip().upper()
    if name not in Codec.__members__:
        codecs = ", ".join(codec.name.lower() for codec in Codec)
        raise option_error(
            "kafka.compression.type", f"{text!r} is not a valid value", f"write one of {codecs}"
        )
    return Codec[name]
