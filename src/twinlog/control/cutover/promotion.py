"""The step behind which there is no way back: the remote topics become the originals, and the copy
has surely ended.

    our row, then we look for claims  |  a leader's claim, then it looks for rows

Both are in one log, the state topic. So of a promotion and a claim one sees the other: a leader
that claims behind our row finds it before its first record (`FlowSetup.prepare`), and one that
claimed before it is seen here, until it says that its lanes have drained. It follows the row within
two seconds. Where it never says so, it was killed: then we lead in its place, so that no other
does, and wait until nothing of its lanes can arrive any more.

Died behind the row: the copy ends all the same, and the next run finds the row and continues.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from twinlog.cluster.groups.membership import Membership
from twinlog.cluster.logs.offsets import log_ends
from twinlog.control.cutover.copies import Copy
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.leading.lead import SetupWaiting, take_part, wait_to_lead
from twinlog.errors import Fate, FlowError, NotLeader, TwinlogError
from twinlog.lane import late_requests
from twinlog.mirror.state.generations import FlowHistory
from twinlog.mirror.state.intents import FlowIntents, IntentKind
from twinlog.model import TopicPartition

FOLLOWS_WITHIN_S: Final = 10.0
"""A leader that lives has followed by then: 2 s until it sees the row, and its lanes drain."""
ENDS_WITHIN_S: Final = 60.0
POLL_S: Final = 0.2
FENCED_STILL_S: Final = 4.0
"""Of topics, no row says that their lanes have let go: twice the time in which a leader follows. By
then it has nothing to copy any more.
"""
OPEN_STILL_S: Final = late_requests.wait_s() + 2.0
"""Where the source may be written to, a leader that is frozen has lanes that copy the next record:
so long until it follows, or has lost them.
"""


def is_promoted(scope: CutoverScope, intents: FlowIntents, topics: Sequence[str]) -> bool:
    """Whether the scope was promoted: the flow, or each of these topics."""
    if intents.promotion is not None:
        return True
    named = {*intents.topics(IntentKind.PROMOTE)}
    return not scope.is_whole and bool(topics) and named.issuperset(topics)


def require_promoted(scope: CutoverScope, topics: Sequence[str]) -> None:
    """Raise FlowError (NOT_PROMOTED) if the scope is not promoted any more."""
    if not is_promoted(scope, scope.intents(), topics):
        raise FlowError(
            "it was demoted while this command ran, so the flow copies again: start no client on "
            "the target; find out who demoted it, then run the same command again",
            flow=scope.name,
            code="NOT_PROMOTED",
        )


def some_are_promoted(scope: CutoverScope, intents: FlowIntents) -> bool:
    """Return True if the flow, or a topic of this scope, was promoted."""
    named = intents.topics(IntentKind.PROMOTE)
    return intents.promotion is not None or any(map(scope.covers, named))


def promote(scope: CutoverScope, topics: Sequence[str]) -> None:
    """Write the rows that are not there yet."""
    steering = scope.steering
    names = [""] if scope.is_whole else topics
    steering.write(steering.wanted(IntentKind.PROMOTE, names))


def wait_until_over(
    scope: CutoverScope, copies: Sequence[Copy], say: Say, *, is_fenced: bool = False
) -> None:
    """Return when nothing can be written to the remote topics by the copy any more. `is_fenced`:
    the source has nothing that is not copied, and gets nothing.

    Raises FlowError (COPY_RUNS) where that cannot be shown; the promotion stands, and the same
    command checks again.
    """
    if not scope.is_whole and scope.intents().promotion is None:
        _wait_until_still(scope, copies, say, FENCED_STILL_S if is_fenced else OPEN_STILL_S)
        return
    over = _ended(scope, FOLLOWS_WITHIN_S)
    if over is None:
        over = _lead_until_over(scope, say)
    say(over)


def _ended(scope: CutoverScope, within_s: float) -> str | None:
    """How the last generation ended; None where it has not said so in time."""
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
                membership = take_part(membership, setup.target, setup.config)
                wait_to_lead(membership, scope.config, once=True)
                break
            except (NotLeader, SetupWaiting):
                pass  # another process leads, or is about to: it follows, or does not
            over = _ended(scope, POLL_S)
            if over is not None:
                return over
            if time.monotonic() > deadline:
                raise _runs(scope, scope.history())
        say(
            "the mirror that led it last did not end in order: waiting "
            f"{late_requests.wait_s():.0f} s until nothing of it can arrive any more"
        )
        over = _ended(scope, late_requests.wait_s())
        history = scope.history()
        if over is not None or history is None or history.latest is None:
            return over or ""
        if not membership.is_leading:
            raise _runs(scope, history)
        setup.claims.end(scope.target, history.latest.generation)
        return f"generation {history.latest.generation} was killed, and nothing of it can arrive"
    finally:
        if membership is not None:
            membership.leave()


def _runs(scope: CutoverScope, history: FlowHistory | None) -> FlowError:
    latest = None if history is None else history.latest
    where = "somewhere" if latest is None else f"on {latest.host} (process {latest.pid})"
    return FlowError(
        f"it was promoted, but the mirror {where} has not said that its lanes have "
        "ended: producers must not write yet; look why it does not follow, or end it, and give "
        "the same command again",
        flow=scope.name,
        code="COPY_RUNS",
        fate=Fate.RETRIABLE,
    )


def _wait_until_still(scope: CutoverScope, copies: Sequence[Copy], say: Say, led_s: float) -> None:
    """Until nothing is appended for longer than a leader takes to let topics go, from the end of
    one check to the beginning of another. A log that cannot be checked is not still: whoever leads
    it may have a request of ours before it.
    """
    topics = sorted({copy.target.topic for copy in copies})
    deadline = time.monotonic() + ENDS_WITHIN_S
    before, since = _ends(scope, topics), time.monotonic()
    while True:
        history = scope.history()
        if history is None or history.latest is None or history.is_closed:
            say("no mirror runs, and the last one ended in order")
            return
        still_s = led_s if scope.is_led() else OPEN_STILL_S
        began = time.monotonic()
        now = _ends(scope, topics)
        if now is None or now != before:
            before, since = now, time.monotonic()
        elif began - since > still_s:
            say(f"nothing was appended to the remote topics for {still_s:.0f} s")
            return
        if time.monotonic() > deadline:
            raise _runs(scope, history)
        time.sleep(POLL_S)


def _ends(scope: CutoverScope, topics: Sequence[str]) -> dict[TopicPartition, int] | None:
    """Of every partition, also those that records come to by key; None where one is not seen."""
    there = scope.target.metadata(topics).topics if topics else {}
    tps = [tp for topic in there.values() for tp in topic.tps]
    out = {}
    for tp, one in log_ends(scope.target, tps).items():
        if isinstance(one, TwinlogError):
            return None
        out[tp] = one.end_offset
    return out
