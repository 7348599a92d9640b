"""Parses options for where reading begins or ends (a word, JSON, a time, a group), and booleans.
This module loads little, because Spark needs it for the schema before it creates a reader.

`{"orders": {"0": 23, "1": -2}}` gives an offset for each partition; -2 is the log start and -1 the
end, as in Spark's own source. Options by timestamp have the same form with milliseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from twinlog.config.values.times import NoTime, to_milliseconds
from twinlog.errors import ConfigError
from twinlog.model import TopicPartition

JSON_LATEST: Final = -1
JSON_EARLIEST: Final = -2

GROUP_PREFIX: Final = "group:"
TIME_PREFIX: Final = "time:"

MOST_PARTITION: Final = (1 << 31) - 1
MOST_OFFSET: Final = (1 << 63) - 1


class BoundKind(StrEnum):
    """The form in which an option gives a bound."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMES = "timestamps"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a read begins or ends in every partition."""

    kind: BoundKind
    option: str
    """The option that sets the bound, for messages."""
    values: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offset, or milliseconds since 1970, of each partition."""
    time_ms: int | None = None
    group: str = ""
    needs_match: bool = False
    """True if a partition without a record at or after the time is an error, False if the
    partition's end is used instead.
    """


def option_error(option: str, what: str, todo: str) -> ConfigError:
    """Return the error for an invalid option: what is wrong, and what to do."""
    return ConfigError(f'format("twinlog"): option {option}: {what}; {todo}')


def parse_offsets(option: str, text: str, *, may_use_names: bool) -> Bound:
    """Parse `earliest`, `latest` or JSON; with `may_use_names` also `group:NAME` and `time:ISO`."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Bound(kind=BoundKind(word.lower()), option=option)
    if may_use_names and word.startswith(GROUP_PREFIX):
        group = word.removeprefix(GROUP_PREFIX).strip()
        if not group:
            raise option_error(option, "'group:' names no group", "write group:NAME")
        return Bound(kind=BoundKind.GROUP, option=option, group=group)
    if word.startswith(TIME_PREFIX):
        return parse_time(option, word.removeprefix(TIME_PREFIX).strip())
    forms = "latest, time:2026-01-31T12:00:00Z"
    if may_use_names:
        forms = f"earliest, {forms.replace(',', ' (streams),', 1)}, group:NAME"
    if not word.startswith("{"):
        raise option_error(
            option,
            f"{word!r} is not a valid position",
            f'write {forms} or {{"topic": {{"0": 23}}}}',
        )
    values = _by_partition(option, word)
    low = [tp for tp, offset in values.items() if offset < JSON_EARLIEST]
    if low:
        todo = "write -2 for earliest, -1 for latest" if may_use_names else "write -1 for latest"
        raise option_error(option, f"{low[0]} has the invalid offset {values[low[0]]}", todo)
    return Bound(kind=BoundKind.OFFSETS, option=option, values=values)


def parse_time(option: str, text: str) -> Bound:
    """Parse one time for all partitions. A partition without a record since then uses its end."""
    try:
        at = to_milliseconds(text)
    except NoTime as error:
        raise option_error(option, error.what, error.todo) from None
    return Bound(kind=BoundKind.TIMES, option=option, time_ms=at)


def parse_timestamp(option: str, text: str, *, needs_match: bool) -> Bound:
    """Parse one time for all partitions, in ms since 1970, as Spark's `startingTimestamp`."""
    word = text.strip()
    if not word.isascii() or not word.isdigit() or int(word) > MOST_OFFSET:
        raise option_error(option, f"{word!r} is not a valid time", "write milliseconds since 1970")
    return Bound(kind=BoundKind.TIMES, option=option, time_ms=int(word), needs_match=needs_match)


def parse_timestamps(option: str, text: str, *, needs_match: bool) -> Bound:
    """Parse a time for each partition, in ms since 1970."""
    values = _by_partition(option, text)
    low = [tp for tp, at in values.items() if at < 0]
    if low:
        raise option_error(
            option, f"{low[0]} has the time {values[low[0]]}", "write milliseconds since 1970"
        )
    return Bound(kind=BoundKind.TIMES, option=option, values=values, needs_match=needs_match)


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse the partitions of `{"orders": [0, 1]}`, sorted."""
    todo = 'write {"topic": [0, 1]}'
    tps: set[TopicPartition] = set()
    for topic, partitions in _object(option, text, todo).items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)):
            raise option_error(option, f"topic {topic} has no list of partition numbers", todo)
        tps.update(TopicPartition(topic, partition) for partition in partitions)
    if not tps:
        raise option_error(option, "it names no partition", todo)
    return tuple(sorted(tps))


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the format of a Spark checkpoint, sorted."""
    out: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        out.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return out


def from_json(offsets: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Parse offsets of a Spark checkpoint, written by Twinlog or by Spark's own Kafka source."""
    return _offsets("checkpoint", offsets)


def _by_partition(option: str, text: str) -> dict[TopicPartition, int]:
    return _offsets(option, _object(option, text, 'write {"topic": {"0": 23}}'))


def _offsets(option: str, by_topic: Mapping[str, Any]) -> dict[TopicPartition, int]:
    todo = 'write {"topic": {"0": 23}}'
    out: dict[TopicPartition, int] = {}
    for topic, partitions in by_topic.items():
        if not isinstance(partitions, dict):
            raise option_error(option, f"topic {topic} has no object with partitions", todo)
        for number, value in partitions.items():
            if not (number.isascii() and number.isdigit() and _is_partition(int(number))):
                raise option_error(
                    option, f"topic {topic}: {number!r} is not a partition number", todo
                )
            if type(value) is not int or not -MOST_OFFSET <= value <= MOST_OFFSET:
                raise option_error(
                    option, f"{topic}-{number}: {value!r} is not a whole number", todo
                )
            out[TopicPartition(topic, int(number))] = value
    return out


def _is_partition(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_PARTITION


def _object(option: str, text: str, todo: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise option_error(option, f"it is not valid JSON ({error})", todo) from None
    if not isinstance(parsed, dict):
        raise option_error(option, "it is not a JSON object", todo)
    return parsed


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse a boolean, case-insensitive. Raises ConfigError."""
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise option_error(name, f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


def wants_headers(options: Mapping[str, str]) -> bool:
    """Return True if the column `headers` is requested."""
    return flag(options, "includeHeaders", default=False)
