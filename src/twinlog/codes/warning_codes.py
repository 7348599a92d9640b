"""Codes of warnings and notes: nothing stops."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault

WARNING_CODES: Final = (
    Condition(
        codes=("INSECURE",),
        meaning=(
            "a setting that is honoured and gives something away: a password or token in clear, "
            "an http token endpoint, broker names that are not checked"
        ),
    ),
    Condition(
        codes=("CERTIFICATE_ENDS_SOON",),
        meaning=(
            "a client certificate, or one of a truststore, ends within 14 days, or has ended while "
            "others of the truststore have not; said by `check`, and once a day by `mirror`"
        ),
        advice=(
            "renew the file under the same path ([how](security.md#renewed-key-files)); no restart "
            "is needed"
        ),
    ),
    Condition(
        codes=("SECRET_IN_FILE",),
        meaning="a password stands in the file itself, and not with a config provider",
        advice="write a variable of a config provider ([how](security.md#secrets-of-a-file))",
    ),
    Condition(
        codes=("CUSTOM_CODE",),
        meaning=(
            "a replication policy of your own: its module is run whenever the file is read, also "
            "by `check`; look at it before you check a file of somebody else"
        ),
    ),
    Condition(
        codes=("CONFIG_OVERWRITTEN",),
        meaning=(
            "the sync of configs set back what somebody had changed on a remote topic: old and "
            "new value; how to keep it"
        ),
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("RETENTION_LOWERED",),
        meaning=(
            "the sync of configs is about to shorten the life of records on a remote topic, as at "
            "the source: old and new value; `twinlog.sync.retention=raise-only` leaves such a "
            "change to people. Said before it is done; `check` says it, too"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("RECORD_SKIPPED",),
        meaning=(
            "a record, or a batch, was left out of a copy as somebody wants it (`twinlog topic "
            "skip`): the line says which, who, when and why"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("RPO_EXCEEDED",),
        meaning=(
            "losing the source now would lose more than the last `twinlog.rpo.seconds`; the copy "
            "runs on"
        ),
        advice=(
            "the reason names what holds it back; see "
            "[monitoring](monitoring.md#what-would-be-lost)"
        ),
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("PRODUCERS_HELD",),
        meaning=(
            "the RPO is exceeded, and `twinlog.rpo.enforce=quota` holds the producers of the "
            "source back until the flow has caught up; the line says at which rate"
        ),
        advice=(
            "nothing, as a rule: the quota is removed by itself; where no mirror runs any more, "
            "by `twinlog flow unthrottle`"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("COPY_DIFFERS",),
        meaning=(
            "the mirror has read a part of its copy back (`twinlog.verify`), and it is not what "
            "the source holds, twice in a row: the line says which range, and how it differs. The "
            "copy runs on, nothing is repaired"
        ),
        advice=(
            "`twinlog verify FILE --topics NAME` says all that differs ([what it means]"
            "(verify.md#what-is-compared)); look for whoever else writes to the remote topic, and "
            "at the brokers' disks; keep both logs until it is known"
        ),
        fault=Fault.WRITER,
        at_risk=AtRisk.BOTH,
    ),
    Condition(
        codes=("RETENTION_NEAR",),
        meaning=(
            "the source's retention will delete records before they are copied, as things are; the "
            "copy runs on"
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
            "batches that must be decoded, small ones that are joined, and rows of DataFrames go "
            "through Python: the compiled kernels are not there, or `TWINLOG_KERNELS=python` asks "
            "for it. The copy and the rows are the same, for several times the CPU"
        ),
        advice=(
            "install a wheel of your platform; or install a C compiler, and then Twinlog again "
            "([what is compiled](operations.md#compiled-kernels))"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("OPEN_TRANSACTION",),
        meaning=(
            "under `read_committed` a transaction that is open at the source holds the copy back "
            "at the last stable offset; the message says whose. `--once` ended there. Or it is "
            "open for longer than `transaction.max.timeout.ms` of the source's brokers, by a "
            "minute, or for an hour (15 minutes where the brokers do not tell it): then it may be "
            "hanging (KIP-664), with no coordinator that ends it. The partition's lag counts what "
            "waits behind it"
        ),
        advice=(
            "find its producer (`kafka-transactions.sh describe-producers`), and end it there; "
            "what `find-hanging` shows is ended with `kafka-transactions.sh abort`, which rolls "
            "its records back. The code goes when the last stable offset moves"
        ),
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("UNKNOWN_KEY", "DUPLICATE_KEY", "DEPRECATED_KEY", "DEAD_KEY"),
        meaning="a key that nothing reads, twice, under an old name, or where it reaches nobody",
    ),
    Condition(
        codes=("NO_MEANING",),
        meaning=(
            "fields of a Strimzi resource, settings of MirrorMaker 1, or keys of MirrorMaker 2 "
            "that have no effect here"
        ),
    ),
    Condition(
        codes=("READ_AS",),
        meaning=(
            "a resource of another API group than Strimzi's, or a connector of Kafka Connect; the "
            "message names the resource or flow as which it is read"
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
            "a value that does not do what it seems to be meant for; `MATCHES_NOTHING` also where "
            "no topic of the source matches `topics`, so that nothing is copied"
        ),
    ),
)
