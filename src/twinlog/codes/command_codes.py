"""Codes that end a command. They are not retried."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault

COMMAND_CODES: Final = (
    Condition(
        codes=("COPY_RUNS",),
        meaning=(
            "the flow or topic was promoted, but the mirror that copies it has not confirmed that "
            "its lanes have ended"
        ),
        advice=(
            "do not let producers write to the remote topics yet. Stop the mirror that the message "
            "names, or restore its connection to the target, and run the same command again"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("PROMOTED",),
        meaning="a cutover cannot be aborted after its point of no return",
        advice=(
            "continue it. If no client has written to the remote topics since, `twinlog flow "
            "demote FILE` or `twinlog topic demote FILE` reverts it"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("GATE_CLOSED",),
        meaning="a switchover cannot start because a gate is closed; the message says why",
        advice=(
            "do what the message says, or override the gate with `--accept` and its name; nothing "
            "was changed"
        ),
    ),
    Condition(
        codes=("FENCE_LEAKS",),
        meaning="a client still writes to topics on the source whose producers are to be stopped",
        advice=(
            "stop the producers whose producer IDs the message names, and run the same command "
            "again; `twinlog switchover abort` removes the fence"
        ),
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("FENCE_SHUTS_OUT",),
        meaning=(
            "brokers let every user access topics without ACLs, so the ACL that stops producers "
            "would also stop consumers. Nothing was changed"
        ),
        advice=(
            "first create ACLs on these topics for consumers and the mirror, or stop the producers "
            "yourself: `--fence hook`, `--fence none`"
        ),
    ),
    Condition(
        codes=("NOT_DRAINED",),
        meaning=(
            "records of the source are not on the target yet, or a transaction is still open on "
            "the source. A switchover does not continue without them"
        ),
        advice=(
            "check `twinlog status FILE`: a mirror must be running. End the transaction that the "
            "message names, and run the same command again"
        ),
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("GROUPS_LEFT",),
        meaning=(
            "consumer groups still read on the source, or their offsets on the target are not "
            "as planned"
        ),
        advice="stop the consumers that the message names, and run the same command again",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("HOOK_FAILED",),
        meaning="a command given with `--hook` or `--fence-hook` failed",
        advice="fix it, and run the same command again: completed steps are not repeated",
        fault=Fault.HOST,
    ),
    Condition(
        codes=("DRILL_FAILED",),
        meaning="`drill`: its mirror ended, or did not reach a step of the drill in time",
        advice=(
            "read the last lines of the mirror's log. `twinlog check FILE` and `twinlog doctor "
            "FILE` check the flow itself; `twinlog drill clean FILE --dry-run` lists what the "
            "drill left behind"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("NOTHING_TO_DRILL",),
        meaning="`drill`: the flow mirrors no topic yet, or none that matches `--topics`",
        advice="check `topics` of the flow; a drill creates topics like those of the flow",
    ),
    Condition(
        codes=("NOT_PROMOTED",),
        meaning=(
            "`failback`: the flow is not promoted. Or `switchover`, `failover`, `failback`: its "
            "promotion was reverted while the command ran. The mirror copies the source's records"
        ),
        advice=(
            "a failback follows a failover; use a switchover for a planned move. If the flow was "
            "demoted, find out who did it, and promote it again before the next run"
        ),
    ),
    Condition(
        codes=("TAIL_UNKNOWN",),
        meaning=(
            "`failback`: the offset at which the logs of both sides diverge is unknown: the "
            "brokers no longer have it, the source topic was re-created, or the offset map was "
            "deleted"
        ),
        advice=(
            "leave the topic out with `--topics`; save both sides with `twinlog export`, and "
            "compare them"
        ),
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TAIL_OPEN",),
        meaning=(
            "`failback`: a transaction is open on the source, so the outcome of its tail is "
            "not yet decided"
        ),
        advice=(
            "wait until its producer's transaction timeout has passed, or abort it with "
            "`kafka-transactions.sh`; then run the same command again"
        ),
        fault=Fault.WRITER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TAIL_MOVED",),
        meaning="`failback`: the source deleted or lost a part of the tail while it was read",
        advice="raise `retention.ms` of the topic, and run the same command again",
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TAIL_GROWS",),
        meaning=(
            "`failback`: a client still writes to the source. The records written before are saved"
        ),
        advice="stop its producers, and run the same command again",
        fault=Fault.WRITER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SAVED_OTHERWISE",),
        meaning=(
            "`failback`: the folder of `--save` holds other data, files without a manifest, or "
            "files that were changed after the save; or the source was rewritten at the same "
            "offsets, or ends before a saved file does"
        ),
        advice="keep the folder unchanged, and save to another one",
    ),
    Condition(
        codes=("SAVE_BUSY",),
        meaning="`failback`: another run is saving to the same folder",
        advice="wait until it has ended, and run the same command again",
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("REPLAYED",),
        meaning=(
            "`failback abort`, `flow demote`, `topic demote`, `topic resume`, `repair`: a failback "
            "has started to append the topic's tail to the target, and a resumed copy would append "
            "the same records again"
        ),
        advice=(
            "run `failback run --tail replay` again to finish the replay, then leave the topic "
            "promoted. To mirror it again, give the source another alias"
        ),
        fault=Fault.NOBODY,
        status=409,
    ),
    Condition(
        codes=("REPLAY_UNKNOWN",),
        meaning=(
            "`failback run --tail replay`: a replay was started, but its progress is unknown. Its "
            "committed offset has expired (`offsets.retention.minutes`, a week by default), or the "
            "record appended last is in no saved file"
        ),
        advice=(
            "pass `--save` with the folder of the first run. Otherwise compare the saved files "
            "with the remote topic, and append missing records by hand"
        ),
    ),
    Condition(
        codes=("REPLAY_FENCED",),
        meaning=(
            "`failback run --tail replay`: another run or `failback abort` of the same flow has "
            "started since, or this run was suspended for too long. Brokers accept no more of its "
            "records"
        ),
        advice="if no other run is active, run the same command again",
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("REVERSE_UNKNOWN",),
        meaning=(
            "`failback run`, identity policy: the target holds other records between or before the "
            "copied ones, so there is no single offset at which the reverse flow can start. Or the "
            "topic has another name on the target (`twinlog.rename`), and the reverse flow would "
            "write to a topic of that name"
        ),
        advice="leave the topic out with `--topics`; give it another name in the reverse flow",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("NOT_COPIED",),
        meaning=(
            "`offsets translate`, `failover`, `failback`: nothing was copied; `offsets "
            "rewrite-checkpoint`: the copy has not reached that offset"
        ),
        advice=(
            "check the topic's name (with `--reverse` it is the target's), and let the mirror "
            "catch up"
        ),
    ),
    Condition(
        codes=("OUTSIDE_LOG",),
        meaning="`export`: none of the offsets is in the log; the message has the log's bounds",
    ),
    Condition(
        codes=("NO_OFFSETS",),
        meaning=(
            "the group has no committed offsets there; or it is one of Twinlog's own groups "
            "(`__twinlog-*`), whose offsets are not consumer positions; or one of its topics was "
            "re-created while `offsets reset` ran"
        ),
        advice="check the group's name; `offsets reset` takes topics with `--topic`",
    ),
    Condition(
        codes=("SKIP_REFUSED",),
        meaning=(
            "`twinlog topic skip` changed nothing because the flow's leader does not report that "
            "the partition has stopped at this record; the message has the actual state"
        ),
        advice="run `twinlog status`, and give the offset that it shows",
    ),
    Condition(
        codes=("REPAIR_REFUSED",),
        meaning=(
            "`twinlog repair` changed nothing because no running mirror reports which partitions "
            "have stopped, or the target's log differs from what was shown"
        ),
        advice=(
            "make sure that a mirror runs and that no other client writes to the topic; then "
            "run `twinlog repair` again"
        ),
    ),
    Condition(
        codes=("REBUILD_MISMATCH",),
        meaning=(
            "`offsets rebuild`: from the offset named on, the records of the remote partition are "
            "not the source's, or in another order"
        ),
        advice="compare both sides from that offset on; keep the records that only one of them has",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("REBUILD_FOREIGN",),
        meaning=(
            "`offsets rebuild`: a batch was not written by this flow, or sequence numbers are not "
            "consecutive; or the state topic has no record of the flow"
        ),
        advice="find out who wrote to the topic; save the records that only it holds",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("REBUILD_AMBIGUOUS",),
        meaning=(
            "`offsets rebuild`: records repeat, so the copy may have ended at either of two offsets"
        ),
        advice=("decide which one is right; to compare, copy the partition under another name"),
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_EMPTIED",),
        meaning="`offsets rebuild`: retention has deleted all records of the remote partition",
        advice=(
            "copy the topic under another alias from the offset of its consumers "
            "(`twinlog.start`), or leave it out"
        ),
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_MOVED",),
        meaning="`offsets rebuild`: a log changed while it was compared",
        advice="stop the mirror, and run it again",
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_UNREADABLE",),
        meaning="`offsets rebuild`: a log cannot be read beyond an offset, although it continues",
        advice="inspect that segment on the partition's leader",
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_UNSUPPORTED",),
        meaning=(
            "`offsets rebuild`: the topic's records are distributed over several partitions by key"
        ),
        advice="copy it under another name",
    ),
    Condition(
        codes=("GROUP_ACTIVE",),
        meaning=(
            "`offsets reset`: the group has members (the message names them), or its offsets "
            "changed since they were checked. None of its offsets was set"
        ),
        advice="stop its consumers first",
        fault=Fault.WRITER,
    ),
)
