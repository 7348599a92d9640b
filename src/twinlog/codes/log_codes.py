"""Codes that stop one partition because of the source's or the target's log."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait

LOG_CODES: Final = (
    Condition(
        codes=("SOURCE_TRUNCATED",),
        meaning="the source deleted records before they were copied",
        advice=(
            "neither side has these records, so nothing can be exported. Raise the source topic's "
            "retention; `twinlog.source.loss=accept` resumes after the missing records"
        ),
        retry=Retry.LATER,
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SOURCE_DIVERGED",),
        meaning=(
            "the source lost records that were already copied (unclean leader election) and has "
            "different records at their offsets"
        ),
        advice=(
            "the message has the range that only the target holds. Save it with [`twinlog "
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
            "records of the old one. No partition of the new topic is copied, not even partitions "
            "that the old topic did not have"
        ),
        advice=(
            "the remote topic is the only copy of the old topic: save it with `twinlog export`, "
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
            "a warning; the copy continues: the source skips the offsets named, although its topic "
            "is not compacted. A broker skips a damaged segment that is not the last one in this "
            "way; a topic that was compacted earlier looks the same. Logged at most once in ten "
            "minutes per partition"
        ),
        advice=(
            "compare the segment on the leader with another replica's (`kafka-dump-log.sh`). If "
            "another replica has the records, let it lead and read them with `twinlog export "
            "--side source`. To have them in the copy, save the remote topic with `twinlog export "
            "--side target`, then delete it"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SOURCE_STALLED",),
        meaning=(
            "for a minute, the source has returned no records from the offset named on and no "
            "error, although its log continues. Either a batch's length is damaged on disk, or "
            "remote storage returns nothing within `remote.fetch.max.wait.ms`"
        ),
        advice=(
            "with `remote.storage.enable=true`, raise `remote.fetch.max.wait.ms` on the source's "
            "brokers: no records are lost in this case. Otherwise inspect the segment with "
            "`kafka-dump-log.sh` on the partition's leader; repair it, or let another replica "
            "lead. If neither helps and the message says so, save the readable records after it "
            "(`twinlog export --side source --from OFFSET`), then delete the records up to and "
            "including it (`kafka-delete-records.sh`) with `twinlog.source.loss=accept`"
        ),
        retry=Retry.LATER,
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SOURCE_OUT_OF_RANGE",),
        meaning="the offset to resume at is not in the source's log",
        advice=(
            "nothing: the log is checked again. `SOURCE_TRUNCATED` or `SOURCE_DIVERGED` "
            "follows if the problem persists"
        ),
        retry=Retry.SOON,
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TARGET_RECREATED",),
        meaning="the remote topic was deleted and created again",
        advice=(
            "nothing: the copy starts over. If the brokers identify topics by name only (before "
            "Kafka 4.1) and a batch was in flight, the partition stops, and the message names "
            "records at the offsets of the first records. Save those with `twinlog export`, "
            "compare them with the source, then delete them"
        ),
        retry=Retry.SOON,
        fault=Fault.TARGET,
        traits=(Trait.ANOTHER_TOPIC, Trait.NO_OFFSETS),
    ),
    Condition(
        codes=("TARGET_LEADER_CHANGED",),
        meaning=(
            "a remote partition has a new leader since its log was last checked, or its leader may "
            "have restarted"
        ),
        advice="nothing: the log is checked again",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("TARGET_TRUNCATED",),
        meaning=(
            "the target's log ends before the first copied record, or before the last record that "
            "is known to be copied"
        ),
        advice=(
            "check whether another replica of the target has the records. If not, save the rest "
            "with `twinlog export`, then delete the remote topic to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("TARGET_UNDER_MIN_ISR",),
        meaning="copied records are not on enough in-sync replicas",
        advice="check the target's brokers; the partition waits and is retried",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("FOREIGN_DATA",),
        meaning=(
            "a remote topic holds records that this flow did not write, or whose offset map rows "
            "were lost"
        ),
        advice=(
            "if this flow wrote them, run `twinlog offsets rebuild`. Otherwise choose other topic "
            "names (`replication.policy.separator`), or save the records with `twinlog export` and "
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
            "`--adopt-mm2`: the last record of a remote topic matches no record of the source, so "
            "the offset at which MirrorMaker 2 stopped is unknown"
        ),
        advice=(
            "find the other writer; save the topic with `twinlog export`, then delete it to "
            "copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.TARGET,
        traits=(Trait.NO_OFFSETS,),
    ),
    Condition(
        codes=("START_BEYOND_END",),
        meaning=(
            "an offset in `twinlog.start`, or of the source's group, is after the end of the log"
        ),
        advice=(
            "correct it or write `latest`; correct a group's offset with `kafka-consumer-groups.sh`"
        ),
        retry=Retry.LATER,
    ),
    Condition(
        codes=("EXTRA_RECORDS",),
        meaning="another producer wrote to a remote topic",
        advice=(
            "stop the other producer. Save its records with `twinlog export` (the message has the "
            "range), then [accept them](repair.md#records-of-somebody-else) with `twinlog repair`, "
            "or delete the topic to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.TARGET,
        traits=(Trait.LOG_FINDING, Trait.REPAIRABLE),
    ),
    Condition(
        codes=("GAP_WRITTEN",),
        meaning="acknowledged records are missing on the target",
        advice=(
            "check the target's brokers. Read the upstream range in the message with `twinlog "
            "export --side source`, or save the remote topic with `twinlog export` and delete it "
            "to copy again"
        ),
        retry=Retry.LATER,
        fault=Fault.TARGET,
        at_risk=AtRisk.TARGET,
        traits=(Trait.LOG_FINDING, Trait.REPAIRABLE),
    ),
    Condition(
        codes=("POSITION_REGRESSED",),
        meaning="the target's log became shorter although its leader did not change",
        advice=(
            "check whether another replica of the target has the records. If not, save the rest "
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
            "the last records of the target are not those of the source, and no nearby offset "
            "matches"
        ),
        advice=(
            "save the range in the message with `twinlog export`, then delete the topic to copy "
            "again"
        ),
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.BOTH,
        traits=(Trait.LOG_FINDING, Trait.REPAIRABLE),
    ),
    Condition(
        codes=("OTHER_WRITER",),
        meaning="a batch collided with one of another writer",
        advice="nothing: the log is checked again",
        retry=Retry.SOON,
        fault=Fault.WRITER,
        traits=(Trait.STALE_PLAN,),
    ),
    Condition(
        codes=("SEQUENCE_REFUSED",),
        meaning="the target expects a different sequence number for a batch",
        advice="nothing: the log is checked again",
        retry=Retry.SOON,
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("HELD_BACK",),
        meaning=(
            "soon after a lane or a connection was lost, the next records were older than the time "
            "for which the target remembers the flow's producer IDs, and late requests may have "
            "written more"
        ),
        advice=(
            "nothing: the partition waited some seconds for late requests, and the log is "
            "checked again"
        ),
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("TAKEN_OVER",),
        meaning=(
            "identity policy: other clients write to the topic, and the source has new records in "
            "the range named"
        ),
        advice="the migration is complete: stop producing to the source",
        retry=Retry.LATER,
        fault=Fault.WRITER,
        at_risk=AtRisk.BOTH,
        traits=(Trait.NOT_OURS, Trait.REPAIRABLE),
    ),
)
