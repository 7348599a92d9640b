"""Topics that should be there and are not, or suddenly are, and what to say of them."""

from __future__ import annotations

from typing import Final

from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.names.filters import TopicSelector
from twinlog.quantities import plural
from twinlog.wire.error_codes import TOPIC_ALREADY_EXISTS, error_for

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
        f"topic {name} is not there on {flow.flow.source}, or our user may not "
        "DESCRIBE it: nothing of it is copied; create it, grant READ on it, or take it out of "
        "`topics`",
        flow=flow.flow,
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


def target_topic_missing(flow: FlowConfig, remote: str) -> PartitionError:
    """Nobody made the topic, and the configuration forbids us to."""
    return PartitionError(
        f"topic {remote} is not there on {flow.flow.target}, and "
        "topic.creation.enable=false: create it; its copy begins as soon as it is there",
        flow=flow.flow,
        code="TARGET_TOPIC_MISSING",
        fate=Fate.RETRIABLE,
    )


def target_topic_too_small(
    flow: FlowConfig, remote: str, count: int, wanted: int
) -> PartitionError:
    """The source has more partitions, and the configuration forbids us to add any."""
    return PartitionError(
        f"topic {remote} has {plural(count, 'partition')} on {flow.flow.target}, its "
        f"source {wanted}, and topic.creation.enable=false: add partitions; the others are copied",
        flow=flow.flow,
        code="TARGET_TOPIC_TOO_SMALL",
        fate=Fate.RETRIABLE,
    )


def made_meanwhile(flow: FlowConfig, remote: str) -> TwinlogError:
    """Somebody else made it, or we did and the answer was lost: the next look judges it."""
    return error_for(
        TOPIC_ALREADY_EXISTS,
        cluster=flow.flow.target,
        doing=f"creating topic {remote}",
        advice="somebody made it a moment ago; what it holds is checked before it is written to",
    )
