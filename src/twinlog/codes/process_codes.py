"""Codes of this process and of commands; but for lanes nothing is tried again."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import Condition, Retry

PROCESS_CODES: Final = (
    Condition(
        codes=("CONFIG_INVALID",),
        meaning="the file is wrong: file, line, key, what to write",
        advice="exit code 2",
    ),
    Condition(
        codes=("REQUEST_INVALID",),
        meaning="a request over HTTP cannot be understood: status 400, and the answer says why",
        advice="correct the request; `/api/v1/openapi.json` says what each path takes",
    ),
    Condition(
        codes=("NOT_FOUND",),
        meaning="HTTP: there is no such path, flow, connector or code (404)",
        advice="`/api/v1/flows` names the flows; `->` in a path is written `-%3E`",
    ),
    Condition(
        codes=("METHOD_NOT_ALLOWED",),
        meaning="HTTP: the path is there, and takes another method (405)",
        advice="use the method that the message or `/api/v1/openapi.json` names",
    ),
    Condition(
        codes=("TOKEN_NEEDED",),
        meaning="HTTP: no token came with the request, or one that is not in the file (401)",
        advice=(
            "send `Authorization: Bearer TOKEN`; `twinlog token new FILE` makes one, into the file "
            "that `twinlog.rest.tokens.file` names"
        ),
    ),
    Condition(
        codes=("ROLE_TOO_SMALL",),
        meaning="HTTP: the client may read, and asked for a change (403)",
        advice="use a token of the role `operate`: `twinlog token new FILE --role operate`",
    ),
    Condition(
        codes=("FOREIGN_ORIGIN",),
        meaning="HTTP: a page of another site asks (403)",
        advice="ask from a program, or from a page that this process serves",
    ),
    Condition(
        codes=("FOREIGN_HOST",),
        meaning="HTTP: the request names another host than the one that is served (421)",
        advice="name 127.0.0.1 or localhost; a proxy in front must not pass its own name on",
    ),
    Condition(
        codes=("REQUEST_TOO_LARGE",),
        meaning="HTTP: the body is longer than 64 KiB (413)",
        advice="name fewer topics in one request, or use a regular expression",
    ),
    Condition(
        codes=("REST_UNGUARDED",),
        meaning="REST is asked for at an address that others reach, and there are no tokens (403)",
        advice=(
            "set `twinlog.rest.tokens.file`, or `twinlog.rest.tls.client.ca.file`; or serve this "
            "machine alone with `--listen 127.0.0.1:PORT`"
        ),
    ),
    Condition(
        codes=("REST_BUSY",),
        meaning="HTTP: too many questions that take long wait already (503)",
        advice="ask again in some seconds",
    ),
    Condition(
        codes=("CONNECTOR_OF_A_FLOW",),
        meaning=(
            "a connector that is a part of a flow is to be paused alone, over the paths of Connect "
            "(409)"
        ),
        advice="name the flow's MirrorSourceConnector: it pauses all of the flow",
    ),
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
    ),
    Condition(
        codes=("PROMOTED",),
        meaning="a cutover is to be taken back behind its point of no return",
        advice=(
            "go on with it; or, if you know that nobody has written to the remote topics since, "
            "`twinlog flow demote FILE` or `twinlog topic demote FILE`"
        ),
    ),
    Condition(
        codes=("GATE_CLOSED",),
        meaning="a switchover may not begin: a gate is closed, and the message says why",
        advice=(
            "do what the gate names, or go on in spite of it with `--accept` and its name; nothing "
            "was changed"
        ),
    ),
    Condition(
        codes=("FENCE_LEAKS",),
        meaning="somebody still writes to topics on the source whose producers are to be stopped",
        advice=(
            "stop the producers that the message names by producer id, and give the same command "
            "again; `twinlog switchover abort` takes the fence away"
        ),
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
            "there, and a switchover does not go on without them"
        ),
        advice=(
            "look at `twinlog status FILE`: a mirror must run; end the transaction that the "
            "message names; give the same command again"
        ),
    ),
    Condition(
        codes=("GROUPS_LEFT",),
        meaning="groups still read on the source, or are not where they should be on the target",
        advice="stop the consumers that the message names, and give the same command again",
    ),
    Condition(
        codes=("HOOK_FAILED",),
        meaning="a command that was given with `--hook` or `--fence-hook` ended with an error",
        advice="mend it, and give the same command again: the steps before it are not repeated",
    ),
    Condition(
        codes=("DRILL_FAILED",),
        meaning="`drill`: its mirror ended, or did not come to a step of the rehearsal in time",
        advice=(
            "read what the mirror said last; `twinlog check FILE` and `twinlog doctor FILE` look "
            "at the flow itself; `twinlog drill clean FILE --dry-run` shows what is left of it"
        ),
    ),
    Condition(
        codes=("NOTHING_TO_DRILL",),
        meaning="`drill`: the flow mirrors no topic yet, or none that `--topics` chooses",
        advice="look at `topics` of the flow; a drill makes topics that are like the flow's",
    ),
    Condition(
        codes=("NOT_PROMOTED",),
        meaning="`failback`: the flow was not promoted, so what its source has is copied as ever",
        advice="a failback is behind a failover; planned, it is a switchover",
    ),
    Condition(
        codes=("TAIL_UNKNOWN",),
        meaning=(
            "`failback`: where the logs of both sides part is not known: the brokers have "
            "forgotten it, the source's topic was made anew, or the offset map was deleted"
        ),
        advice=(
            "leave the topic out with `--topics`; save both sides with `twinlog export`, and "
            "compare them"
        ),
    ),
    Condition(
        codes=("TAIL_OPEN",),
        meaning="`failback`: a transaction is open on the source, so its tail is not decided yet",
        advice=(
            "wait until the transaction timeout of its producer has passed, or end it with "
            "`kafka-transactions.sh`; give the same command again"
        ),
    ),
    Condition(
        codes=("TAIL_MOVED",),
        meaning="`failback`: the source deletes the tail, or lost a part of it, while it is read",
        advice="raise `retention.ms` of the topic, and give the same command again",
    ),
    Condition(
        codes=("TAIL_GROWS",),
        meaning="`failback`: somebody still writes to the source; what was there is saved",
        advice="stop its producers, and give the same command again",
    ),
    Condition(
        codes=("SAVED_OTHERWISE",),
        meaning=(
            "`failback`: the folder of `--save` holds something else, what was saved there was "
            "changed since, or the source was written anew under the same offsets"
        ),
        advice="keep the folder as it is, and save to another one",
    ),
    Condition(
        codes=("SAVE_BUSY",),
        meaning="`failback`: another run saves to the same folder now",
        advice="wait until it has ended, and give the same command again",
    ),
    Condition(
        codes=("REPLAYED",),
        meaning="`failback abort`: the tail was begun to be appended to the target",
        advice="give `failback run --tail replay` again: it finishes what was begun",
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
            "`failback run --tail replay`: another run of the same flow has begun since, or this "
            "one stood still for too long; nothing of it is taken any more"
        ),
        advice="where no other runs, give the same command again",
    ),
    Condition(
        codes=("REVERSE_UNKNOWN",),
        meaning=(
            "`failback run`, identity policy: the target holds records between or before the "
            "copied ones, so the flow back has no one place to begin at; or the topic has another "
            "name there (`twinlog.rename`), and the flow back would write to one of that name"
        ),
        advice="leave the topic out with `--topics`; give it another name on the way back",
    ),
    Condition(
        codes=("NOT_COPIED",),
        meaning="`offsets translate`, `failover`, `failback`: nothing of that was copied",
        advice="look at the topic's name; with `--reverse` it is the target's",
    ),
    Condition(
        codes=("OUTSIDE_LOG",),
        meaning="`export`: none of the offsets is in the log; the message has its bounds",
    ),
    Condition(
        codes=("NO_OFFSETS",),
        meaning=(
            "the group has committed nothing there; or a topic of it was made anew while "
            "`offsets reset` asked"
        ),
        advice="look at its name; `offsets reset` takes topics with `--topic`",
    ),
    Condition(
        codes=("SKIP_REFUSED",),
        meaning=(
            "`twinlog topic skip` changed nothing: as whoever runs the flow tells it, the "
            "partition does not stand still for this very record; the message says what is true"
        ),
        advice="see `twinlog status`, then name the offset that it names",
    ),
    Condition(
        codes=("REPAIR_REFUSED",),
        meaning=(
            "`twinlog repair` changed nothing: nobody tells which partitions stand still, or what "
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
    ),
    Condition(
        codes=("REBUILD_FOREIGN",),
        meaning=(
            "`offsets rebuild`: a batch was not written by this flow, or sequences do not follow "
            "one another; or the state topic does not know the flow"
        ),
        advice="find who wrote to the topic; copy elsewhere what only it holds",
    ),
    Condition(
        codes=("REBUILD_AMBIGUOUS",),
        meaning="`offsets rebuild`: records repeat, so the copy may have ended at two places",
        advice=(
            "decide which one it is; the partition can be copied under another name and compared"
        ),
    ),
    Condition(
        codes=("REBUILD_EMPTIED",),
        meaning="`offsets rebuild`: retention deleted all records of the remote partition",
        advice=(
            "copy the topic under another alias from where its readers are (`twinlog.start`), or "
            "leave it out"
        ),
    ),
    Condition(
        codes=("REBUILD_MOVED",),
        meaning="`offsets rebuild`: a log changed while it was compared",
        advice="run it again, with no mirror running",
    ),
    Condition(
        codes=("REBUILD_UNREADABLE",),
        meaning="`offsets rebuild`: a log cannot be read on though it is longer",
        advice="look at that segment on the partition's leader",
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
            "looked at; nothing of it was set"
        ),
        advice="stop its consumers first",
    ),
    Condition(
        codes=("USAGE",),
        meaning="the command line is wrong",
        advice="exit code 2",
    ),
    Condition(
        codes=("INTERRUPTED",),
        meaning="Ctrl-C ended a command before it had its answer, or nothing answered its question",
        advice="exit code 130; call it again",
    ),
    Condition(
        codes=("ENVIRONMENT",),
        meaning="Java, Python or a package is missing",
        advice="install what the message names",
    ),
    Condition(
        codes=("SPARK_DIED",),
        meaning=(
            "Spark's JVM ended by itself: out of memory, or somebody killed it; the process ends "
            "with exit code 1"
        ),
        advice=(
            "have a service manager start it again; look at the lines before, and at the kernel's "
            "log for `oom-kill`"
        ),
    ),
    Condition(
        codes=("SPARK_UNAUTHENTICATED",),
        meaning=(
            "the Spark master of `--master` has no secret: its ports would give away both "
            "clusters' credentials"
        ),
        advice=(
            "set the lines that the message names, or `--allow-unauthenticated-spark`; exit code 2"
        ),
    ),
    Condition(
        codes=("FOLDER_NOT_PRIVATE",),
        meaning=(
            "the folder of status files, or a link in its place, belongs to another user or is "
            "open to others; nothing is written or read there"
        ),
        advice=(
            "set `XDG_RUNTIME_DIR` to a folder of this user; or look who made it, then `chmod "
            "700` what is yours"
        ),
    ),
    Condition(
        codes=("CANNOT_LISTEN",),
        meaning=(
            "the address of `/metrics` and REST is taken, or not of this machine; the copy "
            "continues, and the address is tried again every second"
        ),
        advice=(
            "nothing where it is that of the process that is stood by for; else name another with "
            "`--listen`, or `off`"
        ),
    ),
    Condition(
        codes=("TIMED_OUT",),
        meaning="the Python API did not get an answer in the time given",
        advice="give it more",
    ),
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
    ),
    Condition(
        codes=("TRUNCATED",),
        meaning=(
            '`format("twinlog")`: the log ends before offsets that were read or planned; the '
            "message has their range"
        ),
        advice=(
            "find out whether the topic was made anew or lost its end in an unclean election; what "
            "was read before may be the only copy"
        ),
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
    ),
    Condition(
        codes=("MARK_DIFFERS",),
        meaning=(
            '`format("twinlog")`: the checkpoint of a stream and the mark in its transactions '
            "disagree on what was committed last; nothing was committed now"
        ),
        advice=(
            "compare the topic with the query's input; then begin with a new checkpoint and "
            "`kafka.transactional.id`, or write on once with `missingMark=write`"
        ),
    ),
    Condition(
        codes=("MM2_RECORD",),
        meaning="a record of MirrorMaker 2's internal topics cannot be read or written",
        advice="find who else writes to that topic",
    ),
    Condition(
        codes=("LEASE",),
        meaning="a Spark job failed",
        advice="look at Spark's message; it is started again",
        retry=Retry.SOON,
    ),
    Condition(
        codes=(
            "CHANNEL_LOST",
            "CHANNEL_SILENT",
            "CHANNEL_UNREACHABLE",
            "CHANNEL_TOKEN",
            "CHANNEL_FINGERPRINT",
            "CHANNEL_FRAME",
            "CHANNEL_OVERFLOW",
            "LANE_WITHOUT_WORK",
        ),
        meaning="a lane and the driver cannot talk",
        advice=(
            "on a cluster, open the driver's port for the executors; set `SPARK_LOCAL_IP` to the "
            "address they reach"
        ),
        retry=Retry.SOON,
    ),
    Condition(
        codes=("THREAD_DIED",),
        meaning=(
            "a part of this process ended with an error; without it the process must not stay up, "
            "and it ends with exit code 1"
        ),
        advice="systemd and Kubernetes start it again; report it with the traceback",
    ),
    Condition(
        codes=("INTERNAL",),
        meaning="a bug",
        advice="report it with the traceback",
    ),
)
