"""Codes with which a flow does not run."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault, Retry, Trait

FLOW_CODES: Final = (
    Condition(
        codes=("UNREACHABLE", "DISCONNECTED"),
        meaning="no broker answers, or a connection broke",
        advice=(
            "check addresses and network; `mirror` tries on, `--once` and `check` give up after "
            "60 s"
        ),
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
        traits=(Trait.AWAY,),
    ),
    Condition(
        codes=("NOT_KAFKA",),
        meaning=(
            "at a bootstrap address something else answers than the settings speak of: a web "
            "server, a listener with TLS, or one without"
        ),
        advice="correct the port, or `security.protocol`; it is said at once",
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
            "a client certificate, or every certificate of a truststore, has ended: file, subject "
            "and date; `mirror` warns of it once a day and runs on while brokers allow it"
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
        advice="grant what the message names",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("REPLICATION_FACTOR",),
        meaning=(
            "more replicas are asked for than brokers are alive; nothing was created, topics that "
            "are there are mirrored"
        ),
        advice="start the brokers: it is tried again; or lower `replication.factor`, or -1",
        retry=Retry.SOON,
        fault=Fault.TARGET,
    ),
    Condition(
        codes=("PAUSED",),
        meaning="`mirror --once` of a flow that somebody has paused",
        advice="ask who the message names; `twinlog flow resume FILE` takes it back",
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("FENCED",),
        meaning=(
            "the flow was promoted: its remote topics are the originals now, and it copies nothing "
            "whatever restarts; an error of `mirror --once` alone"
        ),
        advice=(
            "ask who the message names; `twinlog flow demote FILE` takes it back, as long as "
            "nobody else has written to the remote topics"
        ),
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("MM2_RUNNING",),
        meaning="`--adopt-mm2`: MirrorMaker 2 runs or writes",
        advice="stop it, then start again ([how](mirror-maker-2.md))",
    ),
    Condition(
        codes=("MM2_NOT_FOUND",),
        meaning="`--adopt-mm2`: there are no positions of such a connector",
        advice="correct `offset.storage.topic`, or name the connector with `--connector`",
    ),
    Condition(
        codes=("NOT_LEADER", "STANDBY"),
        meaning="another process leads the flow",
        advice="stop it, or let this one stand by",
        retry=Retry.SOON,
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("CONFIG_MISMATCH",),
        meaning="this process stands by with another configuration than the leader's",
        advice="give both the same file and reload them",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("CLUSTER_CHANGED",),
        meaning="the state was written for another source cluster",
        advice=(
            "correct `bootstrap.servers`; if it is another cluster, or was re-created, the remote "
            "topics are the only copy of what it held: give it another alias, or save each with "
            "`twinlog export` first"
        ),
        retry=Retry.SOON,
        fault=Fault.SOURCE,
        at_risk=AtRisk.TARGET,
    ),
    Condition(
        codes=("CLUSTERS_SWAPPED",),
        meaning=(
            "this flow has copied in the other direction: the addresses of its clusters were "
            "swapped; nothing was written"
        ),
        advice="swap them back",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("SAME_CLUSTER",),
        meaning=(
            "two aliases are one cluster, so that records would be copied onto it or twice; "
            "nothing was written"
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
        meaning="a newer release wrote the state",
        advice="upgrade",
        retry=Retry.SOON,
    ),
    Condition(
        codes=("STATE_CORRUPT",),
        meaning="a row of state or map cannot be read",
        advice=(
            "find who else writes to that topic; keep it: without it nothing says whose the "
            "copies are. A pause or a limit that cannot be read is replaced by the next one: "
            "twinlog flow pause, resume or limit, and of topics twinlog topic pause or resume"
        ),
        retry=Retry.SOON,
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("BROKERS_DIFFER",),
        meaning=(
            "one broker shows a topic of the flow and another does not, or none but one answers: "
            "its metadata is old, so nothing was given back, and `--once` has not ended as done"
        ),
        advice=(
            "nothing, as a rule: topics are looked for again; if it stays, look at that broker's "
            "connection to the controller"
        ),
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("BROKER_REFUSED", "BROKER_NOT_AVAILABLE", "UNSUPPORTED", "CLUSTER"),
        meaning="a broker answered with an error, or is too old",
        advice="as the message says",
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("FLOW",),
        meaning="an error of a flow that has no code of its own",
        advice="as the message says",
        retry=Retry.SOON,
        fault=Fault.CLUSTER,
    ),
)
