"""Codes that stop one partition because of its records, its topics or the offset map."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait

TOPIC_CODES: Final = (
    Condition(
        codes=("CORRUPT_BATCH",),
        meaning="a checksum, length or structure of a batch is wrong",
        advice=(
            "check the disk and network of the broker named. If the batch is permanently lost, "
            "[skip it](repair.md) with `twinlog topic skip`"
        ),
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
        traits=(Trait.CAN_BE_SKIPPED,),
    ),
    Condition(
        codes=("CORRUPT_MESSAGE", "CORRUPT_ANSWER"),
        meaning="a broker reports a batch as corrupt, or its response cannot be parsed",
        advice="check the disk and network of the broker named",
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("RECORD_TOO_LARGE",),
        meaning="a record exceeds the target's size limit",
        advice=(
            "raise `max.message.bytes` of the remote topic, or [skip the record](repair.md) with "
            "`twinlog topic skip`"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        traits=(Trait.CAN_BE_SKIPPED, Trait.STALE_PLAN),
    ),
    Condition(
        codes=("RECORD_REFUSED",),
        meaning=(
            "the target rejects a record (timestamp limits, a null key in a compacted topic, or "
            "its codec)"
        ),
        advice=(
            "change the topic's configuration as the message says, or [skip the record](repair.md) "
            "with `twinlog topic skip`"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        traits=(Trait.CAN_BE_SKIPPED,),
    ),
    Condition(
        codes=("TOPIC_UNAUTHORIZED",),
        meaning="an ACL is missing",
        advice="grant the permission that the message names",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("TOPIC_MISSING",),
        meaning=(
            "a topic was deleted or cannot be described; or `--once` names a topic that does "
            "not exist"
        ),
        advice="create it, grant READ on it, or remove it from `topics`",
        retry=Retry.LATER,
        fault=Fault.SOURCE,
        at_risk=AtRisk.TARGET,
        traits=(Trait.ANOTHER_TOPIC,),
    ),
    Condition(
        codes=("NAME_TOO_LONG",),
        meaning=(
            "with the source alias as a prefix, a topic's name is longer than Kafka's limit of 249 "
            "characters"
        ),
        advice="exclude it (`topics.exclude`), or shorten the alias before anything is copied",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("COPIED_BACK",),
        meaning=(
            "the topic's records were already on the target, or the configured flows would copy "
            "them back there. A copy would duplicate them, or copy them in an endless loop "
            "([why](adr/0012-a-copy-is-known-by-ids.md))"
        ),
        advice=(
            "exclude the topic from one of the flows that the message names, or disable one of them"
        ),
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("COPIED_TWICE",),
        meaning=(
            "a flow with another name already copies this topic to this cluster: an alias was "
            "renamed, or a cluster has two aliases"
        ),
        advice="use the aliases of the flow that the message names: it continues its copy",
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("RENAME_CLASH",),
        meaning=(
            "`twinlog.rename` gives two source topics the same name on the target, or the name of "
            "a remote topic that holds another topic's copy. Neither is copied any further, so "
            "that their records are not mixed"
        ),
        advice=(
            "rename one of the two topics that the message names, or exclude it with "
            "`topics.exclude`; the other one then resumes"
        ),
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("RENAME_INVALID",),
        meaning=(
            "`twinlog.rename` gives a topic an invalid name, one that is too long, or that of an "
            "internal topic or of heartbeats"
        ),
        advice="correct the rule that the message names, or put a rule for this topic before it",
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("RENAME_CHANGED",),
        meaning=(
            "`twinlog.rename` gives a topic a different name than the one under which it was "
            "copied before; nothing is copied under either name"
        ),
        advice=(
            "restore the old name, and the copy continues; or exclude the topic, and its copy "
            "[stays as it is](rename.md#changing-a-rule)"
        ),
        retry=Retry.SOON,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("TARGET_TOPIC_MISSING",),
        meaning="a remote topic does not exist, and `topic.creation.enable=false`",
        advice="create it; its copy begins within 30 s",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("PARTITIONS_DIFFER",),
        meaning=(
            "source and target topic have different partition counts and "
            "`twinlog.target.partitions = same`; or (`keyed`, MirrorMaker 1) a count changed after "
            "the copy began, so that keys would move to other partitions"
        ),
        advice=(
            "make the counts equal, or restore the old one; or exclude the topic; or save the "
            "target topic with `twinlog export`, then delete it to copy it again"
        ),
        retry=Retry.SOON,
    ),
    Condition(
        codes=("TARGET_TOPIC_TOO_SMALL",),
        meaning=(
            "a remote topic has fewer partitions than its source, and "
            "`topic.creation.enable=false`; or the copy of its existing partitions has not begun "
            "yet, and the missing ones are added when it has"
        ),
        advice=(
            "with `topic.creation.enable=false`, add partitions; the existing ones are copied in "
            "the meantime"
        ),
        retry=Retry.SOON,
        traits=(Trait.MAY_PASS,),
    ),
    Condition(
        codes=("NO_LEADER",),
        meaning=(
            "a partition of the source or the target has no leader, or its leader cannot be "
            "reached; the other partitions continue"
        ),
        advice=(
            "check the brokers that have its replicas (`kafka-topics.sh --describe "
            "--unavailable-partitions`); it resumes automatically. `--once` gives up after 60 s"
        ),
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("THROTTLING_QUOTA_EXCEEDED",),
        meaning="a broker quota has blocked all fetches for a minute",
        advice=(
            "raise `consumer_byte_rate` of the client ID that the message names: a batch larger "
            "than ten seconds' worth of this rate is never returned"
        ),
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("MAP_REFUSED",),
        meaning="the offset map topic rejects a record",
        advice="allow WRITE on it, or raise its max.message.bytes, as the message says",
        retry=Retry.LATER,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("MAP_UNWRITABLE",),
        meaning=(
            "a partition of the offset map topic has no leader or too few in-sync replicas. "
            "Partitions that need to write to it wait, the others are copied"
        ),
        advice="restore its brokers; it resumes automatically",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("MAP_UNREADABLE",),
        meaning=(
            "a partition of the offset map topic cannot be read, so the topic partitions that it "
            "describes cannot start"
        ),
        advice="restore its brokers; it resumes automatically",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("MAP_MISSING",),
        meaning=(
            "the offset map topic was deleted, but the target still holds the copies that it "
            "described. It is not re-created from guesses"
        ),
        advice=(
            "run `twinlog offsets rebuild`; if the remote topics were deleted as well, do nothing: "
            "the copy starts over"
        ),
        retry=Retry.SOON,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("SOURCE_REFUSED",),
        meaning="a broker of the source returned an error without a code of its own",
        advice="see the message",
        retry=Retry.LATER,
        fault=Fault.SOURCE,
    ),
    Condition(
        codes=("TARGET_REFUSED", "TARGET_DISCONNECTED"),
        meaning=(
            "a broker of the target returned an error without a code of its own, or did not respond"
        ),
        advice="see the message",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("NOT_FINISHED",),
        meaning="`--once` was stopped before it reached the end of this partition",
        advice="run it again",
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("PARTITION",),
        meaning="an error of a partition without a code of its own",
        advice="see the message",
        retry=Retry.LATER,
        fault=Fault.CLUSTER,
    ),
)
