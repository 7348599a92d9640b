"""Options of reading, parsed once: those of Spark's `format("kafka")`, and additional ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.keys.client_keys import ISOLATION_LEVEL, Role
from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.config.regex.reader import RegexProblem
from twinlog.config.values.origin import ClientProperties
from twinlog.model import Isolation, TopicPartition
from twinlog.records.bounds import (
    JSON_EARLIEST,
    JSON_LATEST,
    Bound,
    BoundKind,
    flag,
    option_error,
    parse_assignment,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
    wants_headers,
)
from twinlog.records.given import (
    READER,
    client_of,
    named_options,
    positive,
    settings_of,
    warn_no_effect,
)

_PREFIX: Final = "kafka."

_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_LIMITS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")

IGNORED: Final = {
    "groupIdPrefix": "reading does not use a group",
    "kafkaConsumer.pollTimeoutMs": "use kafka.request.timeout.ms",
    "fetchOffset.numRetries": "retriable errors are retried for a minute",
    "fetchOffset.retryIntervalMs": "retriable errors are retried for a minute",
    "minOffsetsPerTrigger": "a micro-batch begins when there are records",
    "maxTriggerDelay": "a micro-batch begins when there are records",
    "maxRecordsPerPartition": "use minPartitions to get more tasks",
}
"""Options of Spark's source that have no effect here, with the reason."""

REFUSED_KEYS: Final = {
    "auto.offset.reset": "write startingOffsets",
    "key.deserializer": "keys are bytes; convert the column",
    "value.deserializer": "values are bytes; convert the column",
    "enable.auto.commit": "write commitGroup",
    **dict.fromkeys(("interceptor.classes", "security.providers"), "Java code cannot run here"),
}
"""Client keys that are refused, with advice. Spark's source refuses most of them as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read, and from which cluster. Its repr hides secrets."""

    properties: ClientProperties
    topics: tuple[str, ...]
    pattern: str
    """Pattern of the topics to read, or empty if topics or partitions are listed."""
    assigned: tuple[TopicPartition, ...]
    """Partitions to read, or empty if topics or a pattern are given."""
    starting: Bound
    ending: Bound
    isolation: Isolation
    min_partitions: int | None
    max_offsets: int | None
    """Maximum number of offsets per micro-batch, over all partitions."""
    max_bytes: int | None
    commit_group: str
    fails_on_data_loss: bool
    pushes_filters: bool
    """True if the query's filters limit which records are read. Only for batches."""
    upstreams: tuple[str, ...]
    """Aliases of source clusters whose records get the column `_upstream`."""

    def cluster(self) -> ClusterSettings:
        """Return the connection settings. Raises ConfigError."""
        return settings_of(self.properties, READER)

    def names(self) -> NamePattern:
        """Return the pattern of `subscribePattern`, which matches whole names by Java's rules."""
        return _compile(self.pattern)


