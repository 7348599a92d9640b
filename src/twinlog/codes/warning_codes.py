"""Codes of warnings and notes. Nothing stops."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault

WARNING_CODES: Final = (
    Condition(
        codes=("INSECURE",),
        meaning=(
            "a setting takes effect but is insecure: a password or token in clear text, an http "
            "token endpoint, or broker host names that are not verified"
        ),
    ),
    Condition(
        codes=("CERTIFICATE_ENDS_SOON",),
        meaning=(
            "a client certificate, or one in a truststore, expires within 14 days; or one in a "
            "truststore has expired and others have not. Reported by `check`, and once a day by "
            "`mirror`"
        ),
        advice=(
            "renew the file under the same path ([how](security.md#renewed-key-files)); no restart "
            "is needed"
        ),
    ),
    Condition(
        codes=("SECRET_IN_FILE",),
        meaning=(
            "a password is written in the file itself instead of being read from a config provider"
        ),
        advice="use a variable of a config provider ([how](security.md#secrets-of-a-file))",
    ),
    Condition(
        codes=("CUSTOM_CODE",),
        meaning=(
            "a custom replication policy: its module is executed whenever the file is read, also "
            "by `check`. Review it before you check a file from someone else"
        ),
    ),
    Condition(
        codes=("CONFIG_OVERWRITTEN",),
        meaning=(
            "the config sync reset a value that was changed on a remote topic; the message has the "
            "old and new value and says how to keep it"
        ),
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("RETENTION_LOWERED",),
        meaning=(
            "the config sync is about to shorten the retention of a remote topic to that of the "
            "source topic; the message has the old and new value. With "
            "`twinlog.sync.retention=raise-only` retention is never lowered. Logged before the "
            "change, and also by `check`"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("RECORD_SKIPPED",),
        meaning=(
            "a record or batch was left out of the copy as requested with `twinlog topic skip`; "
            "the message says which one, who requested it, when and why"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("RPO_EXCEEDED",),
        meaning=(
            "losing the source now would lose more than the last `twinlog.rpo.seconds`; the copy "
            "continues"
        ),
        advice=(
            "the reason names the cause of the delay; see "
            "[monitoring](monitoring.md#what-would-be-lost)"
        ),
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("PRODUCERS_HELD",),
        meaning=(
            "the RPO is exceeded, and `twinlog.rpo.enforce=quota` throttles the producers of the "
            "source until the flow has caught up; the message has the rate"
        ),
        advice=(
            "usually nothing: the quota is removed automatically. If no mirror runs any more, "
            "remove it with `twinlog flow unthrottle`"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("COPY_DIFFERS",),
        meaning=(
            "the mirror has read back a part of its copy (`twinlog.verify`), and twice in a row it "
            "differed from the source. The message has the range and the difference. The copy "
            "continues, and nothing is repaired"
        ),
        advice=(
            "`twinlog verify FILE --topics NAME` lists all differences ([what it "
            "means](verify.md#what-is-compared)). Look for other writers to the remote topic, and "
            "check the brokers' disks; keep both logs until the cause is known"
        ),
        fault=Fault.WRITER,
        at_risk=AtRisk.BOTH,
    ),
    Condition(
        codes=("RETENTION_NEAR",),
        meaning=(
            "at the current rate the source's retention will delete records before they are "
            "copied; the copy continues"
        ),
        advice=(
            "raise `retention.ms` or `retention.bytes` of the source's topic until the copy has "
            "caught up; see [monitoring](monitoring.md#what-retention-may-take)"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("KERNELS_MISSING",),
        meaning=(
            "the compiled kernels are not installed, or `TWINLOG_KERNELS=python` is set. Batches "
            "that must be decoded, small batches that are joined, and rows of DataFrames are "
            "processed in Python, which needs several times the CPU. The results are the same"
        ),
        advice=(
            "install a wheel for your platform; or install a C compiler, and then Twinlog again "
            "([what is compiled](operations.md#compiled-kernels))"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("OPEN_TRANSACTION",),
        meaning=(
            "with `read_committed`, an open transaction on the source holds the copy at the last "
            "stable offset; the message names its producer. `--once` ended there. Or the "
            "transaction has been open for a minute longer than `transaction.max.timeout.ms` of "
            "the source's brokers, or for an hour (15 minutes if the brokers do not report that "
            "setting). It may then be a hanging transaction (KIP-664) that no coordinator ends. "
            "The partition's lag includes the records after it"
        ),
        advice=(
            "find its producer (`kafka-transactions.sh describe-producers`), and end the "
            "transaction there. Abort transactions that `find-hanging` lists with "
            "`kafka-transactions.sh abort`, which rolls back their records. The code disappears "
            "when the last stable offset moves"
        ),
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("UNKNOWN_KEY", "DUPLICATE_KEY", "DEPRECATED_KEY", "DEAD_KEY"),
        meaning="a key that is unknown, defined twice, deprecated, or without effect",
    ),
    Condition(
        codes=("NO_MEANING",),
        meaning=(
            "fields of a Strimzi resource, settings of MirrorMaker 1, or keys of MirrorMaker 2 "
            "that have no effect in Twinlog"
        ),
    ),
    Condition(
        codes=("READ_AS",),
        meaning=(
            "a resource of another API group than Strimzi's, or a connector of Kafka Connect; the "
            "message names the resource or flow that it is read as"
        ),
    ),
    Condition(
        codes=(
            "FLOW_OFF",
            "COMMENT_IN_VALUE",
            "STAR_PATTERN",
            "BLANK_NAME",
            "MATCHES_NOTHING",
            "NO_BOOTSTRAP",
            "UNRESOLVED",
            "NOT_ASCII",
            "BACKSLASH_DROPPED",
            "NO_PROTOCOL",
            "NOT_SHOWN",
        ),
        meaning=(
            "a value that probably does not do what was intended; `MATCHES_NOTHING` also if no "
            "topic of the source matches `topics`, so that nothing is copied"
        ),
    ),
)
