"""Messages about topics that are missing or that appeared unexpectedly."""

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
    """Return topics that the configuration names without a pattern and that the source does not
    show.
    """
    selector = TopicSelector.of(flow)
    plain = (e for e in flow.topics.entries if set(e) <= PLAIN_NAME and selector.selects(e))
    return [name for name in plain if name not in found.topics]


def absence(flow: FlowConfig, name: str) -> str:
    """Return the message for such a topic."""
    return (
        f"topic {name} does not exist on {flow.flow.source}, or Twinlog's user may not DESCRIBE it "
        "(READ is enough); it is mirrored as soon as it is visible"
    )


def not_copied(flow: FlowConfig, name: str) -> PartitionError:
    """Return the error of `--once`, which does not wait for topics."""
    return PartitionError(
        f"topic {name} does not exist on {flow.flow.source}, or Twinlog's user may not "
        "DESCRIBE it: it is not copied; create it, grant READ on it, or remove it from `topics`",
        flow=flow.flow,
        code="TOPIC_MISSING",
        fate=Fate.RETRIABLE,
    )


def nothing_matches(flow: FlowConfig, found: ClusterMetadata) -> str:
    """Return the message if no topic is mirrored."""
    many = plural(sum(not topic.is_internal for topic in found.topics.values()), "topic")
    return (
        f"{flow.flow}: nothing is copied: {flow.flow.source} shows {many} to Twinlog's user, and "
        "`topics` matches none; correct the pattern, or grant READ on the intended topics "
        "[MATCHES_NOTHING]"
    )


def target_topic_missing(flow: FlowConfig, remote: str) -> PartitionError:
    """Return the error for a missing topic that the configuration forbids to create."""
    return PartitionError(
        f"topic {remote} does not exist on {flow.flow.target}, and "
        "topic.creation.enable=false: create it; its copy begins as soon as it exists",
        flow=flow.flow,
        code="TARGET_TOPIC_MISSING",
        fate=Fate.RETRIABLE,
    )


def target_topic_too_small(
    flow: FlowConfig, remote: str, count: int, wanted: int
) -> PartitionError:
    """Return the error if the source has more partitions and the configuration forbids to
    add any.
    """
    return PartitionError(
        f"topic {remote} has {plural(count, 'partition')} on {flow.flow.target}, its "
        f"source {wanted}, and topic.creation.enable=false: add partitions; the others are copied",
        flow=flow.flow,
        code="TARGET_TOPIC_TOO_SMALL",
        fate=Fate.RETRIABLE,
    )


def made_meanwhile(flow: FlowConfig, remote: str) -> TwinlogError:
    """Return the error if another client created the topic, or Twinlog did and the response was
    lost. The next discovery checks it.
    """
    return error_for(
        TOPIC_ALREADY_EXISTS,
        cluster=flow.flow.target,
        doing=f"creating topic {remote}",
        advice="it was created a moment ago; its records are checked before it is written to",
    )
