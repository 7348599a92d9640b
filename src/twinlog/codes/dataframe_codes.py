"""Codes that end a read or write of `format("twinlog")`. They are not retried."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault

DATAFRAME_CODES: Final = (
    Condition(
        codes=("RETENTION",),
        meaning=(
            '`format("twinlog")`: the log\'s start has passed offsets that were to be read; the '
            "message has their range"
        ),
        advice=(
            "give the topic a longer retention; `failOnDataLoss=false` reads the remaining records "
            "and logs a warning instead"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TRUNCATED",),
        meaning=(
            '`format("twinlog")`: the log ends before offsets that were read or planned; the '
            "message has their range"
        ),
        advice=(
            "find out whether the topic was re-created or lost its end in an unclean leader "
            "election; records read before may be the only copy"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("LOG_GAP",),
        meaning=(
            '`format("twinlog")`: offsets are missing within a log that is not compacted; the '
            "message has their range. Possible causes: the broker skipped a damaged segment that "
            "is not the last one, the topic was compacted earlier, or the broker is not Apache "
            "Kafka and keeps records of its own in the log"
        ),
        advice=(
            "compare the segment on the leader with another replica's (`kafka-dump-log.sh`), and "
            "let an undamaged one lead. `failOnDataLoss=false` reads the remaining records and "
            "logs a warning instead; use it if no records were lost"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("COMPACTION",),
        meaning=(
            '`format("twinlog")`, in the task log: the number of offsets in the range that have no '
            "row because the topic was compacted. It is a warning if the `cleanup.policy` of the "
            "topic cannot be read, because the records may then be lost"
        ),
        advice="nothing; if it is a warning, give the user DESCRIBE_CONFIGS on the topic",
    ),
    Condition(
        codes=("TRANSACTIONS",),
        meaning=(
            '`format("twinlog")`, in the task log: the number of offsets in the range that have no '
            "row because they are transaction markers or records of aborted transactions"
        ),
        advice="nothing",
    ),
    Condition(
        codes=("ROW_INVALID",),
        meaning=(
            '`format("twinlog")`: rows to be written are not valid records: no topic, a partition '
            "that does not exist, a header without a key, or a timestamp before 1970"
        ),
        advice="filter or convert them; no row of the write or micro-batch was committed",
    ),
    Condition(
        codes=("PARTITION_SHARED",),
        meaning=(
            '`format("twinlog")`: more than one task wrote to a partition, or a task that was '
            "retried had different rows; nothing was committed"
        ),
        advice=(
            "give each partition to one task with `partitioned(df, options)`. Write "
            "non-deterministic rows (`rand()`) to a table first, and read that"
        ),
    ),
    Condition(
        codes=("WRITER_FENCED",),
        meaning=(
            '`format("twinlog")`: a newer run of the same query or write has started, or the '
            "transaction took longer than `kafka.transaction.timeout.ms`"
        ),
        advice=(
            "if no other run is active, start it again; rows that it has committed are recognised. "
            "Smaller micro-batches take less time"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("MARK_DIFFERS",),
        meaning=(
            '`format("twinlog")`: a stream\'s checkpoint and the mark in its transactions '
            "disagree on what was committed last; or the mark was not written by a writer on this "
            "cluster; or a `writeId` was already used for another topic. Nothing was committed"
        ),
        advice=(
            "compare the topic with the query's input. Then start with a new checkpoint and "
            "`kafka.transactional.id`, or write once with `missingMark=write`. Use each `writeId` "
            "for one write only"
        ),
    ),
)
