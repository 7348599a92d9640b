"""What people want of a flow: rows of the state topic beside the claims, which whoever leads it
follows.

An intent is wanted or taken back; the newest row of a key counts, and compaction keeps it. So it
outlives every process, and to write one twice is to write it once:

- the writer dies before the row: nothing happened; behind it, or its answer is lost: it is written,
  and the same command finds it and writes nothing;
- a leader that was frozen, or has lost its lead, follows it later or not at all: its lanes end by
  the rules of the lead, as without it;
- two people want different things: the later row counts, for all;
- a row cannot be read, or is of a newer release: what it wants is not known. Nothing that runs is
  stopped for it, and nothing begins (`RunState.holds_back`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from twinlog.config.values.times import in_iso
from twinlog.errors import CorruptData
from twinlog.mirror.state.acceptance import ACCEPT, WantedAcceptance, wanted_acceptance
from twinlog.mirror.state.generations import encode_row, of_type, read_row
from twinlog.mirror.state.skipping import SKIP, WantedSkip, wanted_skip

INTENT: Final = "intent"


class IntentKind(StrEnum):
    """What can be wanted."""

    PAUSE = "pause"
    """Of a flow or a topic: nothing is copied until it is taken back."""
    RELEASE = "release"
    """Of a topic: it is not mirrored any more, and its remote topic is left alone."""
    LIMIT = "limit"
    """Of a flow: bytes per second, in place of what the configuration says."""
    PROMOTE = "promote"
    """Of a topic: its remote topic is the original now, and is left alone. Of a flow: nothing is
    copied any more, of whatever topic."""
    FENCE = "fence"
    """Of a topic: an ACL that keeps producers from it on the source is ours, and ours to remove."""
    REPLAY = "replay"
    """Of a topic: the divergent tail of its source was begun to be appended to its remote topic."""

    @property
    def participle(self) -> str:
        """What a flow or topic is then: `paused`."""
        return f"{self}d" if self.endswith("e") else f"{self}ed"


RESUMED: Final = (IntentKind.PAUSE, IntentKind.RELEASE)
"""What `topic resume` takes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One row."""

    flow: str
    kind: IntentKind
    topic: str = ""
    """On the source; empty: the whole flow."""
    is_set: bool
    """False: it was taken back."""
    bytes_per_second: int | None = None
    who: str
    at_ms: int
    reason: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        value = {
            "is_set": self.is_set,
            "bytes_per_second": self.bytes_per_second,
            "who": self.who,
            "at_ms": self.at_ms,
            "reason": self.reason,
        }
        return encode_row(["flow", self.flow, INTENT, self.kind, self.topic], value)

    @property
    def key(self) -> tuple[IntentKind, str]:
        return self.kind, self.topic

    def __str__(self) -> str:
        return f"by {self.whose}"

    @property
    def whose(self) -> str:
        """Who wanted it, and why."""
        return f"{self.who}: {self.reason}" if self.reason else self.who


@dataclass(frozen=True, slots=True)
class FlowIntents:
    """Everything that is wanted of one flow now."""

    _set: Mapping[tuple[IntentKind, str], Intent] = field(default_factory=dict)
    skips: tuple[WantedSkip, ...] = ()
    """Records that are left out, in the order of their places; nobody takes that back."""
    accepted: tuple[WantedAcceptance, ...] = ()
    """Records of somebody else in remote topics; nor that."""

    def get(self, kind: IntentKind, topic: str = "") -> Intent | None:
        """The intent, where it is wanted now."""
        return self._set.get((kind, topic))

    @property
    def pause(self) -> Intent | None:
        """Of the whole flow."""
        return self.get(IntentKind.PAUSE)

    @property
    def limit(self) -> int | None:
        """Bytes per second; None: as the configuration says."""
        found = self.get(IntentKind.LIMIT)
        return None if found is None else found.bytes_per_second

    def pause_of(self, topic: str) -> Intent | None:
        """Why the topic is not copied: its own pause, or that of the flow."""
        return self.get(IntentKind.PAUSE, topic) or self.pause

    def keys(self) -> Iterable[tuple[IntentKind, str]]:
        """Everything that is wanted, by kind and topic."""
        return self._set.keys()

    @property
    def promotion(self) -> Intent | None:
        """Of the whole flow."""
        return self.get(IntentKind.PROMOTE)

    @property
    def released(self) -> frozenset[str]:
        """Topics that are not to be mirrored."""
        kinds = (IntentKind.RELEASE, IntentKind.PROMOTE)
        return frozenset(topic for kind in kinds for topic in self.topics(kind))

    def has_new_owners(self, topic: str) -> bool:
        """Return True if other clients may write to the copy of this source topic."""
        return self.promotion is not None or topic in self.released

    def topics(self, kind: IntentKind) -> list[str]:
        """Of which topics it is wanted, beside the flow."""
        return sorted(topic for one, topic in self._set if one is kind and topic)

    @property
    def copied_replays(self) -> frozenset[str]:
        """Topics that are copied although a failback has begun to append their tail."""
        if self.promotion is not None:
            return frozenset()
        return frozenset(self.topics(IntentKind.REPLAY)) - self.released

    def after(self, intents: Iterable[Intent]) -> FlowIntents:
        """Return the intents as they will be after these rows were written."""
        found = dict(self._set)
        for one in intents:
            found.pop(one.key, None)
            if one.is_set:
                found[one.key] = one
        return replace(self, _set=found)

    def rows(self) -> list[tuple[bytes, bytes]]:
        """(key, value) of all of it."""
        repairs = [*(one.encode() for one in self.skips), *(one.encode() for one in self.accepted)]
        return [*(one.encode() for one in self._set.values()), *repairs]


def promoted(flow: str, promotion: Intent) -> str:
    """Why a flow copies nothing any more, for people."""
    return (
        f"{flow} was promoted {promotion}, {in_iso(promotion.at_ms)}: its remote topics are the "
        "originals now, and nothing is copied to them; twinlog flow demote takes it back"
    )


def topic_promoted(promotion: Intent) -> str:
    """Return a message: why a topic that was promoted by name is no longer copied."""
    return (
        f"promoted {promotion}, {in_iso(promotion.at_ms)}: its remote topic is the original now, "
        "and nothing is copied to it; twinlog topic demote takes it back"
    )


def is_intent_row(key: bytes | None, flow: str) -> bool:
    """Whether a row may be an intent of this flow; also one whose key cannot be read."""
    try:
        parts = json.loads(key or b"null")
        return bool(parts[1] == flow and parts[2] == INTENT)
    except (ValueError, LookupError, TypeError):
        return True


def flow_intents(
    flow: str,
    rows: Iterable[tuple[bytes | None, bytes | None]],
    known: FlowIntents | None = None,
    corrupt: set[tuple[IntentKind, str]] | None = None,
) -> FlowIntents:
    """From (key, value) in log order. Raises CorruptData for a newest row that cannot be read.

    `known`: what was wanted before, and is wanted still where no row takes it back: the topic may
    have been created again. `corrupt`: gets kind and topic of pauses and limits that are
    STATE_CORRUPT, which then raise nothing.
    """
    known = known or FlowIntents()
    found = dict(known._set)
    skips = {one.record_key: one for one in known.skips}
    accepted = {one.record_key: one for one in known.accepted}
    for key, value in _newest(flow, rows):
        try:
            parts, fields = read_row(key, value)
            one = None if parts[3:4] in ([SKIP], [ACCEPT]) else _intent(parts, fields)
        except CorruptData as error:
            replaceable = _replaceable(key)
            if corrupt is None or replaceable is None or error.code != "STATE_CORRUPT":
                raise
            corrupt.add(replaceable)
            continue
        if parts[3:4] == [SKIP]:
            skip = wanted_skip(parts, fields)
            skips[skip.record_key] = skip
        elif parts[3:4] == [ACCEPT]:
            acceptance = wanted_acceptance(parts, fields)
            accepted[acceptance.record_key] = acceptance
        elif one is not None and one.is_set:
            found[one.key] = one
        elif one is not None:
            found.pop(one.key, None)
    return FlowIntents(
        found,
        tuple(skips[key] for key in sorted(skips)),
        tuple(accepted[key] for key in sorted(accepted)),
    )


def fenced_since_promotion(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> set[str]:
    """Return the topics with a fence that is newer than their last promotion row or the flow's,
    even if that row took a promotion back. `rows` are (key, value) in log order.
    """
    fenced: set[str] = set()
    for key, value in _newest(flow, rows):
        (_, _, _, kind, topic, *_), fields = read_row(key, value)
        if kind == IntentKind.PROMOTE:
            fenced = {one for one in fenced if topic not in ("", one)}
        elif kind == IntentKind.FENCE and fields["is_set"]:
            fenced.add(topic)
    return fenced


def _replaceable(key: bytes) -> tuple[IntentKind, str] | None:
    """Of a pause or a limit, by its key alone: the next row of that key says what is wanted."""
    try:
        _, _, _, kind, topic = json.loads(key)
    except ValueError:
        return None
    is_one = kind in (IntentKind.PAUSE, IntentKind.LIMIT) and isinstance(topic, str)
    return (IntentKind(kind), topic) if is_one else None


def _newest(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> Iterable[tuple[bytes, bytes]]:
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
    try:
        _, flow, _, kind, topic = parts
        if kind not in list(IntentKind):
            raise CorruptData(
                f"the state topic holds an intent that this release does not know, {kind!r} of "
                f"{flow}: upgrade Twinlog",
                code="STATE_TOO_NEW",
            )
        intent = Intent(
            flow=flow,
            kind=IntentKind(kind),
            topic=of_type(str, topic),
            is_set=of_type(bool, fields["is_set"]),
            bytes_per_second=_rate(fields["bytes_per_second"]),
            who=of_type(str, fields["who"]),
            at_ms=of_type(int, fields["at_ms"]),
            reason=of_type(str, fields["reason"]),
        )
        if intent.kind is IntentKind.LIMIT and intent.is_set and intent.bytes_per_second is None:
            raise ValueError("a limit without a number")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(
            f"an intent in the state topic cannot be read: {error!r}", code="STATE_CORRUPT"
        ) from error
    return intent


def _rate(value: object) -> int | None:
    if value is not None and (type(value) is not int or value <= 0):
        raise ValueError("bytes_per_second is no positive number")
    return value
