"""Says what people want of a flow: pause, resume, limit, release, promote. Whoever leads the flow
follows.

First it is looked what is wanted already: the same twice is written once. Nothing here needs a
mirror to run; a flow that starts later starts as it is wanted.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import append_rows, ensure_compacted_topic
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.config.regex.reader import RegexProblem
from twinlog.errors import ConfigError, UsageError
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.intents import INTENT, FlowIntents, Intent, IntentKind, flow_intents
from twinlog.model import TopicPartition
from twinlog.survey.discovery import mirrored_topics
from twinlog.survey.state_reader import state_rows_if_any

GIVES_UP_S: Final = 60.0

Corrupt = set[tuple[IntentKind, str]]
"""Kind and topic ("" is the flow) of intents that cannot be read."""


def user_name() -> str:
    """Of the user of this process; the number where that has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a command does to one flow or one of its topics."""

    intent: Intent
    before: Intent | None
    """What is wanted now of the same kind; None: nothing, or that cannot be read."""
    is_readable: bool = True
    """What is wanted now."""

    @property
    def is_needed(self) -> bool:
        """It is not so already."""
        if not self.is_readable:
            return True
        if not self.intent.is_set:
            return self.before is not None
        rate = self.intent.bytes_per_second
        return self.before is None or self.before.bytes_per_second != rate

    def as_json(self) -> dict[str, Any]:
        before = None
        if self.before is not None:
            before = {
                "bytes_per_second": self.before.bytes_per_second,
                "who": self.before.who,
                "at_ms": self.before.at_ms,
                "reason": self.before.reason,
            }
        return {
            "flow": self.intent.flow,
            "topic": self.intent.topic or None,
            "intent": self.intent.kind.value,
            "is_set": self.intent.is_set,
            "bytes_per_second": self.intent.bytes_per_second,
            "is_needed": self.is_needed,
            "before": before,
        }


class FlowSteering:
    """One flow: first ask for the changes, then `write` them."""

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterSettings,
        target: ClusterSettings,
        reason: str,
        who: str = "",
    ) -> None:
        """`who`: by whom it is wanted; empty: the user of this process."""
        self._config = config
        self._source = source
        self._target = prompt_client(target, api_timeout_s=GIVES_UP_S)
        self.who = f"{who or user_name()}@{socket.gethostname()}"
        self._reason = reason

    @property
    def target(self) -> ClusterClient:
        return self._target

    @property
    def flow(self) -> str:
        return str(self._config.flow)

    def intents(self, corrupt: Corrupt | None = None) -> FlowIntents:
        """What is wanted of the flow now; `corrupt` gets pauses and limits that cannot be read,
        which raise CorruptData otherwise.
        """
        return flow_intents(
            self.flow, state_rows_if_any(self._target).of(self.flow, INTENT), corrupt=corrupt
        )

    def want(self, kind: IntentKind) -> list[Change]:
        """Of the whole flow."""
        return self.wanted(kind, [""])

    def take_back(self, kind: IntentKind) -> list[Change]:
        """Of the whole flow; topics of which it is wanted by name stay so."""
        return self.wanted(kind, [""], is_set=False)

    def limit(self, bytes_per_second: int | None) -> list[Change]:
        """None: what the configuration says."""
        corrupt: Corrupt = set()
        return [
            self._change(
                self.intents(corrupt),
                IntentKind.LIMIT,
                corrupt=corrupt,
                is_set=bytes_per_second is not None,
                bytes_per_second=bytes_per_second,
            )
        ]

    def want_topics(self, kind: IntentKind, names: Sequence[str]) -> list[Change]:
        """Of topics of the source that match."""
        pattern = name_pattern(names)
        return self.wanted(kind, filter(pattern.matches, self._selected()))

    def take_back_topics(self, kinds: Iterable[IntentKind], names: Sequence[str]) -> list[Change]:
        """Of topics of which one of these is wanted by name, and that match; the source is not
        asked.
        """
        corrupt: Corrupt = set()
        found, pattern = self.intents(corrupt), name_pattern(names)
        changes: list[Change] = []
        for kind in kinds:
            topics = {*found.topics(kind), *(topic for one, topic in corrupt if one is kind)}
            changes += [
                self._change(found, kind, topic, is_set=False, corrupt=corrupt)
                for topic in sorted(topics - {""})
                if pattern.matches(topic)
            ]
        return changes

    def wanted(
        self, kind: IntentKind, topics: Iterable[str], *, is_set: bool = True
    ) -> list[Change]:
        """The same for each of these topics, which are known; "" is the flow."""
        corrupt: Corrupt = set()
        found = self.intents(corrupt if kind is IntentKind.PAUSE else None)
        return [
            self._change(found, kind, topic, is_set=is_set, corrupt=corrupt) for topic in topics
        ]

    def write(self, changes: Iterable[Change]) -> None:
        """Those that are needed, in few batches; written again they say the same."""
        rows = [change.intent.encode() for change in changes if change.is_needed]
        if rows:
            self.append(rows)

    def append(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Rows of the state topic, which is made where it is missing; durable when this returns."""
        ensure_compacted_topic(
            self._target,
            STATE_TOPIC,
            partitions=1,
            replication_factor=self._config.state_topic_replication_factor,
            on_unseen=lambda _: None,
        )
        append_rows(self._target, TopicPartition(STATE_TOPIC, 0), rows, int(time.time() * 1000))

    def close(self) -> None:
        self._target.close()

    def _selected(self) -> list[str]:
        with closing(prompt_client(self._source, api_timeout_s=GIVES_UP_S)) as source:
            return [*mirrored_topics(self._config, source.metadata(None))]

    def _change(
        self,
        found: FlowIntents,
        kind: IntentKind,
        topic: str = "",
        *,
        is_set: bool = True,
        bytes_per_second: int | None = None,
        corrupt: Collection[tuple[IntentKind, str]] = (),
    ) -> Change:
        intent = Intent(
            flow=self.flow,
            kind=kind,
            topic=topic,
            is_set=is_set,
            bytes_per_second=bytes_per_second,
            who=self.who,
            at_ms=int(time.time() * 1000),
            reason=self._reason,
        )
        is_readable = (kind, topic) not in corrupt
        return Change(intent=intent, before=found.get(kind, topic), is_readable=is_readable)


def name_pattern(names: Sequence[str]) -> NamePattern:
    """Of entries as the key `topics` takes them. Raises UsageError."""
    try:
        return compile_names(names)
    except (RegexProblem, ConfigError) as problem:
        raise UsageError(f"--topics: {problem}") from problem
