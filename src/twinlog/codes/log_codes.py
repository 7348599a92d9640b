"""Codes with which one partition stops: what the logs of both sides say."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait

LOG_CODES: Final = (
    Condition(
        codes=("SOURCE_TRUNCATED",),
        meaning="the source deleted records before they were copied",
        advice=(
            "neither side has them: nothing can be exported; raise its retention; "
            "`twinlog.source.loss=accept` resumes behind them"
        ),
        retry=Retry.LATER,
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SOURCE_DIVERGED",),
        meaning=(
            "the source lost records that were copied (an unclean election) and has others in "
            "their place"
        ),
        advice=(
            "the message has the range that only the target holds: save it with [`twinlog "
            "export`](recovery.md#before-a-copy-is-made-again), decide which side is right, and "
            "only then delete the remote topic to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.SOURCE,
        at_risk=AtRisk.BOTH,
        traits=(Trait.LOG_FINDING, Trait.ANOTHER_SOURCE),
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
        fault=Fault.SOURCE,
        at_risk=AtRisk.TARGET,
        traits=(Trait.ANOTHER_TOPIC, Trait.NO_OFFSETS),
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
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
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
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SOURCE_OUT_OF_RANGE",),
        meaning="the source does not have the offset to resume at",
        advice="it is checked again; `SOURCE_TRUNCATED` or `SOURCE_DIVERGED` follows if it stays",
        retry=Retry.SOON,
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TARGET_RECREATED",),
        meaning="the remote topic was deleted and created again",
        advice=(
            "nothing: the copy starts over. Where brokers know topics by name only (before Kafka "
            "4.1) and a batch was on its way, it stops and names records that stand where the "
            "first ones belong: save them with `twinlog export`, compare them with the source, "
            "then take them away"
        ),
        retry=Retry.SOON,
        fault=Fault.TARGET,
        traits=(Trait.ANOTHER_TOPIC, Trait.NO_OFFSETS),
    ),
    Condition(
        codes=("TARGET_LEADER_CHANGED",),
        meaning=(
            "a remote partition has a new leader since its log was last checked, or one that may "
            "have restarted"
        ),
        advice="nothing: it is checked again",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("TARGET_TRUNCATED",),
        meaning=(
            "the target's log ends before the copy's first record, or before what is known to be "
            "copied"
        ),
        advice=(
            "look whether another replica of the target has the records; else save what is left "
            "with `twinlog export`, then delete the remote topic to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("TARGET_UNDER_MIN_ISR",),
        meaning="copied records are not on enough replicas",
        advice="look at the target's brokers; it waits",
        retry=Retry.SOON,
        fault=Fault.TARGET,
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
        fault=Fault.WRITER,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS, Trait.MAY_PASS),
    ),
    Condition(
        codes=("MM2_PLACE_UNKNOWN",),
        meaning=(
            "`--adopt-mm2`: the last record of a remote topic is none of the source's, so it is "
            "not known where MirrorMaker 2 stopped"
        ),
        advice=(
            "find who else wrote to it; save it with `twinlog export`, then delete it to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("START_BEYOND_END",),
        meaning="an offset of `twinlog.start`, or of the source's group, is beyond the log",
        advice="correct it, or write `latest`; the group's with `kafka-consumer-groups.sh`",
        retry=Retry.LATER,
    ),
    Condition(
        codes=("EXTRA_RECORDS",),
        meaning="somebody else wrote to a remote topic",
        advice=(
            "find and stop the other producer; save its records (the message has the range) with "
            "`twinlog export`, then [accept them](repair.md#records-of-somebody-else) with "
            "`twinlog repair`, or delete the topic to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.TARGET,
        traits=(Trait.LOG_FINDING, Trait.REPAIRABLE),
    ),
    Condition(
        codes=("GAP_WRITTEN",),
        meaning="records that were acknowledged are missing on the target",
        advice=(
            "look at the target's brokers; the message has the upstream range, which `twinlog "
            "export --side source` gives; or save the remote topic with `twinlog export`, then "
            "delete it to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.LOG_FINDING, Trait.REPAIRABLE),
    ),
    Condition(
        codes=("POSITION_REGRESSED",),
        meaning="the target's log became shorter without a new leader",
        advice=(
            "look whether another replica of the target has the records; else save what is left "
            "with `twinlog export`, then delete the topic to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.LOG_FINDING,),
    ),
    Condition(
        codes=("DIVERGED",),
        meaning=(
            "the last records of the target are not those of the source, and no place nearby fits"
        ),
        advice=(
            "the message has the range; save it with `twinlog export`, then delete the topic to "
            "copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.BOTH,
        traits=(Trait.LOG_FINDING, Trait.REPAIRABLE),
    ),
    Condition(
        codes=("OTHER_WRITER",),
        meaning="a batch met one of another writer",
        advice="it is checked again by itself",
        retry=Retry.SOON,
        fault=Fault.WRITER,
        traits=(Trait.STALE_PLAN,),
    ),
    Condition(
        codes=("SEQUENCE_REFUSED",),
        meaning="the target expects another sequence number than that of a batch",
        advice="it is checked again by itself",
        retry=Retry.SOON,
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("HELD_BACK",),
        meaning=(
            "records older than the target remembers us came next, soon after a lane or a "
            "connection was lost"
        ),
        advice="it waited some seconds for late requests, and is checked again by itself",
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("TAKEN_OVER",),
        meaning=(
            "identity policy: others write to the topic, and the source has new records in the "
            "range named"
        ),
        advice="the migration is over: stop producing to the source",
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.BOTH,
        traits=(Trait.NOT_OURS, Trait.REPAIRABLE),
    ),
)
