"""Writes intents for a flow (pause, limit, release, promote), which the flow's leader applies.

An intent is a command in effect, stored as a row of the state topic. An intent that is already set
is not written again. No mirror needs to run; a flow that starts later applies the intents when it
starts. But only a mirror creates the state topic, and nothing is written if the target is not the
cluster that is named in the flow's newest claim of a generation (`mirror.state.generations`).

A failback appends the tail of a source topic to the target. Once this has begun, the topic's
promotion or release is not taken back (REPLAYED), because the copy would append the same records
again. The demotion (the row that takes a promotion back) and the intent `replay` are rows of one
log, so if two commands run at the same time, one sees the row of the other:

    demotion: check for `replay`, write the row, check again
    replay:   write `replay`, check the promotion before each commit (`control.failback.replay`)

- If `replay` is written before the demotion, the demotion finds it before or after writing its own
  row. It then writes the promotion again, as a new row. A replay that relied on the old row stops.
- If `replay` is written after the demotion, the replay finds that the promotion is gone. It commits
  nothing, and takes its intent back.
- If the process of the demotion dies right after writing the row, the flow is demoted. A replay
  that has appended nothing stops, as above. If a replay has appended records, the copy stops after
  them (EXTRA_RECORDS, TAKEN_OVER), and `repair` does not accept them.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from twinlog.cluster.client import prompt_client
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.acls import topic_acls
from twinlog.cluster.topics.internal_log import append_rows, check_policy
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.config.regex.reader import RegexProblem
from twinlog.encoded import encoded_fields
from twinlog.errors import ConfigError, FlowError, TwinlogError, Unauthorized, UsageError
from twinlog.mirror.names.acl_rules import fenced_topics
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind
from twinlog.mirror.state.rows import NO_ROWS
from twinlog.model import TopicPartition
from twinlog.quantities import first_few
from twinlog.survey.cluster_state import changed_error, never_led_error
from twinlog.survey.discovery import mirrored_topics
from twinlog.survey.state_reader import state_rows_if_any

GIVES_UP_S: Final = 60.0
OF_A_COPY: Final = frozenset((IntentKind.PROMOTE, IntentKind.FENCE, IntentKind.REPLAY))
"""Kinds of intents that can be set only if the flow has copied something. Others can be set before
the flow first runs.
"""

Corrupt = set[tuple[IntentKind, str]]
"""(kind, topic) of intents that cannot be read. The topic is empty for the whole flow."""


def user_name() -> str:
    """Return the name of the user who runs this process or, if the user has no name, as in some
    containers, the user ID.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change that a command makes to the intents of one flow or of one of its topics."""

    FIELDS = (
        "flow=intent.flow topic=intent.topic? intent=intent.kind is_set=intent.is_set "
        "bytes_per_second=intent.bytes_per_second is_needed before=replaced"
    )

    intent: Intent
    before: Intent | None
    """The current intent of the same kind and topic, or None if there is none or it cannot be
    read.
    """
    is_readable: bool = True
    """False if the current intent cannot be read."""

    @property
    def is_needed(self) -> bool:
        """Return True if the change is not in effect yet, so that its row must be written."""
        if not self.is_readable:
            return True
        if not self.intent.is_set:
            return self.before is not None
        rate = self.intent.bytes_per_second
        return self.before is None or self.before.bytes_per_second != rate

    @property
    def replaced(self) -> Any:
        return encoded_fields(self.before, "bytes_per_second who at_ms reason")


class FlowSteering:
    """Changes the intents of one flow: first compute the changes, then `write` them."""

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterSettings,
        target: ClusterSettings,
        reason: str,
        who: str = "",
    ) -> None:
        """`reason`: stored with the intents. `who`: name of the user who sets them, or empty for
        the user of this process.
        """
        self._config = config
        self._source = source
        self.target = prompt_client(target, api_timeout_s=GIVES_UP_S)
        self.who = f"{who or user_name()}@{socket.gethostname()}"
        self._reason = reason

    @property
    def flow(self) -> str:
        return str(self._config.flow)

    def intents(self, corrupt: Corrupt | None = None) -> FlowIntents:
        """Return the flow's current intents. Pauses and limits that cannot be read are added to
        `corrupt`, or raise CorruptData if `corrupt` is None.
        """
        return state_rows_if_any(self.target).intents(self.flow, corrupt=corrupt)

    def limit(self, bytes_per_second: int | None) -> list[Change]:
        """Return [the change that sets the flow's limit]. None for `bytes_per_second` restores the
        configured limit.
        """
        is_set = bytes_per_second is not None
        return self.changes(IntentKind.LIMIT, is_set=is_set, bytes_per_second=bytes_per_second)

    def changes_to_set(self, kind: IntentKind, names: Sequence[str]) -> list[Change]:
        """Return the changes that set an intent for all topics that match `names`. They are topics
        of the source that the flow selects, and copied topics that the source does not list.
        """
        pattern = name_pattern(names)
        rows = state_rows_if_any(self.target).copies.values()
        copied = {row.source_topic for row in rows if row.flow == self.flow and row.is_live}
        return self.changes(
            kind, filter(pattern.matches, sorted({*self._selected_topics(), *copied}))
        )

    def changes_to_remove(self, kinds: Iterable[IntentKind], names: Sequence[str]) -> list[Change]:
        """Return the changes that revoke intents of these kinds for all topics that match `names`.
        The source is not queried.
        """
        corrupt: Corrupt = set()
        intents, pattern = self.intents(corrupt), name_pattern(names)
        changes: list[Change] = []
        for kind in kinds:
            topics = {
                *intents.topics(kind),
                *(topic for corrupt_kind, topic in corrupt if corrupt_kind is kind),
            }
            changes += [
                self._change(intents, kind, topic, is_set=False, corrupt=corrupt)
                for topic in sorted(topics - {""})
                if pattern.matches(topic)
            ]
        return changes

    def changes(
        self, kind: IntentKind, topics: Iterable[str] = ("",), *, is_set: bool = True, **more: Any
    ) -> list[Change]:
        """Return a change for each topic, which sets or (`is_set=False`) revokes the intent. It is
        not checked whether the topics exist. An empty name means the whole flow; intents of single
        topics are then not changed. `more`: further fields of the intent.
        """
        corrupt: Corrupt = set()
        intents = self.intents(corrupt)
        return [
            self._change(intents, kind, topic, is_set=is_set, corrupt=corrupt, **more)
            for topic in topics
        ]

    def set(self, kind: IntentKind, topics: Iterable[str], *, is_set: bool = True) -> None:
        """Set or revoke the intent for each of these topics (see `changes`)."""
        self.write(self.changes(kind, topics, is_set=is_set))

    def require_no_replay(self, changes: Iterable[Change]) -> None:
        """Raise FlowError (REPLAYED) if, after these changes, the flow would copy a topic to which
        a failback has begun to append.
        """
        undone = _undoing_changes(changes)
        if undone:
            now = self.intents(set())
            after = now.after(change.intent for change in undone)
            self._refuse(after.copied_replays - now.copied_replays)

    def write(self, changes: Iterable[Change]) -> None:
        """Append the changes that are not in effect yet. Appending a change twice has no effect.

        Raises FlowError (REPLAYED) if a replay began before these rows were written, and the flow
        would now copy its topics. The rows are then revoked.
        """
        needed = [change for change in changes if change.is_needed]
        if not needed:
            return
        intents = [change.intent for change in needed]
        is_of_copy = any(intent.is_set and intent.kind in OF_A_COPY for intent in intents)
        self.append([intent.encode() for intent in intents], is_of_copy=is_of_copy)
        if undone := _undoing_changes(needed):
            self._require_no_replay_began(undone)
        if demoted := {intent.topic for intent in intents if intent.kind is IntentKind.PROMOTE}:
            self._end_fences(demoted)

    def _end_fences(self, demoted: Collection[str]) -> None:
        """Revoke the intent `fence` of topics whose DENY ACL an operator has removed. Otherwise an
        ACL that the operator creates later would count as Twinlog's. While the ACL exists, the
        intent remains. `demoted`: the topics to check; an empty name in it means all topics.
        """
        intents = self.intents(set())
        topics = [
            topic for topic in intents.topics(IntentKind.FENCE) if topic in demoted or "" in demoted
        ]
        if not topics:
            return
        try:
            with closing(prompt_client(self._source, api_timeout_s=GIVES_UP_S)) as source:
                standing = fenced_topics(topic_acls(source))
        except TwinlogError:
            # the source or its ACLs are not available, so `switchover abort` must remove the
            # intents
            return
        kind, ended = IntentKind.FENCE, [topic for topic in topics if topic not in standing]
        rows = [self._change(intents, kind, topic, is_set=False).intent.encode() for topic in ended]
        if rows:
            self.append(rows)

    def _require_no_replay_began(self, undone: Sequence[Change]) -> None:
        """If a replay began before these promotions and releases were revoked, set them again and
        raise FlowError (REPLAYED). `undone`: the changes that revoked them.
        """
        at_ms = int(time.time() * 1000)
        # a new row, so that a replay that relied on the old row detects the change
        again = [
            structs.replace(change.before, who=self.who, at_ms=at_ms)
            for change in undone
            if change.before is not None
        ]
        now = self.intents(set())
        begun = now.copied_replays - now.after(again).copied_replays
        if begun:
            self.append([intent.encode() for intent in again])
            self._refuse(begun)

    def _refuse(self, topics: frozenset[str]) -> None:
        if not topics:
            return
        raise FlowError(
            f"a failback has begun to append the tail of {first_few(sorted(topics))} to the "
            "target. If the copy resumed, it would append these records again. Nothing was "
            "changed. If that failback was interrupted, finish it with twinlog failback run --tail "
            "replay. If it has appended nothing yet, undo it with twinlog failback abort. "
            "Otherwise leave these topics promoted. To demote the flow's other topics, first "
            "promote these topics by name with twinlog topic promote. To mirror these topics "
            "again, give the source another alias, so that they get new remote topics",
            flow=self.flow,
            code="REPLAYED",
        )

    def append(self, rows: Sequence[tuple[bytes, bytes]], *, is_of_copy: bool = True) -> None:
        """Append rows to the state topic. They are durable when the method returns. `is_of_copy`:
        the rows have no meaning unless the flow has copied something.

        Raises FlowError. CLUSTER_CHANGED: the target is not the cluster that the flow's newest
        claim names (`mirror.state.generations`). NOT_COPIED: the target has no state topic or, if
        `is_of_copy`, that topic has no claim of the flow.
        """
        known = state_rows_if_any(self.target)
        history = known.history(self.flow)
        claim = None if history is None else history.latest
        if known is NO_ROWS or (claim is None and is_of_copy):
            raise never_led_error(self._config)
        cluster_id = self.target.metadata([]).cluster_id or ""
        if changed := changed_error(self._config, claim, target_id=cluster_id):
            raise changed
        # the user may not be permitted to read the topic's cleanup policy; this is accepted,
        # because the mirror checks the policy, too
        with suppress(Unauthorized):
            check_policy(self.target, STATE_TOPIC)
        append_rows(self.target, TopicPartition(STATE_TOPIC, 0), rows)

    def close(self) -> None:
        self.target.close()

    def _selected_topics(self) -> list[str]:
        with closing(prompt_client(self._source, api_timeout_s=GIVES_UP_S)) as source:
            return [*mirrored_topics(self._config, source.metadata(None))]

    def _change(
        self,
        intents: FlowIntents,
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
        return Change(intent=intent, before=intents.get(kind, topic), is_readable=is_readable)


class StoppedPartitions:
    """Base class of commands that resume stopped partitions of one flow. Must be closed."""

    def __init__(
        self, config: FlowConfig, source: ClusterSettings, target: ClusterSettings, reason: str
    ) -> None:
        self._config = config
        self._reason = reason
        self._steering = FlowSteering(config, source, target, reason)
        self._source = prompt_client(source, api_timeout_s=GIVES_UP_S)

    def close(self) -> None:
        self._source.close()
        self._steering.close()


def _undoing_changes(changes: Iterable[Change]) -> list[Change]:
    """Return the changes that undo a promotion or a release."""
    kinds = (IntentKind.PROMOTE, IntentKind.RELEASE)
    return [
        change
        for change in changes
        if change.is_needed and change.intent.kind in kinds and not change.intent.is_set
    ]


def name_pattern(names: Sequence[str]) -> NamePattern:
    """Compile names and patterns in the syntax of the key `topics`. Raises UsageError."""
    try:
        return compile_names(names)
    except (RegexProblem, ConfigError) as problem:
        raise UsageError(f"--topics: {problem}") from problem
