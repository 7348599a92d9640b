"""Records the result of a verification on the target: one row of its state topic for each flow
(`mirror.state.verified`).

Only results of finished runs are written: if a process dies earlier, the previous result is kept.
Of two concurrent runs, the result of the one that began later is kept. Nothing depends on the row,
so a user without the right to write it still gets the result.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from twinlog.client.steering import user_name
from twinlog.cluster.client import prompt_client
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.verify.result import VerifiedFlow, digest
from twinlog.encoded import encoded
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.verified import VerifyRun, verify_runs
from twinlog.model import TopicPartition
from twinlog.survey.rights import may
from twinlog.survey.state_reader import state_rows

GIVES_UP_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The scope of a verification, as given by the user."""

    began_ms: int
    topics: str | None
    since: str | None
    until: str | None
    deep: bool


def run_of(found: VerifiedFlow, asked: Asked) -> VerifyRun:
    """Return the row of a flow."""
    ranges: Counter[str] = Counter()
    for part in found.partitions:
        ranges.update(one.kind.value for one in part.compared.differences)
        if part.compared.unkept:
            ranges["others"] += part.compared.unkept
    return VerifyRun(
        flow=found.flow,
        began_ms=asked.began_ms,
        ended_ms=int(time.time() * 1000),
        who=f"{user_name()}@{socket.gethostname()}",
        answer=found.answer.value,
        topics=asked.topics,
        since=asked.since,
        until=asked.until,
        deep=asked.deep,
        partitions=len(found.partitions),
        equal_records=sum(part.compared.equal for part in found.partitions),
        ranges=dict(ranges),
        not_compared=sum(bool(part.why_not) for part in found.partitions),
        configs=len(found.configs),
        groups=sum(one.is_wrong for one in found.groups),
        sha256=digest(encoded(found)),
    )


class Records:
    """Records the results of one command."""

    def __init__(self, flows: Iterable[FlowConfig], asked: Asked, *, is_off: bool) -> None:
        self._flows = {str(one.flow): one for one in flows}
        self._asked = asked
        self._is_off = is_off

    def add(self, found: VerifiedFlow) -> list[str]:
        """Record the result of a flow. Return a line if that fails. A flow that has none of the
        requested topics is skipped.
        """
        if self._is_off or (self._asked.topics is not None and not found.partitions):
            return []
        why_not = record(self._flows[found.flow], run_of(found, self._asked))
        return [f"{found.flow}: the result is not recorded: {why_not}"] if why_not else []


def record(config: FlowConfig, run: VerifyRun) -> str:
    """Write the row. Return why that failed, or an empty string."""
    try:
        settings = flow_setup(config).target
        with closing(prompt_client(settings, api_timeout_s=GIVES_UP_S)) as target:
            seen = target.metadata([STATE_TOPIC])
            topic = seen.topics[STATE_TOPIC]
            if topic.error or not topic.partitions:
                return f"{settings.alias} has no visible {STATE_TOPIC}"
            if not may(seen, STATE_TOPIC, Operation.WRITE):
                return f"grant WRITE on topic {STATE_TOPIC} of {settings.alias}"
            known = verify_runs(run.flow, state_rows(target))
            if any(one.is_whole == run.is_whole and run.is_outdated_by(one) for one in known):
                return "a run that began later has already ended"
            append_rows(
                target, TopicPartition(STATE_TOPIC, 0), [run.encode()], int(time.time() * 1000)
            )
    except TwinlogError as error:
        return str(error)
    return ""
