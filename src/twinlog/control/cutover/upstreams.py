"""The source's names of a flow's remote topics, by the rows of copies on the target.

A name cannot be renamed back: several topics of the source may be renamed to one, and the rules may
have changed since. A row says it for each topic that was copied (`mirror.state.copies`), by the
topic's id, and lies on the target: it also answers when the source is gone.

A remote topic without a row has its plain name or none: the policy says what it would be, and that
counts only where the flow would name that very topic so. So what another rule names `A.eu-orders`
is never taken for a copy of `eu-orders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.renaming import plain_upstream
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import TopicId


@dataclass(frozen=True, slots=True)
class FlowUpstreams:
    """Of one flow, as its rows were."""

    config: FlowConfig
    rows: dict[str, CopyRow]
    """By remote topic; ended ones too: what was copied stays a copy."""

    @classmethod
    def of(cls, config: FlowConfig, rows: Iterable[CopyRow]) -> FlowUpstreams:
        flow = str(config.flow)
        return cls(config, {row.topic: row for row in rows if row.flow == flow and row.topic})

    def name(self, remote: str, topic_id: TopicId) -> str | None:
        """What a topic of the target is called on the source; None where it is no copy from it."""
        row = self._row(remote, topic_id)
        return plain_upstream(self.config, remote) if row is None else row.source_topic

    def copies(self, there: Mapping[str, TopicMetadata]) -> dict[str, str]:
        """The source's names by remote topic, of all that are there; each has one remote topic.

        A topic may have had other names before (another policy, a rule that changed, a source topic
        that was created again), and those copies stay. What was begun counts, then what the flow
        calls it now: a stale copy would take groups to where nothing is written any more.
        """
        policy, alias = policy_of(self.config), self.config.source_alias
        best: dict[str, tuple[bool, bool, str]] = {}
        for remote, topic in there.items():
            upstream = self.name(remote, topic.topic_id)
            if upstream is None:
                continue
            row = self._row(remote, topic.topic_id)
            is_begun = row is not None and row.begun
            is_now = remote == policy.format_remote_topic(alias, upstream)
            one = is_begun, is_now, remote
            best[upstream] = max(one, best.get(upstream, one))
        return {remote: upstream for upstream, (_, _, remote) in best.items()}

    def _row(self, remote: str, topic_id: TopicId) -> CopyRow | None:
        row = self.rows.get(remote)
        return row if row is not None and row.is_of(remote, topic_id) else None
