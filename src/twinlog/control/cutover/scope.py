"""The scope of a cutover: one flow, its two clusters, and all or some of its topics.

Both clusters are identified first, by comparing their IDs with the flow's newest claim on the
target. A target with another ID is refused. A source counts as lost if it does not respond or has
another ID. Then `source_problem` is the reason, and everything is read from the target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from twinlog.client.steering import GIVES_UP_S, FlowSteering
from twinlog.cluster.client import prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.config.regex.patterns import NamePattern
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.errors import Fate, FlowError, TwinlogError
from twinlog.mirror.names.filters import TopicSelector, policy_of
from twinlog.mirror.state.generations import Claim, FlowHistory
from twinlog.mirror.state.intents import FlowIntents, IntentKind
from twinlog.mirror.state.rows import StateRows
from twinlog.survey.cluster_state import changed_error, never_led_error
from twinlog.survey.state_reader import state_rows_if_any

Say = Callable[[str], None]
"""Callback that prints a line of evidence for the operator as soon as the line is known."""

SOURCE_TIMEOUT_S: Final = 10.0
"""Time limit of calls to the source, in seconds. It is short because the source may be lost."""


class CutoverScope:
    """One flow and its topics that move to the target; not thread-safe, and must be closed."""

    def __init__(
        self,
        setup: FlowSetup,
        topics: NamePattern | None = None,
        *,
        reason: str = "",
        source_problem: TwinlogError | None = None,
    ) -> None:
        """`topics`: selects source topics. None means the whole flow, including topics that are
        created later. `source_problem`: the error if the source did not respond a moment ago; the
        source is not queried again then.

        Raises FlowError (CLUSTER_CHANGED) if the target is not the one that the flow copies to.
        """
        self.setup = setup
        self.config = setup.config
        self.policy = policy_of(setup.config)
        self.is_whole = topics is None
        self._topics = topics
        self._selector = TopicSelector.of(setup.config)
        self.source = prompt_client(setup.source, api_timeout_s=SOURCE_TIMEOUT_S)
        self.target = prompt_client(setup.target, api_timeout_s=GIVES_UP_S)
        self.steering = FlowSteering(setup.config, setup.source, setup.target, reason)
        self.claim = _latest_claim(self.history())
        """The flow's newest claim when this scope was created, or None if there was none."""
        self.require_same(None, self.target.metadata([]))
        self.source_problem = source_problem or self._query_source()
        self._released: set[str] = set()
        self._promoted: set[str] = set()
        """Topics that were promoted by name, if the scope is the whole flow."""
        self._covered: dict[str, bool] = {}  # cached: needed for each partition of each group
        self.joined()
        self.seen_row: tuple[int, float] | None = None
        """Two times of the status row that was read last. The first is when the row was written, by
        its host's clock (ms). The second is when this command first read the row (monotonic
        seconds). It is minus infinity for the first row, because that row may have any age.
        """

    def _query_source(self) -> TwinlogError | None:
        try:
            seen = self.source.metadata([])
        except TwinlogError as error:
            return error
        return changed_error(self.config, self.claim, source_id=seen.cluster_id or "")

    @property
    def name(self) -> str:
        """Return the flow's name."""
        return self.setup.name

    def covers(self, topic: str) -> bool:
        """Return True if a source topic is part of the cutover. Heartbeats topics are left out,
        because a mirror writes them. Released topics are left out, because they are not copied.
        """
        if topic not in self._covered:
            is_heartbeat = self.policy.is_heartbeats_topic(topic)
            self._covered[topic] = not is_heartbeat and self.copies(topic)
        return self._covered[topic]

    def copies(self, topic: str) -> bool:
        """Return True if the scope contains this source topic and the flow copies it."""
        is_wanted = self._selector.selects(topic) and topic not in self._released
        return is_wanted and self.names(topic)

    def joined(self) -> list[str]:
        """Read again which topics are left out because they are released or promoted by name.
        Return the topics that are no longer left out because another operator has resumed or
        demoted them.
        """
        before, intents = self._released | self._promoted, self.intents()
        self._released = {*intents.topics(IntentKind.RELEASE)}
        self._promoted = {*(intents.topics(IntentKind.PROMOTE) if self.is_whole else ())}
        self._covered.clear()
        again = before - self._released - self._promoted
        return sorted(filter(self._selector.selects, again))

    def names(self, topic: str) -> bool:
        """Return True if the operator named the topic, mirrored or not. The whole flow contains
        every topic, except those that were already promoted by name.
        """
        if self._topics is None:
            return topic not in self._promoted
        return self._topics.matches(topic)

    def remote(self, topic: str) -> str:
        """Return the name that the policy gives to a source topic on the target."""
        return self.policy.format_remote_topic(self.config.source_alias, topic)

    def error(self, message: str, *, code: str, fate: Fate | None = None) -> FlowError:
        """Return an error that names this flow."""
        return FlowError(message, flow=self.name, code=code, fate=fate)

    def require_source(self) -> None:
        """Raise `source_problem` if the source cannot be used."""
        if self.source_problem is not None:
            raise self.source_problem

    def require_same(
        self, source_metadata: ClusterMetadata | None, target_metadata: ClusterMetadata
    ) -> None:
        """Raise FlowError (CLUSTER_CHANGED) if a cluster's ID differs from the one in the flow's
        newest claim. The source is not checked if its metadata is None.
        """
        source = "" if source_metadata is None else source_metadata.cluster_id or ""
        target = target_metadata.cluster_id or ""
        if error := changed_error(self.config, self.claim, source_id=source, target_id=target):
            raise error

    def require_copied(self) -> None:
        """Raise FlowError (NOT_COPIED) if no mirror ever led the flow into this target."""
        self.claim = self.claim or _latest_claim(
            self.history()
        )  # read again, because the mirror of a drill starts after the scope is created
        if self.claim is None:
            raise never_led_error(self.config)

    # -- current rows of the state topic

    def intents(self) -> FlowIntents:
        """Return the flow's intents (paused, released, promoted, ...)."""
        return self.rows().intents(self.name)

    def history(self) -> FlowHistory | None:
        """Return the process that led the flow last, and whether it shut down cleanly, or None if
        no process has led the flow.
        """
        return self.rows().history(self.name)

    def rows(self) -> StateRows:
        """Return the rows of the target's state topic."""
        # empty only if the topic does not exist: if it is hidden from this user, this raises
        return state_rows_if_any(self.target)

    def is_led(self) -> bool:
        """Return True if a mirror is in the flow's group: it leads, or will lead within seconds."""
        group = list_groups(Coordinators(self.target)).get(f"twinlog-{self.name}")
        return group is not None and group.is_active

    def close(self) -> None:
        for client in (self.source, self.target, self.steering):
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _latest_claim(history: FlowHistory | None) -> Claim | None:
    return None if history is None else history.latest
