"""Codes with which a command ends: nothing is tried again."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import AtRisk, Condition, Fault

COMMAND_CODES: Final = (
    Condition(
        codes=("COPY_RUNS",),
        meaning=(
            "the flow or topic was promoted, and the mirror that copies it has not said that its "
            "lanes have ended"
        ),
        advice=(
            "let no producer write to the remote topics yet; end the mirror that the message "
            "names, or mend its way to the target, and give the same command again"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("PROMOTED",),
        meaning="a cutover is to be taken back behind its point of no return",
        advice=(
            "continue it; or, if you know that nobody has written to the remote topics since, "
            "`twinlog flow demote FILE` or `twinlog topic demote FILE`"
        ),
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("GATE_CLOSED",),
        meaning="a switchover may not begin: a gate is closed, and the message says why",
        advice=(
            "do what the gate names, or continue in spite of it with `--accept` and its name; "
            "nothing was changed"
        ),
    ),
    Condition(
        codes=("FENCE_LEAKS",),
        meaning="somebody still writes to topics on the source whose producers are to be stopped",
        advice=(
            "stop the producers that the message names by producer id, and give the same command "
            "again; `twinlog switchover abort` takes the fence away"
        ),
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("FENCE_SHUTS_OUT",),
        meaning=(
            "brokers let everybody use topics without ACLs, so the ACL that stops producers would "
            "stop readers too; nothing was changed"
        ),
        advice=(
            "give readers, and the mirror, ACLs for these topics first; or stop producers "
            "yourself: `--fence hook`, `--fence none`"
        ),
    ),
    Condition(
        codes=("NOT_DRAINED",),
        meaning=(
            "records of the source are not on the target yet, or a transaction is still open "
            "there, and a switchover does not continue without them"
        ),
        advice=(
            "look at `twinlog status FILE`: a mirror must run; end the transaction that the "
            "message names; give the same command again"
        ),
        fault=Fault.CLUSTER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("GROUPS_LEFT",),
        meaning="groups still read on the source, or are not where they should be on the target",
        advice="stop the consumers that the message names, and give the same command again",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("HOOK_FAILED",),
        meaning="a command that was given with `--hook` or `--fence-hook` ended with an error",
        advice="mend it, and give the same command again: the steps before it are not repeated",
        fault=Fault.HOST,
    ),
    Condition(
        codes=("DRILL_FAILED",),
        meaning="`drill`: its mirror ended, or did not come to a step of the rehearsal in time",
        advice=(
            "read what the mirror said last; `twinlog check FILE` and `twinlog doctor FILE` look "
            "at the flow itself; `twinlog drill clean FILE --dry-run` shows what is left of it"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("NOTHING_TO_DRILL",),
        meaning="`drill`: the flow mirrors no topic yet, or none that `--topics` chooses",
        advice="look at `topics` of the flow; a drill makes topics that are like the flow's",
    ),
    Condition(
        codes=("NOT_PROMOTED",),
        meaning=(
            "`failback`: the flow is not promoted; or `switchover`, `failover`, `failback`: its "
            "promotion was taken back while the command ran. The mirror copies the source's records"
        ),
        advice=(
            "a failback comes after a failover; a planned move is a switchover. If the flow was "
            "demoted, find out by whom, and promote it again before the next run"
        ),
    ),
    Condition(
        codes=("TAIL_UNKNOWN",),
        meaning=(
            "`failback`: where the logs of both sides part is not known: the brokers have "
            "forgotten it, the source's topic was re-created, or the offset map was deleted"
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
        meaning="`failback`: a transaction is open on the source, so its tail is not decided yet",
        advice=(
            "wait until the transaction timeout of its producer has passed, or end it with "
            "`kafka-transactions.sh`; give the same command again"
        ),
        fault=Fault.WRITER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TAIL_MOVED",),
        meaning="`failback`: the source deletes the tail, or lost a part of it, while it is read",
        advice="raise `retention.ms` of the topic, and give the same command again",
        fault=Fault.SOURCE,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("TAIL_GROWS",),
        meaning="`failback`: somebody still writes to the source; what was there is saved",
        advice="stop its producers, and give the same command again",
        fault=Fault.WRITER,
        at_risk=AtRisk.SOURCE,
    ),
    Condition(
        codes=("SAVED_OTHERWISE",),
        meaning=(
            "`failback`: the folder of `--save` holds something else, files without a manifest, "
            "or files that were changed since the save; or the source was rewritten under the "
            "same offsets, or ends before a saved file does"
        ),
        advice="keep the folder as it is, and save to another one",
    ),
    Condition(
        codes=("SAVE_BUSY",),
        meaning="`failback`: another run saves to the same folder now",
        advice="wait until it has ended, and give the same command again",
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("REPLAYED",),
        meaning=(
            "`failback abort`, `flow demote`, `topic demote`, `topic resume`, `repair`: a failback "
            "has begun to append the tail of the topic to the target, where a resumed copy would "
            "append it again"
        ),
        advice=(
            "give `failback run --tail replay` again to finish the replay, then leave the topic "
            "promoted; to mirror it again, give the source another alias"
        ),
        fault=Fault.NOBODY,
        status=409,
    ),
    Condition(
        codes=("REPLAY_UNKNOWN",),
        meaning=(
            "`failback run --tail replay`: it was begun, and the brokers have forgotten how far it "
            "came (`offsets.retention.minutes`, a week by default), or the record that was "
            "appended last is in no saved file"
        ),
        advice=(
            "give `--save` with the folder that it was begun with; else compare the saved files "
            "with the remote topic, and append what is missing by hand"
        ),
    ),
    Condition(
        codes=("REPLAY_FENCED",),
        meaning=(
            "`failback run --tail replay`: another run or `failback abort` of the same flow has "
            "begun since, or this run was suspended for too long; brokers accept no more records "
            "of it"
        ),
        advice="where no other runs, give the same command again",
        fault=Fault.NOBODY,
    ),
    Condition(
        codes=("REVERSE_UNKNOWN",),
        meaning=(
            "`failback run`, identity policy: the target holds records between or before the "
            "copied ones, so the flow back has no one place to begin at; or the topic has another "
            "name there (`twinlog.rename`), and the flow back would write to one of that name"
        ),
        advice="leave the topic out with `--topics`; give it another name on the way back",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("NOT_COPIED",),
        meaning=(
            "`offsets translate`, `failover`, `failback`: nothing of that was copied; "
            "`offsets rewrite-checkpoint`: or not so far"
        ),
        advice=(
            "look at the topic's name; with `--reverse` it is the target's; let the mirror catch up"
        ),
    ),
    Condition(
        codes=("OUTSIDE_LOG",),
        meaning="`export`: none of the offsets is in the log; the message has its bounds",
    ),
    Condition(
        codes=("NO_OFFSETS",),
        meaning=(
            "the group has committed nothing there; or it is one of Twinlog's own groups "
            "(`__twinlog-*`), whose offsets are not positions of a consumer; or one of its topics "
            "was re-created while `offsets reset` ran"
        ),
        advice="look at its name; `offsets reset` takes topics with `--topic`",
    ),
    Condition(
        codes=("SKIP_REFUSED",),
        meaning=(
            "`twinlog topic skip` changed nothing: as whoever runs the flow tells it, the "
            "partition is not stopped for this very record; the message says what is true"
        ),
        advice="see `twinlog status`, then name the offset that it names",
    ),
    Condition(
        codes=("REPAIR_REFUSED",),
        meaning=(
            "`twinlog repair` changed nothing: nobody tells which partitions have stopped, or what "
            "stands on the target is not what was shown"
        ),
        advice="see that a mirror runs and nobody else writes there; then look again",
    ),
    Condition(
        codes=("REBUILD_MISMATCH",),
        meaning=(
            "`offsets rebuild`: from the offset named on, the remote partition is not what the "
            "source has in that order"
        ),
        advice="compare both sides from there on; keep what only one of them has",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("REBUILD_FOREIGN",),
        meaning=(
            "`offsets rebuild`: a batch was not written by this flow, or sequences do not follow "
            "one another; or the state topic does not know the flow"
        ),
        advice="find who wrote to the topic; copy elsewhere what only it holds",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("REBUILD_AMBIGUOUS",),
        meaning="`offsets rebuild`: records repeat, so the copy may have ended at two places",
        advice=(
            "decide which one it is; the partition can be copied under another name and compared"
        ),
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_EMPTIED",),
        meaning="`offsets rebuild`: retention deleted all records of the remote partition",
        advice=(
            "copy the topic under another alias from where its readers are (`twinlog.start`), or "
            "leave it out"
        ),
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_MOVED",),
        meaning="`offsets rebuild`: a log changed while it was compared",
        advice="run it again, with no mirror running",
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_UNREADABLE",),
        meaning="`offsets rebuild`: a log cannot be read on though it is longer",
        advice="look at that segment on the partition's leader",
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("REBUILD_UNSUPPORTED",),
        meaning="`offsets rebuild`: a topic that is placed by key among several partitions",
        advice="copy it under another name",
    ),
    Condition(
        codes=("GROUP_ACTIVE",),
        meaning=(
            "`offsets reset`: the group has members, which are named, or it moved since it was "
            "checked; nothing of it was set"
        ),
        advice="stop its consumers first",
        fault=Fault.WRITER,
    ),
)
