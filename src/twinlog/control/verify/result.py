"""The result of a verification by partition, by group, and by flow, and its row on the target."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, Final

from twinlog.client.steering import user_name
from twinlog.cluster.client import prompt_client
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.compare import Deviation
from twinlog.control.flow.wiring import flow_setup
from twinlog.encoded import encoded, encoded_fields
from twinlog.errors import TwinlogError
from twinlog.mirror.map.runs import MapDigest
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.verified import VerifyRun, verify_runs
from twinlog.mirror.verify.difference import Compared, Day, Tally
from twinlog.model import TopicPartition
from twinlog.survey.rights import is_permitted
from twinlog.survey.state_reader import STATE_PARTITION, state_rows

_FIRST_DAY: Final = date(1970, 1, 1)


class VerifyAnswer(StrEnum):
    """The answer for a partition, a flow, or the whole run."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    UNKNOWN = "not compared"

    @property
    def exit_code(self) -> int:
        """Return the exit code of `twinlog verify`."""
        return {VerifyAnswer.IDENTICAL: 0, VerifyAnswer.DIFFERENT: 1, VerifyAnswer.UNKNOWN: 2}[self]


def worst(answers: list[VerifyAnswer]) -> VerifyAnswer:
    """Return the combined answer. A difference takes precedence over a failed query."""
    for answer in (VerifyAnswer.DIFFERENT, VerifyAnswer.UNKNOWN):
        if answer in answers:
            return answer
    return VerifyAnswer.IDENTICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPartition:
    FIELDS = (
        "topic=source.topic partition=source.partition target_topic=target.topic "
        "target_partition=target.partition answer equal_records=compared.equal "
        "compared_as_bytes=compared.by_bytes bytes=compared.bytes map=map._asdict days "
        "differences=compared.differences more_differences=compared.unlisted_count gaps "
        "not_yet_copied=compared.pending why_not"
    )

    source: TopicPartition
    target: TopicPartition
    compared: Compared
    why_not: str = ""
    """Why the partition was not compared completely. Ends with an error code if there is one."""
    map: MapDigest | None = None
    """Digest of the rows of the offset map by which source and target records were paired."""

    @property
    def answer(self) -> VerifyAnswer:
        if not self.compared.is_identical:
            return VerifyAnswer.DIFFERENT
        return VerifyAnswer.UNKNOWN if self.why_not else VerifyAnswer.IDENTICAL

    @property
    def days(self) -> list[dict[str, Any]]:
        return [_day(*day) for day in sorted(self.compared.days.items())]

    @property
    def gaps(self) -> dict[str, int]:
        by_cause = sorted(self.compared.gaps.items())
        return {gap.name.lower(): number for gap, number in by_cause if number}


def _day(number: int, day: Day) -> dict[str, Any]:
    sides = {}
    for name, own in (("source", day.source), ("target", day.target)):
        tally = Tally()
        tally.add(day.both)
        tally.add(own)
        is_whole = tally.digested == tally.records
        sides[name] = {
            "records": tally.records,
            "batch_bytes": tally.batch_bytes,
            "record_bytes": tally.record_bytes,
            "digest": f"{tally.digest:032x}" if is_whole else None,
        }
    return {"day": _date(number), **sides}


def _date(number: int) -> str | None:
    """Return the date in UTC, or None for records without a valid timestamp."""
    try:
        return (_FIRST_DAY + timedelta(days=number)).isoformat() if number >= 0 else None
    except OverflowError:
        return None


class GroupStanding(StrEnum):
    """How a group's offset on the target compares to the translation of its source offset."""

    EQUAL = "equal"
    AHEAD = "ahead"
    """The group would skip records that it has not read on the source."""
    BEHIND = "behind"
    """The group would read some records again."""
    ABSENT = "absent"
    """The group has no committed offset on the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedGroup:
    """A group's committed offsets of one partition, on the source and on the target."""

    FIELDS = (
        "group topic=source.topic partition=source.partition target_topic=target.topic "
        "committed wanted=translated_offset stands=target_committed standing is_wrong left_alone"
    )

    group: str
    source: TopicPartition
    target: TopicPartition
    committed: int
    """The offset committed on the source."""
    translated_offset: int
    """The target offset that corresponds to `committed`."""
    target_committed: int | None
    """The offset committed on the target, or None if there is none."""
    left_alone: str = ""
    """Why the flow does not sync this group, so that a different offset is no error. Else empty."""

    @property
    def standing(self) -> GroupStanding:
        if self.target_committed is None:
            return GroupStanding.ABSENT
        if self.target_committed == self.translated_offset:
            return GroupStanding.EQUAL
        return (
            GroupStanding.AHEAD
            if self.target_committed > self.translated_offset
            else GroupStanding.BEHIND
        )

    @property
    def is_wrong(self) -> bool:
        return self.standing is GroupStanding.AHEAD and not self.left_alone


