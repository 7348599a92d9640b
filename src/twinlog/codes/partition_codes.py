"""Codes with which one partition stops while the others continue."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import Condition, Retry

PARTITION_CODES: Final = (
    Condition(
        codes=("SOURCE_TRUNCATED",),
        meaning="the source deleted records before they were copied",
        advice=(
            "neither side has them: nothing can be exported; raise its retention; "
            "`twinlog.source.loss=accept` resumes behind them"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("SOURCE_DIVERGED",),
        meaning=(
            "the source lost records that were copied (an unclean election) and has others in "
            "their place"
        ),
        advice=(
            "the message has the range that only the target holds: save it with [`twinlog "
            "export`](recovery.md#before-a-copy-is-made-anew), decide which side is right, and "
            "only then delete the remote topic to copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("SOURCE_RECREATED",),
        meaning=(
            "the source topic was deleted and created again, and the remote topic still holds "
            "records of the old one; no partition of the new one is copied, nor those that the "
            "old one did not have"
        ),
        advice=(
            "the remote topic is the only copy of the old one: save it with `twinlog export`, "
            "then delete the remote topic to copy the new one"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("SOURCE_GAP",),
        meaning=(
            "a warning, the copy continues: the source jumps over the offsets named, though its "
            "topic is not compacted. A damaged segment that is not the last one looks so to its "
            "broker; a topic that was compacted before does as well. Said at most once in ten "
            "minutes for a partition"
        ),
        advice=(
            "compare the segment on the leader with another replica's (`kafka-dump-log.sh`); what "
            "a sound replica has is read, once it leads, with `twinlog export --side source`; to "
            "have it in the copy, save the remote topic with `twinlog export --side target`, then "
            "delete it"
        ),
        retry=Retry.NO,
    ),
    Condition(
        codes=("SOURCE_STALLED",),
        meaning=(
            "for a minute the source has answered nothing from the offset named on, without an "
            "error, though its log continues: a batch's length is damaged on its disk, or remote "
            "storage gives nothing within `remote.fetch.max.wait.ms`"
        ),
        advice=(
            "with `remote.storage.enable=true` raise `remote.fetch.max.wait.ms` of the source's "
            "brokers: nothing is lost there. Else look at that segment with `kafka-dump-log.sh` on "
            "the partition's leader; mend it, or let another replica lead. If neither helps, and "
            "the message says so, save what is readable behind it (`twinlog export --side source "
            "--from OFFSET`), then delete the records up to behind it (`kafka-delete-records.sh`) "
            "with `twinlog.source.loss=accept`"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("SOURCE_OUT_OF_RANGE",),
        meaning="the source does not have the offset to resume at",
        advice="it is checked again; `SOURCE_TRUNCATED` or `SOURCE_DIVERGED` follows if it stays",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("TARGET_RECREATED",),
        meaning="the remote topic was deleted and created again",
        advice=(
            "nothing: the copy begins anew. Where brokers know topics by name only (before Kafka "
            "4.1) and a batch was on its way, it stops and names records that stand where the "
            "first ones belong: save them with `twinlog export`, compare them with the source, "
            "then take them away"
        ),
        retry=Retry.SOON,
    ),
    Condition(
        codes=("TARGET_LEADER_CHANGED",),
        meaning=(
            "a remote partition has a new leader since its log was last looked at, or one that may "
            "have restarted"
        ),
        advice="nothing: it is checked again",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("TARGET_TRUNCATED",),
        meaning=(
            "the target's log ends before the copy's first record, or before what is known to be "
            "copied"
        ),
        advice=(
            "look whether another replica of the target has the records; else save what is left "
            "with `twinlog export`, then delete the remote topic to copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("TARGET_UNDER_MIN_ISR",),
        meaning="copied records are not on enough replicas",
        advice="look at the target's brokers; it waits",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("FOREIGN_DATA",),
        meaning=(
            "a remote topic holds records that this flow did not write, or of which the offset "
            "map lost what it knew"
        ),
        advice=(
            "where this flow wrote them: `twinlog offsets rebuild`; else choose other names "
            "(`replication.policy.separator`); or save the records with `twinlog export`, then "
            "delete the topic"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("MM2_PLACE_UNKNOWN",),
        meaning=(
            "`--adopt-mm2`: the last record of a remote topic is none of the source's, so it is "
            "not known where MirrorMaker 2 stopped"
        ),
        advice=(
            "find who else wrote to it; save it with `twinlog export`, then delete it to copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("START_BEYOND_END",),
        meaning="an offset of `twinlog.start`, or of the source's group, is beyond the log",
        advice="correct it, or write `latest`",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("EXTRA_RECORDS",),
        meaning="somebody else wrote to a remote topic",
        advice=(
            "find and stop the other producer; save its records (the message has the range) with "
            "`twinlog export`, then [accept them](repair.md#records-of-somebody-else) with "
            "`twinlog repair`, or delete the topic to copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("GAP_WRITTEN",),
        meaning="records that were acknowledged are missing on the target",
        advice=(
            "look at the target's brokers; the message has the upstream range, which `twinlog "
            "export --side source` gives; or save the remote topic with `twinlog export`, then "
            "delete it to copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("POSITION_REGRESSED",),
        meaning="the target's log became shorter without a new leader",
        advice=(
            "look whether another replica of the target has the records; else save what is left "
            "with `twinlog export`, then delete the topic to copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("DIVERGED",),
        meaning=(
            "the last records of the target are not those of the source, and no place nearby fits"
        ),
        advice=(
            "the message has the range; save it with `twinlog export`, then delete the topic to "
            "copy anew"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("OTHER_WRITER", "SEQUENCE_REFUSED"),
        meaning="a batch met one of another writer",
        advice="it is checked again by itself",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("HELD_BACK",),
        meaning=(
            "records older than the target remembers us came next, soon after a lane or a "
            "connection was lost"
        ),
        advice="it waited some seconds for late requests, and is checked again by itself",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("TAKEN_OVER",),
        meaning=(
            "identity policy: others write to the topic, and the source has new records in the "
            "range named"
        ),
        advice="the migration is over: stop producing to the source",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("CORRUPT_BATCH", "CORRUPT_MESSAGE", "CORRUPT_ANSWER"),
        meaning="a checksum, length or structure is wrong",
        advice=(
            "look at the disk and network of the broker named; where one batch is lost for good, "
            "`twinlog topic skip` [leaves it out](repair.md)"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("RECORD_TOO_LARGE",),
        meaning="a record is above the target's limit",
        advice=(
            "raise `max.message.bytes` of the remote topic, or [leave the record out]"
            "(repair.md) with `twinlog topic skip`"
        ),
        retry=Retry.LATER,
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
    ),
    Condition(
        codes=("COPIED_TWICE",),
        meaning=(
            "a flow of another name copies this very topic to this very cluster already: an alias "
            "was renamed, or a cluster has two"
        ),
        advice="use the aliases of the flow that the line names: its copy continues",
        retry=Retry.SOON,
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
    ),
    Condition(
        codes=("RENAME_INVALID",),
        meaning=(
            "`twinlog.rename` gives a topic a name that no topic can have, that is too long, or "
            "that belongs to an internal topic or heartbeats"
        ),
        advice="correct the rule that the line names, or put one for this topic in front of it",
        retry=Retry.SOON,
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
            "target topic with `twinlog export`, then delete it to copy it anew"
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
    ),
    Condition(
        codes=("THROTTLING_QUOTA_EXCEEDED",),
        meaning="a quota of the brokers has let nothing pass for a minute, to somebody who reads",
        advice=(
            "raise `consumer_byte_rate` of the client id that the message names: a batch that is "
            "larger than ten seconds of it never passes"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("MAP_REFUSED",),
        meaning="the offset map's topic takes no row",
        advice="allow WRITE on it, or raise its max.message.bytes, as the message says",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("MAP_UNWRITABLE",),
        meaning=(
            "a partition of the offset map's topic has no leader or too few in-sync replicas; "
            "what needs a row waits, the rest is copied"
        ),
        advice="bring its brokers back; it resumes by itself",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("MAP_UNREADABLE",),
        meaning=(
            "a partition of the offset map's topic cannot be read, so what has its rows there "
            "cannot start"
        ),
        advice="bring its brokers back; it resumes by itself",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("MAP_MISSING",),
        meaning=(
            "the offset map's topic was deleted though the target holds what it describes; "
            "nothing is made anew by guess"
        ),
        advice=(
            "`twinlog offsets rebuild`; where the remote topics were deleted as well, nothing: "
            "the copy begins anew"
        ),
        retry=Retry.SOON,
    ),
    Condition(
        codes=("SOURCE_REFUSED",),
        meaning="a broker of the source answered with an error that has no code of its own",
        advice="as the message says",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("TARGET_REFUSED", "TARGET_DISCONNECTED"),
        meaning=(
            "a broker of the target answered with an error that has no code of its own, or not at "
            "all"
        ),
        advice="as the message says",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("NOT_FINISHED",),
        meaning="`--once` was stopped before this partition's end",
        advice="run it again",
        retry=Retry.NO,
    ),
    Condition(
        codes=("PARTITION",),
        meaning="an error of a partition that has no code of its own",
        advice="as the message says",
        retry=Retry.LATER,
    ),
)


CAN_BE_SKIPPED: Final = frozenset({"RECORD_TOO_LARGE", "RECORD_REFUSED", "CORRUPT_BATCH"})
"""What one record, or one batch, can do to a partition."""

ANOTHER_TOPIC: Final = frozenset({"SOURCE_RECREATED", "TARGET_RECREATED", "TOPIC_MISSING"})
"""How far the copy was is no position any more."""

STALE_PLAN: Final = ANOTHER_TOPIC | {"RECORD_TOO_LARGE", "OTHER_WRITER"}
"""Troubles that a fresh look at both clusters may end: other topic ids, another
max.message.bytes, LogAppendTime.
"""

LOG_FINDINGS: Final = frozenset(
    {"GAP_WRITTEN", "EXTRA_RECORDS", "DIVERGED", "SOURCE_DIVERGED", "POSITION_REGRESSED"}
)
"""What a cold start may believe to see in two logs of which one grows while it looks."""

NO_OFFSETS: Final = LOG_FINDINGS | {
    "TARGET_TRUNCATED",
    "FOREIGN_DATA",
    "MAP_MISSING",
    "SOURCE_RECREATED",
    "TARGET_RECREATED",
    "COPIED_BACK",
    "COPIED_TWICE",
    "RENAME_CLASH",
    "RENAME_INVALID",
    "RENAME_CHANGED",
    "MM2_PLACE_UNKNOWN",
}
"""With these nobody may build on an offset of the target."""

NOT_OURS: Final = NO_OFFSETS | {"TAKEN_OVER"}
"""The remote topic may be somebody else's, or the only copy of something: nothing touches it."""
