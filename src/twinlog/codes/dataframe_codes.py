"""Codes with which a read or write of `format("twinlog")` ends: nothing is tried again."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault

DATAFRAME_CODES: Final = (
    Condition(
        codes=("RETENTION",),
        meaning=(
            '`format("twinlog")`: offsets that were to be read were deleted from the front of the '
            "log; the message has their range"
        ),
        advice=(
            "give the topic a longer retention; `failOnDataLoss=false` reads what is left and says "
            "the same as a warning"
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
            "find out whether the topic was re-created or lost its end in an unclean election; "
            "what was read before may be the only copy"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("LOG_GAP",),
        meaning=(
            '`format("twinlog")`: offsets are missing inside of a log that is not compacted; '
            "the message has their range. A damaged segment that is not the last one looks so to "
            "its broker; a topic that was compacted before does as well, and so do brokers of "
            "other makers that keep records of their own in the log"
        ),
        advice=(
            "compare the segment on the leader with another replica's (`kafka-dump-log.sh`), and "
            "let a sound one lead; `failOnDataLoss=false` reads what is left and says the same as "
            "a warning: right where nothing was lost"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("COMPACTION",),
        meaning=(
            '`format("twinlog")`, in the log of a task: so many offsets of that range have no row, '
            "because the topic was compacted. It is a warning where `cleanup.policy` of the topic "
            "may not be read: they may be lost then"
        ),
        advice="nothing; with the warning, give the user DESCRIBE_CONFIGS on the topic",
    ),
    Condition(
        codes=("TRANSACTIONS",),
        meaning=(
            '`format("twinlog")`, in the log of a task: so many offsets of that range have no row, '
            "because they are markers of transactions, or records that were rolled back"
        ),
        advice="nothing",
    ),
    Condition(
        codes=("ROW_INVALID",),
        meaning=(
            '`format("twinlog")`: rows that are to be written cannot be records: no topic, a '
            "partition that is not there, a header without a key, a time before 1970"
        ),
        advice="filter or convert them; nothing of the write or micro-batch was committed",
    ),
    Condition(
        codes=("PARTITION_SHARED",),
        meaning=(
            '`format("twinlog")`: more than one task wrote to a partition, or a task that ran '
            "twice had other rows the second time; nothing was committed"
        ),
        advice=(
            "give each partition to one task: `partitioned(df, options)`; write what gives other "
            "rows each time (`rand()`) to a table first, and read that"
        ),
    ),
    Condition(
        codes=("WRITER_FENCED",),
        meaning=(
            '`format("twinlog")`: another run of the same query or write has begun since, or the '
            "transaction took longer than `kafka.transaction.timeout.ms`"
        ),
        advice=(
            "where no other runs, start it again; what it has committed is recognised. Smaller "
            "micro-batches take less time"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("MARK_DIFFERS",),
        meaning=(
            '`format("twinlog")`: the checkpoint of a stream and the mark in its transactions '
            "disagree on what was committed last; or the mark was not set by a writer on this "
            "cluster; or a `writeId` is used for another topic. Nothing was committed now"
        ),
        advice=(
            "compare the topic with the query's input; then begin with a new checkpoint and "
            "`kafka.transactional.id`, or write on once with `missingMark=write`; use each "
            "`writeId` for one write only"
        ),
    ),
)