def parse_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Parse the options. Raises ConfigError with the option, what is wrong, and what to do."""
    options, properties = named_options(given, Role.CONSUMER, IGNORED, REFUSED_KEYS)
    _check_kind(options, is_stream=is_stream)
    wants_headers(options)
    topics, pattern, assigned = _topics(options)
    client = client_of(properties, Role.CONSUMER, REFUSED_KEYS)
    starting = _starting(options, is_stream=is_stream)
    return ReadOptions(
        properties=client,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=_ending(options),
        isolation=_isolation(options.get("isolation"), client.get(ISOLATION_LEVEL)),
        min_partitions=_optional_positive(options, "minPartitions"),
        max_offsets=_optional_positive(options, "maxOffsetsPerTrigger"),
        max_bytes=_optional_positive(options, "maxBytesPerTrigger"),
        commit_group=options.get("commitGroup", "").strip(),
        fails_on_data_loss=flag(options, "failOnDataLoss", default=True),
        pushes_filters=flag(options, "pushFilters", default=False),
        upstreams=_upstreams(options),
    )


def _check_kind(options: Mapping[str, str], *, is_stream: bool) -> None:
    if is_stream:
        for name in _ENDS:
            if name in options:
                raise option_error(name, "a stream has no end", "remove it, or use spark.read")
        if "pushFilters" in options:
            raise option_error("pushFilters", "Spark passes no filters to streams", "remove it")
        return
    if "commitGroup" in options:
        raise option_error(
            "commitGroup", "only streams have it", "remove it, or use spark.readStream"
        )
    for name in _LIMITS:
        if name in options:
            warn_no_effect(name, "a batch reads everything at once")


def _topics(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], str, tuple[TopicPartition, ...]]:
    names = [name for name in _TOPICS if name in options]
    if len(names) != 1:
        what = f"{' and '.join(names)} are given" if names else "no topic is given"
        raise option_error("subscribe", what, f"give exactly one of {', '.join(_TOPICS)}")
    (name,) = names
    text = options[name].strip()
    if name == "assign":
        return (), "", parse_assignment(name, text)
    if name == "subscribePattern":
        _compile(text)
        return (), text, ()
    topics = sorted({topic for part in text.split(",") if (topic := part.strip())})
    if not topics:
        raise option_error(name, "it names no topic", "write subscribe=orders,payments")
    return tuple(topics), "", ()


def _compile(pattern: str) -> NamePattern:
    if not pattern:
        raise option_error(
            "subscribePattern", "it is empty", "write a pattern, for example orders.*"
        )
    try:
        return compile_names([pattern])
    except RegexProblem as error:
        raise option_error("subscribePattern", str(error), "write another pattern") from None


def _starting(options: Mapping[str, str], *, is_stream: bool) -> Bound:
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise option_error(
            "startingOffsetsByTimestampStrategy",
            f"{strategy!r} is not a valid value",
            "write error or latest",
        )
    bound = _bound(options, _STARTS, needs_match=strategy == "error")
    if bound is None:
        kind = BoundKind.LATEST if is_stream else BoundKind.EARLIEST
        return Bound(kind=kind, option="startingOffsets")
    latest = bound.kind is BoundKind.LATEST or (
        bound.kind is BoundKind.OFFSETS and JSON_LATEST in bound.values.values()
    )
    if latest and not is_stream:
        raise option_error(
            bound.option, "a batch cannot begin at the end", "write earliest or offsets"
        )
    return bound


def _ending(options: Mapping[str, str]) -> Bound:
    bound = _bound(options, _ENDS, needs_match=False)
    if bound is None:
        return Bound(kind=BoundKind.LATEST, option="endingOffsets")
    earliest = bound.kind is BoundKind.EARLIEST or (
        bound.kind is BoundKind.OFFSETS and JSON_EARLIEST in bound.values.values()
    )
    if earliest:
        raise option_error(
            bound.option, "reading cannot end at the start", "write latest or offsets"
        )
    return bound


def _bound(
    options: Mapping[str, str], names: tuple[str, str, str], *, needs_match: bool
) -> Bound | None:
    """Return the bound of the first option in `names` that is given, in Spark's order: a time,
    times by partition, offsets. None if none of them is given.
    """
    at, by_partition, offsets = names
    if at in options:
        return parse_timestamp(at, options[at], needs_match=needs_match)
    if by_partition in options:
        return parse_timestamps(by_partition, options[by_partition], needs_match=needs_match)
    if offsets in options:
        return parse_offsets(offsets, options[offsets], may_use_names=names is _STARTS)
    return None


def _isolation(option: str | None, of_client: str | None) -> Isolation:
    texts = {
        name: text.strip().lower()
        for name, text in (("isolation", option), (_PREFIX + ISOLATION_LEVEL, of_client))
        if text is not None
    }
    for name, text in texts.items():
        if text not in tuple(Isolation):
            raise option_error(
                name, f"{text!r} is not an isolation level", f"write {' or '.join(Isolation)}"
            )
    if len(set(texts.values())) > 1:
        raise option_error(
            "isolation", "kafka.isolation.level has another value", "remove one of the two options"
        )
    return Isolation(next(iter(texts.values()), Isolation.READ_COMMITTED))


def _upstreams(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("upstream")
    aliases = sorted({alias for part in (text or "").split(",") if (alias := part.strip())})
    if text is not None and not aliases:
        raise option_error(
            "upstream", "it names no cluster", "write a source's alias, for example upstream=A"
        )
    return tuple(aliases)


def _optional_positive(options: Mapping[str, str], name: str) -> int | None:
    return positive(name, options[name]) if name in options else None
