"""The operators' intents for a flow, that is, the commands in effect: rows of the state topic that
the flow's leader applies.

A row sets or revokes an intent. Only the newest row of a key counts, and compaction keeps it. So an
intent outlives every process, and writing a row twice has no effect:

- *The writer dies before the row*: nothing happened.
- *The writer dies after the row, or its response is lost*: the row is written. If the command is
  repeated, it finds the row and writes nothing.
- *A leader was frozen, or has lost its leadership*: it applies the intent later or not at all. Its
  lanes end by the rules of leadership, as always.
- *Two operators want different things*: the later row counts.
- *A row cannot be read, or is of a newer release*: the intent is unknown. So no running copy is
  stopped, and no copy is started (`RunState.hold_reason`).

**Single records.** A skip of a source record, and the acceptance of foreign records in a remote
topic, are intents that cannot be revoked. A release of Twinlog that does not know such rows starts
no copy (`STATE_CORRUPT`). Otherwise it would stop at a skipped record, or give the skipped record
the ordinal of the next one (`mirror.start_point`). Writing a row twice has no effect.

    key    ["flow", FLOW, "intent", "skip", TOPIC, TOPIC_ID, PARTITION, FIRST]
    value  {"v": 1, "next": ..., "is_batch": ..., "code": ..., "who": ..., "at_ms": ..., ...}

The key contains the position and the topic's ID, so no record of a re-created topic is skipped. Two
operators who skip the same record write the same key. The row is kept as long as the state topic
exists, because every later reader of that part of the source (a new leader, a new remote topic, a
rebuild of the map) must skip the same records.

    key    ["flow", FLOW, "intent", "accept", TOPIC, TOPIC_ID, PARTITION, FIRST]
    value  {"v": 1, "ranges": [first, next, ...], "k": ..., "digest": ..., "who": ..., ...}

Topic and ID are those of the target, because a re-created topic has different records. A later
acceptance for the same log and first record has the same key, so it replaces this row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final

from msgspec import Meta

from twinlog.config.values.times import in_iso
from twinlog.errors import CorruptData
from twinlog.mirror.accepted import Accepted
from twinlog.mirror.skips import Skip
from twinlog.mirror.state.state_row import Rows, StateRow, read_row, row
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

ACCEPT: Final = "accept"


@row("intent", ACCEPT, key=("topic", "topic_id", "partition", "first"))
class WantedAcceptance(StateRow, frozen=True, kw_only=True):
    """One acceptance of foreign records, as an operator requested it."""

    topic: str
    """Name of the topic on the target."""
    topic_id: TopicId
    partition: int
    first: int
    ranges: tuple[int, ...]
    """First and next target offset of each range, in one list."""
    k: int
    digest: int
    who: str
    at_ms: int
    reason: str

    def __post_init__(self) -> None:
        rises = all(before < after for before, after in pairwise(self.ranges))
        if len(self.ranges) % 2 or not rises or not 0 <= self.first == next(iter(self.ranges), -1):
            raise ValueError("its offsets are not valid ranges")

    @property
    def accepted(self) -> Accepted:
        ranges = tuple(zip(self.ranges[::2], self.ranges[1::2], strict=True))
        return Accepted(ranges=ranges, k=self.k, digest=self.digest)

    @property
    def record_key(self) -> tuple[str, str, int, int]:
        return self.topic, str(self.topic_id), self.partition, self.first

    def is_of(self, tp: TopicPartition, topic_id: str) -> bool:
        """Return True if the row is for this target partition and topic ID. Always False if brokers
        have no topic IDs.
        """
        known = self.topic_id != NO_TOPIC_ID and self.topic_id == topic_id
        return known and tp == (self.topic, self.partition)

    def __str__(self) -> str:
        suffix = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.partition} {self.accepted} by {self.who}{suffix}"


SKIP: Final = "skip"


@row("intent", SKIP, key=("topic", "topic_id", "partition", "first"))
class WantedSkip(StateRow, frozen=True, kw_only=True):
    """One skip of records, as an operator requested it."""

    topic: str
    """Name of the topic on the source."""
    topic_id: TopicId
    partition: int
    first: int
    next: int
    is_batch: bool
    code: str
    """Code with which the partition had stopped at the skipped record."""
    who: str
    at_ms: int
    reason: str

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.next:
            raise ValueError("its offsets are not a valid range")

    @property
    def skipped(self) -> Skip:
        return Skip(first=self.first, next=self.next, is_batch=self.is_batch)

    @property
    def record_key(self) -> tuple[str, str, int, int]:
        return self.topic, str(self.topic_id), self.partition, self.first

    def is_of(self, tp: TopicPartition, topic_id: str) -> bool:
        """Return True if the row is for this partition. An unknown topic ID matches any ID."""
        known = NO_TOPIC_ID in (self.topic_id, topic_id) or self.topic_id == topic_id
        return known and tp == (self.topic, self.partition)

    def __str__(self) -> str:
        suffix = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.partition} {self.skipped} [{self.code}] by {self.who}{suffix}"


INTENT: Final = "intent"


class IntentKind(StrEnum):
    PAUSE = "pause"
    """For a flow or a topic: nothing is copied until the pause is revoked."""
    RELEASE = "release"
    """For a topic: it is no longer mirrored, and the flow no longer writes to its remote topic."""
    LIMIT = "limit"
    """For a flow: the maximum number of bytes per second, in place of the configured one."""
    PROMOTE = "promote"
    """For a topic: its remote topic is now the original, so the flow no longer writes to it. For a
    flow: no topic is copied any more.
    """
    FENCE = "fence"
    """For a topic: Twinlog has created an ACL that blocks its producers on the source, so Twinlog
    may also remove that ACL.
    """
    REPLAY = "replay"
    """For a topic: a failback has begun to append the source's divergent tail to its remote
    topic.
    """

    @property
    def participle(self) -> str:
        """Word for the state of a flow or topic that has this intent, such as `paused`."""
        return f"{self}d" if self.endswith("e") else f"{self}ed"


RESUMED: Final = (IntentKind.PAUSE, IntentKind.RELEASE)
"""Intents that `topic resume` revokes."""


@row(INTENT, key=("kind", "topic"))
class Intent(StateRow, frozen=True, kw_only=True):
    """A row that sets or revokes one intent."""

    kind: IntentKind
    topic: str = ""
    """Name of the source topic, or empty for the whole flow."""
    is_set: bool
    """False if the intent was revoked."""
    bytes_per_second: Annotated[int, Meta(gt=0)] | None
    who: str
    at_ms: int
    reason: str

    @property
    def key(self) -> tuple[IntentKind, str]:
        return self.kind, self.topic

    def __str__(self) -> str:
        return f"by {self.whose}"

    @property
    def whose(self) -> str:
        """The operator who wrote the row and, if given, the reason."""
        return f"{self.who}: {self.reason}" if self.reason else self.who


@dataclass(frozen=True, slots=True)
class FlowIntents:
    _set: Mapping[tuple[IntentKind, str], Intent] = field(default_factory=dict)
    skips: tuple[WantedSkip, ...] = ()
    """Records to skip, in the order of their positions. Skips cannot be revoked."""
    accepted: tuple[WantedAcceptance, ...] = ()
    """Accepted foreign records in remote topics. Acceptances cannot be revoked."""

    def get(self, kind: IntentKind, topic: str = "") -> Intent | None:
        """Return the intent of this kind for the topic, or for the whole flow without a topic.
        Return None if it is not set.
        """
        return self._set.get((kind, topic))

    @property
    def pause(self) -> Intent | None:
        """The pause of the whole flow, or None."""
        return self.get(IntentKind.PAUSE)

    @property
    def limit(self) -> int | None:
        """The limit in bytes per second, or None if the configured one applies."""
        intent = self.get(IntentKind.LIMIT)
        return None if intent is None else intent.bytes_per_second

    def pause_of(self, topic: str) -> Intent | None:
        """Return the pause that applies to the topic: its own or the flow's, or None."""
        return self.get(IntentKind.PAUSE, topic) or self.pause

    def paused(self, topic: str = "") -> str:
        """Return text that says who paused the topic by its name, or the flow if no topic is given,
        and why. It is empty if there is no such pause.
        """
        pause = self.get(IntentKind.PAUSE, topic)
        return "" if pause is None else f"paused {pause}"

    def keys(self) -> Iterable[tuple[IntentKind, str]]:
        """Return kind and topic of all intents that are set."""
        return self._set.keys()

    @property
    def promotion(self) -> Intent | None:
        """The promotion of the whole flow, or None."""
        return self.get(IntentKind.PROMOTE)

    @property
    def unmirrored_topics(self) -> frozenset[str]:
        """Topics that are not mirrored because they were released or promoted."""
        kinds = (IntentKind.RELEASE, IntentKind.PROMOTE)
        return frozenset(topic for kind in kinds for topic in self.topics(kind))

    @property
    def new_owners(self) -> Callable[[str], bool]:
        """A function that takes a source topic, and returns True if other clients may write to its
        remote topic, because it was released or promoted. A status gets this function once and
        calls it for each partition, because that is faster.
        """
        return self.unmirrored_topics.__contains__ if self.promotion is None else lambda _: True

    def topics(self, kind: IntentKind) -> list[str]:
        """Return the topics for which an intent of this kind is set, other than for the whole
        flow.
        """
        return sorted(topic for set_kind, topic in self._set if set_kind is kind and topic)

    @property
    def copied_replays(self) -> frozenset[str]:
        """Topics that this flow copies although a failback has begun to append to them."""
        if self.promotion is not None:
            return frozenset()
        return frozenset(self.topics(IntentKind.REPLAY)) - self.unmirrored_topics

    def after(self, intents: Iterable[Intent]) -> FlowIntents:
        """Return the flow's intents as they will be after the rows `intents` are written."""
        changed = dict(self._set)
        for intent in intents:
            changed.pop(intent.key, None)
            if intent.is_set:
                changed[intent.key] = intent
        return replace(self, _set=changed)

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Return (key, value) of the rows of all intents, skips and acceptances."""
        repairs = [
            *(skip.encode() for skip in self.skips),
            *(acceptance.encode() for acceptance in self.accepted),
        ]
        return [*(intent.encode() for intent in self._set.values()), *repairs]


def promoted(flow: str, promotion: Intent) -> str:
    """Return a message that says why a flow no longer copies anything."""
    return (
        f"{flow} was promoted {promotion}, {in_iso(promotion.at_ms)}: its remote topics are the "
        "originals now, and nothing is copied to them; twinlog flow demote reverts it"
    )


def topic_promoted(promotion: Intent) -> str:
    """Return a message that says why a topic that was promoted by name is no longer copied."""
    return (
        f"promoted {promotion}, {in_iso(promotion.at_ms)}: its remote topic is now the original, "
        "and nothing is copied to it; twinlog topic demote reverts it"
    )


def is_intent_row(key: bytes | None, flow: str) -> bool:
    """Return True if `key` is that of an intent of this flow, or cannot be read, so that it may be
    one.
    """
    try:
        parts = json.loads(key or b"null")
        return bool(parts[1] == flow and parts[2] == INTENT)
    except (ValueError, LookupError, TypeError):
        return True


def flow_intents(
    flow: str,
    rows: Rows,
    earlier: FlowIntents | None = None,
    corrupt: set[tuple[IntentKind, str]] | None = None,
) -> FlowIntents:
    """Return a flow's intents from rows (key, value) in log order. Raises CorruptData if the newest
    row of a key cannot be read.

    `earlier`: intents that were read before. They stay set unless a row revokes them, because the
    state topic may have been re-created without them. `corrupt`: if given, pauses and limits that
    are STATE_CORRUPT do not raise. Instead, their kind and topic are added to this set.
    """
    earlier = earlier or FlowIntents()
    intents = dict(earlier._set)
    skips = {skip.record_key: skip for skip in earlier.skips}
    accepted = {acceptance.record_key: acceptance for acceptance in earlier.accepted}
    for key, value in _newest(flow, rows):
        try:
            parts, fields = read_row(key, value)
            intent = None if parts[3:4] in ([SKIP], [ACCEPT]) else _intent(parts, fields)
        except CorruptData as error:
            replaceable = _replaceable(key)
            if corrupt is None or replaceable is None or error.code != "STATE_CORRUPT":
                raise
            corrupt.add(replaceable)
            continue
        if parts[3:4] == [SKIP]:
            skip = WantedSkip.decode(parts, fields)
            skips[skip.record_key] = skip
        elif parts[3:4] == [ACCEPT]:
            acceptance = WantedAcceptance.decode(parts, fields)
            accepted[acceptance.record_key] = acceptance
        elif intent is not None and intent.is_set:
            intents[intent.key] = intent
        elif intent is not None:
            intents.pop(intent.key, None)
    return FlowIntents(
        intents,
        tuple(skips[key] for key in sorted(skips)),
        tuple(accepted[key] for key in sorted(accepted)),
    )


def fenced_since_promotion(flow: str, rows: Rows) -> set[str]:
    """Return the topics that have an intent `fence` whose row is newer than the last row about a
    promotion of the topic or the flow.

    A row that revokes a promotion counts, too. `rows` are (key, value) in log order.
    """
    fenced: set[str] = set()
    for key, value in _newest(flow, rows):
        (_, _, _, kind, topic, *_), fields = read_row(key, value)
        if kind == IntentKind.PROMOTE:
            fenced = {name for name in fenced if topic not in ("", name)}
        elif kind == IntentKind.FENCE and fields["is_set"]:
            fenced.add(topic)
    return fenced


def _replaceable(key: bytes) -> tuple[IntentKind, str] | None:
    """Return (kind, topic) if `key` is that of a pause or limit, else None. If the value of such a
    row cannot be read, the next command replaces the row.
    """
    try:
        _, _, _, kind, topic = json.loads(key)
    except ValueError:
        return None
    is_one = kind in (IntentKind.PAUSE, IntentKind.LIMIT) and isinstance(topic, str)
    return (IntentKind(kind), topic) if is_one else None


def _newest(flow: str, rows: Rows) -> Iterable[tuple[bytes, bytes]]:
    """Return the newest row of each key, in log order."""
    newest: dict[bytes, bytes] = {}
    for key, value in rows:
        if key is None or not is_intent_row(key, flow):
            continue
        newest.pop(key, None)
        if value is not None:
            newest[key] = value
    return newest.items()


def _intent(parts: list[Any], fields: dict[str, Any]) -> Intent:
    if len(parts) == 5 and parts[3] not in list(IntentKind):
        raise CorruptData(
            f"the state topic holds an intent that this release does not know, {parts[3]!r} of "
            f"{parts[1]}: upgrade Twinlog",
            code="STATE_TOO_NEW",
        )
    intent = Intent.decode(parts, fields)
    if intent.kind is IntentKind.LIMIT and intent.is_set and intent.bytes_per_second is None:
        raise Intent.corrupt_error("a limit without a number")
    return intent
