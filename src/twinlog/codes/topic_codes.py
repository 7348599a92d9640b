"""Codes with which one partition stops: its records, its topics, its place in the offset map."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait

TOPIC_CODES: Final = (
    Condition(
        codes=("CORRUPT_BATCH",),
        meaning="a checksum, length or structure of a batch is wrong",
        advice=(
            "look at the disk and network of the broker named; where one batch is lost for good, "
            "`twinlog topic skip` [leaves it out](repair.md)"
        ),
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
        traits=(Trait.CAN_BE_SKIPPED,),
    ),
    Condition(
        codes=("CORRUPT_MESSAGE", "CORRUPT_ANSWER"),
        meaning="a broker calls a batch corrupt, or its answer cannot be read",
        advice="look at the disk and network of the broker named",
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("RECORD_TOO_LARGE",),
        meaning="a record is above the target's limit",
        advice=(
            "raise `max.message.bytes` of the remote topic, or [leave the record out]"
            "(repair.md) with `twinlog topic skip`"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        traits=(Trait.CAN_BE_SKIPPED, Trait.STALE_PLAN),
    ),
    Condition(
        codes=("RECORD_REFUSED",),
        meaning=(
            "the target does not take a record (timestamp limits, a null key in a compacted "
            "topic, codec)"
        ),
        advice=(
            "change the topic's config as the message says, or [leave the record out](repair.md) "
            "with `twinlog topic skip`"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        traits=(Trait.CAN_BE_SKIPPED,),
    ),
    Condition(
        codes=("TOPIC_UNAUTHORIZED",),
        meaning="an ACL is missing",
        advice="grant what the message names",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("TOPIC_MISSING",),
        meaning="a topic is gone, or may not be described; or `--once` names one that is not there",
        advice="create it, grant READ on it, or take it out of `topics`",
        retry=Retry.LATER,
        fault=Fault.SOURCE,
        at_risk=AtRisk.TARGET,
        traits=(Trait.ANOTHER_TOPIC,),
    ),
    Condition(
        codes=("NAME_TOO_LONG",),
        meaning=(
            "with the alias in front a topic's name is longer than the 249 characters that Kafka "
            "takes"
        ),
        advice="leave it out (`topics.exclude`), or shorten the alias before anything is copied",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("COPIED_BACK",),
        meaning=(
            "the topic's records have been on the target before, or flows of the configuration "
            "would bring them back: copied, they would be there twice, or for ever "
            "([why](adr/0012-a-copy-is-known-by-ids.md))"
        ),
        advice="leave the topic out of one of the flows that the line names, or turn one off",
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("COPIED_TWICE",),
        meaning=(
            "a flow of another name copies this very topic to this very cluster already: an alias "
            "was renamed, or a cluster has two"
        ),
        advice="use the aliases of the flow that the line names: its copy continues",
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("RENAME_CLASH",),
        meaning=(
            "`twinlog.rename` gives two topics of the source one name on the target, or a name "
            "whose topic holds the copy of another; neither is copied on, so that nothing is mixed"
        ),
        advice=(
            "give one of the two that the line names another name, or leave it out with "
            "`topics.exclude`; the other continues where it stands"
        ),
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("RENAME_INVALID",),
        meaning=(
            "`twinlog.rename` gives a topic a name that no topic can have, that is too long, or "
            "that belongs to an internal topic or heartbeats"
        ),
        advice="correct the rule that the line names, or put one for this topic in front of it",
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("RENAME_CHANGED",),
        meaning=(
            "`twinlog.rename` gives a topic another name than the one under which it was copied "
            "so far; nothing is copied under either"
        ),
        advice=(
            "give it its name back, and the copy continues; or leave the topic out, and its copy "
            "[stays as it is](rename.md#changing-a-rule)"
        ),
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("TARGET_TOPIC_MISSING",),
        meaning="a remote topic is not there, and `topic.creation.enable=false`",
        advice="create it; its copy begins within 30 s",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("PARTITIONS_DIFFER",),
        meaning=(
            "source and target topic have different numbers of partitions and "
            "`twinlog.target.partitions = same`; or (`keyed`, MirrorMaker 1) the numbers changed "
            "after the copy began, so that keys would go elsewhere"
        ),
        advice=(
            "make them equal, or give back the old number; or leave the topic out; or save the "
            "target topic with `twinlog export`, then delete it to copy it again"
        ),
        retry=Retry.SOON,
    ),
    Condition(
        codes=("TARGET_TOPIC_TOO_SMALL",),
        meaning=(
            "a remote topic has fewer partitions than its source, and "
            "`topic.creation.enable=false`; or those that it has were not begun yet: when they "
            "are, the others are added"
        ),
        advice=(
            "with `topic.creation.enable=false` add partitions; those that are there are copied "
            "meanwhile"
        ),
        retry=Retry.SOON,
        traits=(Trait.MAY_PASS,),
    ),
    Condition(
        codes=("NO_LEADER",),
        meaning=(
            "a partition of the source or the target has no leader, or its leader cannot be "
            "reached; the others continue"
        ),
        advice=(
            "look at the brokers that have its replicas (`kafka-topics.sh --describe "
            "--unavailable-partitions`); it resumes by itself. `--once` gives it up after 60 s"
        ),
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("THROTTLING_QUOTA_EXCEEDED",),
        meaning="a quota of the brokers has let nothing pass for a minute, to somebody who reads",
        advice=(
            "raise `consumer_byte_rate` of the client id that the message names: a batch that is "
            "larger than ten seconds of it never passes"
        ),
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("MAP_REFUSED",),
        meaning="the offset map's topic takes no row",
        advice="allow WRITE on it, or raise its max.message.bytes, as the message says",
        retry=Retry.LATER,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("MAP_UNWRITABLE",),
        meaning=(
            "a partition of the offset map's topic has no leader or too few in-sync replicas; "
            "what needs a row waits, the rest is copied"
        ),
        advice="bring its brokers back; it resumes by itself",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("MAP_UNREADABLE",),
        meaning=(
            "a partition of the offset map's topic cannot be read, so what has its rows there "
            "cannot start"
        ),
        advice="bring its brokers back; it resumes by itself",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("MAP_MISSING",),
        meaning=(
            "the offset map's topic was deleted though the target holds what it describes; "
            "nothing is re-created by guess"
        ),
        advice=(
            "`twinlog offsets rebuild`; where the remote topics were deleted as well, nothing: "
            "the copy starts over"
        ),
        retry=Retry.SOON,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("SOURCE_REFUSED",),
        meaning="a broker of the source answered with an error that has no code of its own",
        advice="as the message says",
        retry=Retry.LATER,
        fault=Fault.SOURCE,
    ),
    Condition(
        codes=("TARGET_REFUSED", "TARGET_DISCONNECTED"),
        meaning=(
            "a broker of the target answered with an error that has no code of its own, or not at "
            "all"
        ),
        advice="as the message says",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("NOT_FINISHED",),
        meaning="`--once` was stopped before this partition's end",
        advice="run it again",
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("PARTITION",),
        meaning="an error of a partition that has no code of its own",
        advice="as the message says",
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
    ),
)
