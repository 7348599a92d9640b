"""The source's names of a flow's remote topics, by the rows of copies on the target.

A remote name cannot be mapped back by rule: several source topics may be renamed to one, and the
rules may have changed since. So a row has the source's name of each topic that was copied
(`mirror.state.copies`), by topic ID. It is stored on the target, and is available if the source is
lost.

A remote topic without a row has a name from the policy, and that counts only if the flow would
name the topic so today. So a topic `A.eu-orders` that another rule created is never taken for a
copy of `eu-orders`.
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
    """The source's topic names of one flow, by the rows that were read."""

    config: FlowConfig
    rows: dict[str, CopyRow]
    """By remote topic. Ended rows are included, because their topics are still copies."""

    @classmethod
    def of(cls, config: FlowConfig, rows: Iterable[CopyRow]) -> FlowUpstreams:
        flow = str(config.flow)
        return cls(config, {row.topic: row for row in rows if row.flow == flow and row.topic})

    def name(self, remote: str, topic_id: TopicId) -> str | None:
        """Return the source's name of a remote topic, or None if it is no copy from the source."""
        row = self._row(remote, topic_id)
        return plain_upstream(self.config, remote) if row is None else row.source_topic

    def copies(self, there: Mapping[str, TopicMetadata]) -> dict[str, str]:
        """Return the source's names of all existing remote topics; each has one remote topic.

        A topic may have had other remote names (another policy, a changed rule, a re-created
        source topic), and those copies remain. A copy that was begun wins, then the current name,
        because groups of a stale copy would resume where nothing is written any more.
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
