"""The configuration of consumer groups: which are translated, how often, and the checkpoints
topic.
"""

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
    """How often new groups are discovered; None: only at the start."""
    checkpoints_s: int | None
    """How often checkpoints are written; None: never."""
    sync_s: int | None
    """How often offsets of idle groups are set; None: never."""
    checkpoints_replication_factor: int | None
    """Replication factor of the checkpoints topic, or None if not set."""

    def selects(self, group: str) -> bool:
        """Return True if offsets of this group are translated. Twinlog's own groups are never
        translated, regardless of the filters.
        """
        if is_own_group(group):
            return False
        return self.include.matches(group) and not self.exclude.matches(group)


def read_groups(values: FlowValues) -> GroupsConfig:
    """Return the flow's group configuration."""
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
    # MirrorMaker 2 treats a negative interval as "never"; 0 is as often as possible
    return interval if values.boolean(f"{stem}.enabled") and interval >= 0 else None
