"""Codes that keep a flow from running."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait

FLOW_CODES: Final = (
    Condition(
        codes=("UNREACHABLE", "DISCONNECTED"),
        meaning="no broker responds, or a connection broke",
        advice=(
            "check addresses and network; `mirror` keeps retrying, `--once` and `check` give up "
            "after 60 s"
        ),
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
        traits=(Trait.AWAY,),
    ),
    Condition(
        codes=("NOT_KAFKA",),
        meaning=(
            "the server at a bootstrap address does not match the settings: it is a web server, a "
            "listener with TLS, or one without"
        ),
        advice=("correct the port or `security.protocol`; this is reported immediately"),
        retry=Retry.SOON,
    ),
    Condition(
        codes=("AUTHENTICATION_FAILED",),
        meaning="TLS or SASL was refused",
        advice="check certificates, mechanism, user and password",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("CERTIFICATE_EXPIRED",),
        meaning=(
            "a client certificate, or every certificate of a truststore, has expired; the message "
            "has file, subject and date. `mirror` warns once a day and continues while brokers "
            "accept it"
        ),
        advice=(
            "renew the file under the same path ([how](security.md#renewed-key-files)); no restart "
            "is needed"
        ),
        retry=Retry.SOON,
    ),
    Condition(
        codes=(
            "UNAUTHORIZED",
            "CLUSTER_UNAUTHORIZED",
            "GROUP_UNAUTHORIZED",
            "TRANSACTIONAL_ID_UNAUTHORIZED",
        ),
        meaning="an ACL is missing",
        advice="grant the permission that the message names",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("REPLICATION_FACTOR",),
        meaning=(
            "a topic needs more replicas than there are live brokers. No topic was created; "
            "existing topics are mirrored"
        ),
        advice="start the brokers: it is retried. Or lower `replication.factor`, or set it to -1",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("PAUSED",),
        meaning="`mirror --once` was run for a paused flow",
        advice="ask the user whom the message names; `twinlog flow resume FILE` resumes the flow",
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("FENCED",),
        meaning=(
            "the flow was promoted, so its remote topics are now the originals. It copies nothing, "
            "not even after a restart. Only `mirror --once` fails with this code"
        ),
        advice=(
            "ask the user whom the message names; `twinlog flow demote FILE` reverts the "
            "promotion, unless another client has written to the remote topics"
        ),
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("MM2_RUNNING",),
        meaning="`--adopt-mm2`: MirrorMaker 2 is running or writing",
        advice="stop it, then start again ([how](mirror-maker-2.md))",
    ),
    Condition(
        codes=("MM2_NOT_FOUND",),
        meaning="`--adopt-mm2`: no offsets of such a connector were found",
        advice="correct `offset.storage.topic`, or name the connector with `--connector`",
    ),
    Condition(
        codes=("NOT_LEADER", "STANDBY"),
        meaning="another process leads the flow",
        advice="stop that process, or leave this one as a standby",
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("CONFIG_MISMATCH",),
        meaning="this standby process has a different configuration than the leader",
        advice="give both the same file and reload them",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("CLUSTER_CHANGED",),
        meaning="the stored state belongs to another source cluster",
        advice=(
            "correct `bootstrap.servers`. If the cluster was replaced or re-created, the remote "
            "topics are the only copy of its records: give the new cluster another alias, or save "
            "each topic with `twinlog export` first"
        ),
        retry=Retry.SOON,
        fault=Fault.SOURCE,
        at_risk=AtRisk.TARGET,
    ),
    Condition(
        codes=("CLUSTERS_SWAPPED",),
        meaning=(
            "the flow has copied in the opposite direction before: the addresses of its clusters "
            "were swapped. Nothing was written"
        ),
        advice="swap them back",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("SAME_CLUSTER",),
        meaning=(
            "two aliases are the same cluster, so records would be copied onto it or copied twice. "
            "Nothing was written"
        ),
        advice="correct `bootstrap.servers`, or give the cluster one alias",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("INTERNAL_TOPIC_NOT_COMPACTED",),
        meaning="an internal topic has the wrong `cleanup.policy`",
        advice="set it to `compact`",
    ),
    Condition(
        codes=("STATE_TOO_NEW",),
        meaning="a newer release of Twinlog wrote the state",
        advice="upgrade",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("STATE_CORRUPT",),
        meaning="a record in the state topic or the offset map cannot be read",
        advice=(
            "find the other writer to that topic, and do not delete the topic: only its records "
            "show which flow wrote a copy. To replace a pause or limit that cannot be read, run "
            "`twinlog flow pause`, `resume` or `limit` again; for topics, `twinlog topic pause` or "
            "`resume`"
        ),
        retry=Retry.SOON,
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("BROKERS_DIFFER",),
        meaning=(
            "one broker reports a topic of the flow and another does not, or only one broker "
            "responds. Metadata may be stale, so no topic was released, and `--once` did not end "
            "successfully"
        ),
        advice=(
            "usually nothing: topics are searched for again. If the problem persists, check that "
            "broker's connection to the controller"
        ),
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("BROKER_REFUSED", "BROKER_NOT_AVAILABLE", "UNSUPPORTED", "CLUSTER"),
        meaning="a broker returned an error, or is too old",
        advice="see the message",
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("FLOW",),
        meaning="an error of a flow without a code of its own",
        advice="see the message",
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
)
