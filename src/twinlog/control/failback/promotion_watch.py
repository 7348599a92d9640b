"""Checks before each step of a failback that the promotion on which it relies is still valid.

The run has waited for the end of the copy after this promotion. If the promotion's row is gone or
was replaced, the copy may have continued, so records that the run considers missing may already be
on the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.control.cutover.promotion import is_promoted
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import Fate, FlowError
from twinlog.mirror.state.intents import Intent, IntentKind
from twinlog.survey.state_reader import StateReader


class PromotionWatch:
    """The promotion of one flow, or of its topics by name; not thread-safe."""

    def __init__(self, scope: CutoverScope, topics: Sequence[str]) -> None:
        """Raise FlowError (NOT_PROMOTED) if these topics are not promoted."""
        self._scope = scope
        self._state = StateReader(scope.target, scope.name)
        intents = scope.intents()
        if not is_promoted(scope, intents, sorted(set(topics))):
            raise self._gone("its promotion was undone since the plan was made")
        flow = intents.promotion
        named = [intents.get(IntentKind.PROMOTE, topic) for topic in sorted(set(topics))]
        self._rows = [flow] if flow else [one for one in named if one is not None]

    @property
    def newest(self) -> Intent:
        """Return the promotion row that was written last."""
        return max(self._rows, key=lambda one: one.at_ms)

    def require(self, replayed: Sequence[str] = ()) -> None:
        """Raise FlowError: NOT_PROMOTED if one of the rows is gone or was replaced, REPLAY_FENCED
        if the intent `replay` of one of these topics is gone.

        It reads only the rows that were appended to the state topic since the last call.
        """
        intents = self._state.read().intents
        if any(intents.get(*one.key) != one for one in self._rows):
            raise self._gone("its promotion was undone while this command ran")
        gone = [one for one in replayed if intents.get(IntentKind.REPLAY, one) is None]
        if gone:
            raise FlowError(
                "another command (failback abort) has undone this replay: nothing more was "
                "appended; if no other command runs, run the same command again",
                flow=self._scope.name,
                code="REPLAY_FENCED",
                fate=Fate.RETRIABLE,
            )

    def _gone(self, why: str) -> FlowError:
        return FlowError(
            f"{why}, so the mirror may copy the tail itself: nothing more was appended to the "
            "target, and saved files stay. To fail back, promote the flow again (twinlog failover "
            "run), then run the same command again",
            flow=self._scope.name,
            code="NOT_PROMOTED",
        )
