"""What a flow does for consumer groups: which, how often, and how their checkpoints are kept."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.config.flow.values import FlowValues
from twinlog.config.regex.patterns import NamePattern
from twinlog.model import is_own_group

FACTOR = "checkpoints.topic.replication.factor"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """The keys of MirrorMaker 2's checkpoint connector; intervals in seconds."""

    include: NamePattern
    exclude: NamePattern
    refresh_s: int | None
    """How often new groups are looked for; None is only at the start."""
    checkpoints_s: int | None
    """How often checkpoints are written; None is never."""
    sync_s: int | None
    """How often offsets of idle groups are set; None is never."""
    checkpoints_replication_factor: int | None
    """Of the checkpoints topic; None where it is not given."""

    def selects(self, group: str) -> bool:
        """Return True if offsets of this group are translated. Those of Twinlog's own groups never
        are, whatever the filters say.
        """
        if is_own_group(group):
            return False
        return self.include.matches(group) and not self.exclude.matches(group)


def read_groups(values: FlowValues) -> GroupsConfig:
    """The flow's values."""
    return GroupsConfig(
        include=values.names("groups"),
        exclude=values.names("groups.exclude"),
        refresh_s=_every(values, "refresh.groups"),
        checkpoints_s=_every(values, "emit.checkpoints"),
        sync_s=_every(values, "sync.group.offsets"),
        checkpoints_replication_factor=values.replicas_or_none(FACTOR),
    )


def _every(values: FlowValues, stem: str) -> int | None:
    interval = values.number(f"{stem}.interval.seconds")
    # MM2 turns a negative interval into "never"; 0 is as often as can be
    return interval if values.boolean(f"{stem}.enabled") and interval >= 0 else None
