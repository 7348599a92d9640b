"""The point of no return: remote topics become the originals. Waits for the end of the copy.

    this command: write the row, then read claims  |  a leader: write its claim, then read rows

The row and the claim are records of one log, the state topic. So either this command reads the
claim, or the leader reads the row. A leader that claims after the row reads the row before it
copies its first record (`FlowSetup.prepare`). A leader that claimed earlier applies the row within
two seconds, and then reports in the state topic that its lanes have drained. If that report never
comes, the leader was killed. Then this command leads the flow itself, so that no other process
does. It waits until no request of the old lanes can arrive any more.

If this command dies after writing the row, the copy still ends, and the next run continues.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

from twinlog.cluster.groups.membership import Membership
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.leading.lead import SetupWaiting, join_election, wait_to_lead
from twinlog.errors import Fate, FlowError, NotLeader, TwinlogError
from twinlog.lane import late_requests
from twinlog.mirror.state.generations import FlowHistory
from twinlog.mirror.state.intents import FlowIntents, IntentKind
from twinlog.model import TopicPartition
from twinlog.survey.ends import last_appends

FOLLOWS_WITHIN_S: Final = 10.0
"""Seconds in which a running leader applies a promotion: it reads the row within 2 s, and its lanes
drain.
"""
ENDS_WITHIN_S: Final = 60.0
POLL_S: Final = 0.2
FENCED_STILL_S: Final = 4.0
"""Seconds without a record of the flow after which fenced topics count as no longer copied. If only
some topics are promoted, no row reports that their lanes have ended. So the command waits twice the
2 s in which a leader applies the row.
"""
OPEN_STILL_S: Final = late_requests.wait_s() + 2.0
"""Replaces FENCED_STILL_S if producers can still write to the source, because lanes of a frozen
leader might copy the next record. In this time the leader applies the row or loses its lanes.
"""


def is_promoted(scope: CutoverScope, intents: FlowIntents, topics: Sequence[str]) -> bool:
    """Return True if the whole flow, or each of these topics, was promoted."""
    if intents.promotion is not None:
        return True
    named = {*intents.topics(IntentKind.PROMOTE)}
    return not scope.is_whole and bool(topics) and named.issuperset(topics)


def require_promoted(scope: CutoverScope, topics: Sequence[str]) -> None:
    """Raise FlowError (NOT_PROMOTED) if the scope is no longer promoted."""
    if not is_promoted(scope, scope.intents(), topics):
        raise scope.error(
            "the promotion was undone while this command ran, so the flow copies again. Start no "
            "client on the target. Find out who undid the promotion, then run the same command "
            "again",
            code="NOT_PROMOTED",
        )


def has_promoted(scope: CutoverScope, intents: FlowIntents) -> bool:
    """Return True if the flow, or a topic of this scope, was promoted."""
    named = intents.topics(IntentKind.PROMOTE)
    return intents.promotion is not None or any(map(scope.covers, named))


def promote(scope: CutoverScope, topics: Sequence[str]) -> None:
    """Write the promotion rows that do not exist yet."""
    scope.steering.set(IntentKind.PROMOTE, [""] if scope.is_whole else topics)


def wait_until_over(
    scope: CutoverScope, remotes: Collection[str], say: Say, *, is_fenced: bool = False
) -> None:
    """Wait until the copy can no longer write to these remote topics. `is_fenced`: everything on
    the source is copied, and no producer can write to the source.

    Raises FlowError (COPY_RUNS) if the end of the copy cannot be shown. The promotion remains, and
    repeating the command checks again.
    """
    if not scope.is_whole and scope.intents().promotion is None:
        _wait_until_still(
            scope, sorted(remotes), say, FENCED_STILL_S if is_fenced else OPEN_STILL_S
        )
        return
    over = _ended(scope, FOLLOWS_WITHIN_S)
    if over is None:
        over = _lead_until_over(scope, say)
    say(over)


def _ended(scope: CutoverScope, within_s: float) -> str | None:
    """Return how the last generation ended, or None if it reports no end within `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        history = scope.history()
        if history is None or history.latest is None:
            return "no mirror ever copied anything"
        if history.is_closed:
            return f"all lanes of generation {history.latest.generation} have drained and ended"
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)


def _lead_until_over(scope: CutoverScope, say: Say) -> str:
    setup = scope.setup
    membership: Membership | None = None
    deadline = time.monotonic() + ENDS_WITHIN_S
    try:
        while True:
            try:
                membership = join_election(membership, setup.target, setup.config)
                wait_to_lead(membership, scope.config, once=True)
                break
            except (NotLeader, SetupWaiting):
                pass  # another process leads, or soon will: `_ended` shows if it applies the row
            over = _ended(scope, POLL_S)
            if over is not None:
                return over
            if time.monotonic() > deadline:
                raise _runs(scope, scope.history())
        say(
            "the mirror that last led the flow did not shut down cleanly: waiting "
            f"{late_requests.wait_s():.0f} s until none of its requests can arrive any more"
        )
        over = _ended(scope, late_requests.wait_s())
        history = scope.history()
        if over is not None or history is None or history.latest is None:
            return over or ""
        if not membership.is_leading:
            raise _runs(scope, history)
        setup.claims.end(scope.target, history.latest.generation)
        killed = history.latest.generation
        return f"generation {killed} was killed, and none of its requests can still arrive"
    finally:
        if membership is not None:
            membership.leave()


def _runs(scope: CutoverScope, history: FlowHistory | None) -> FlowError:
    latest = None if history is None else history.latest
    where = "somewhere" if latest is None else f"on {latest.host} (process {latest.pid})"
    return scope.error(
        f"its topics were promoted, but the mirror {where} has not reported that its lanes have "
        "ended. Let no producer write to the target yet. Find out why the mirror does not stop "
        "copying, or end the mirror, then run the same command again",
        code="COPY_RUNS",
        fate=Fate.RETRIABLE,
    )


def _wait_until_still(scope: CutoverScope, topics: Sequence[str], say: Say, led_s: float) -> None:
    """Wait until the flow appends nothing to the topics for longer than a leader needs to release
    them. The time is measured from the end of one check to the start of a later one. A log that
    cannot be checked does not count as still, because a request of this flow might be pending at
    the log's broker.

    If the command is run again, new owners may already write to the topics. So growth of a log
    counts only if the broker does not remember the flow's producer.
    """
    deadline = time.monotonic() + ENDS_WITHIN_S
    before, since = _appended(scope, topics), time.monotonic()
    while True:
        history = scope.history()
        if history is None or history.latest is None or history.is_closed:
            say("no mirror runs, and the last one shut down cleanly")
            return
        still_s = led_s if scope.is_led() else OPEN_STILL_S
        began = time.monotonic()
        now = _appended(scope, topics)
        if now is None or now != before:
            before, since = now, time.monotonic()
        elif began - since > still_s:
            say(f"the flow appended nothing to the remote topics for {still_s:.0f} s")
            return
        if time.monotonic() > deadline:
            raise _runs(scope, history)
        time.sleep(POLL_S)


def _appended(scope: CutoverScope, topics: Sequence[str]) -> dict[TopicPartition, object] | None:
    """Return `last_appends` of all partitions of remote topics, or None if a partition cannot be
    checked. Topics whose records are partitioned by key are included.
    """
    target_topics = scope.target.metadata(topics).topics if topics else {}
    tps = [tp for topic in target_topics.values() for tp in topic.tps]
    try:
        return last_appends(scope.target, tps, scope.rows().producers)
    except TwinlogError:
        return None