@dataclass(slots=True, kw_only=True)
class VerifiedFlow:
    """The results for one flow. They are added while the verification runs."""

    FIELDS = "flow answer is_led is_partial partitions groups configs=changed_configs notes"

    flow: str
    is_led: bool = False
    """True if a mirror is running the flow, so that records not copied yet will be copied."""
    partitions: list[VerifiedPartition] = field(default_factory=list)
    groups: list[VerifiedGroup] = field(default_factory=list)
    configs: list[Deviation] = field(default_factory=list)
    """Topic configs that a sync of configs would change on the target."""
    notes: list[str] = field(default_factory=list)
    is_partial: bool = False
    """True if a group or a target partition was not compared. A note names it."""

    @property
    def answer(self) -> VerifyAnswer:
        answers = [partition.answer for partition in self.partitions]
        answers += [VerifyAnswer.UNKNOWN] * self.is_partial
        answers += [VerifyAnswer.DIFFERENT for group in self.groups if group.is_wrong]
        answers += [VerifyAnswer.DIFFERENT] * bool(self.configs)
        return worst(answers)

    def leave_out(self, line: str) -> None:
        """Add a note that something is not compared, so that the flow's answer is not IDENTICAL."""
        self.is_partial = True
        self.note(line)

    def note(self, line: str) -> None:
        """Add a note, unless the same note was already added."""
        if line not in self.notes:
            self.notes.append(line)

    @property
    def changed_configs(self) -> list[dict[str, Any]]:
        return [
            encoded_fields(config, "topic=name config=detail source target")
            for config in self.configs
        ]


def digest(report: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a report, with which readers detect accidental changes. It covers every
    field but `sha256`, as JSON with sorted keys and without whitespace.
    """
    bare = {key: value for key, value in report.items() if key != "sha256"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# The result of a verification is written to the target's state topic, one row for each flow
# (`mirror.state.verified`).
#
# Only finished verifications write a row. If a process dies earlier, the previous row remains. If
# two verifications run concurrently, the row of the one that began later remains. No other part of
# Twinlog depends on the row, so the command also works for users who must not write it.

GIVES_UP_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """The scope of a verification, as given by the user."""

    began_ms: int
    topics: str | None
    since: str | None
    until: str | None
    deep: bool


def run_of(verified: VerifiedFlow, scope: VerifyRequest) -> VerifyRun:
    ranges: Counter[str] = Counter()
    for part in verified.partitions:
        ranges.update(difference.kind.value for difference in part.compared.differences)
        if part.compared.unlisted_count:
            ranges["others"] += part.compared.unlisted_count
    return VerifyRun(
        flow=verified.flow,
        began_ms=scope.began_ms,
        ended_ms=int(time.time() * 1000),
        who=f"{user_name()}@{socket.gethostname()}",
        answer=verified.answer.value,
        topics=scope.topics,
        since=scope.since,
        until=scope.until,
        deep=scope.deep,
        partitions=len(verified.partitions),
        equal_records=sum(part.compared.equal for part in verified.partitions),
        ranges=dict(ranges),
        not_compared=sum(bool(part.why_not) for part in verified.partitions),
        configs=len(verified.configs),
        groups=sum(group.is_wrong for group in verified.groups),
        sha256=digest(encoded(verified)),
    )


class ResultWriter:
    """Writes the results of one command to the state topics of its flows' targets."""

    def __init__(self, flows: Iterable[FlowConfig], scope: VerifyRequest, *, is_off: bool) -> None:
        self._flows = {str(flow.flow): flow for flow in flows}
        self._asked = scope
        self._is_off = is_off

    def add(self, verified: VerifiedFlow) -> list[str]:
        """Write the result of a flow, unless the flow has none of the requested topics. Return a
        message if the result could not be written, else an empty list.
        """
        if self._is_off or (self._asked.topics is not None and not verified.partitions):
            return []
        why_not = record(self._flows[verified.flow], run_of(verified, self._asked))
        return [f"{verified.flow}: the result is not recorded: {why_not}"] if why_not else []


def record(config: FlowConfig, run: VerifyRun) -> str:
    """Write the row of a result. Return why it was not written, or an empty string if it was."""
    try:
        settings = flow_setup(config).target
        with closing(prompt_client(settings, api_timeout_s=GIVES_UP_S)) as target:
            seen = target.metadata([STATE_TOPIC])
            topic = seen.topics[STATE_TOPIC]
            if topic.error or not topic.partitions:
                return f"{settings.alias} has no visible {STATE_TOPIC}"
            if not is_permitted(seen, STATE_TOPIC, Operation.WRITE):
                return f"grant WRITE on topic {STATE_TOPIC} of {settings.alias}"
            known = verify_runs(run.flow, state_rows(target))
            if any(
                known_run.is_whole == run.is_whole and run.is_outdated_by(known_run)
                for known_run in known
            ):
                return "a run that began later has already ended"
            append_rows(target, STATE_PARTITION, [run.encode()])
    except TwinlogError as error:
        return str(error)
    return ""
