"""Topics of the source that should be there and are not, and what to say of them."""

from __future__ import annotations

from typing import Final

from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import Fate, PartitionError
from twinlog.mirror.names.filters import TopicSelector
from twinlog.quantities import plural

PLAIN_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def absent(flow: FlowConfig, found: ClusterMetadata) -> list[str]:
    """Topics that the configuration names without a pattern, and that the source does not show."""
    selector = TopicSelector.of(flow)
    plain = (e for e in flow.topics.entries if set(e) <= PLAIN_NAME and selector.selects(e))
    return [name for name in plain if name not in found.topics]


def absence(flow: FlowConfig, name: str) -> str:
    """What to say of such a topic."""
    return (
        f"topic {name} is not there on {flow.flow.source}, or our user may not DESCRIBE it (READ "
        "is enough); it is mirrored as soon as it is"
    )


def not_copied(flow: FlowConfig, name: str) -> PartitionError:
    """Of `--once`, which waits for no topic."""
    return PartitionError(
        f"{flow.flow}: topic {name} is not there on {flow.flow.source}, or our user may not "
        "DESCRIBE it: nothing of it is copied; create it, grant READ on it, or take it out of "
        "`topics`",
        code="TOPIC_MISSING",
        fate=Fate.RETRIABLE,
    )


def nothing_matches(flow: FlowConfig, found: ClusterMetadata) -> str:
    """What to say where no topic is mirrored."""
    many = plural(sum(not topic.is_internal for topic in found.topics.values()), "topic")
    return (
        f"{flow.flow}: nothing is copied: {flow.flow.source} shows {many} to our user, and "
        "`topics` matches none; correct the pattern, or grant READ on what it is meant for "
        "[MATCHES_NOTHING]"
    )
