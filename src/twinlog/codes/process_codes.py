"""Codes of this process; but for lanes nothing is tried again."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import Condition, Fault, Retry

PROCESS_CODES: Final = (
    Condition(
        codes=("CONFIG_INVALID",),
        meaning="the file is wrong: file, line, key, what to write",
        advice="correct what the message names, and try it with `twinlog check`; exit code 2",
    ),
    Condition(
        codes=("USAGE",),
        meaning="the command line, or a value of a request, is wrong",
        advice="correct what the message names; exit code 2 of a command",
    ),
    Condition(
        codes=("INTERRUPTED",),
        meaning="Ctrl-C ended a command before it had its answer, or nothing answered its question",
        advice="exit code 130; call it again",
        fault=Fault.HOST,
    ),
    Condition(
        codes=("ENVIRONMENT",),
        meaning="Java, Python or a package is missing",
        advice="install what the message names",
        fault=Fault.HOST,
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
        fault=Fault.HOST,
    ),
    Condition(
        codes=("PROCESS_GONE",),
        meaning=(
            "the process that led the flow never said that it ended, and is gone or says nothing: "
            "it was killed, its host is down, or the target does not hear it. Nobody runs the "
            "flow, as far as `status FILE` can see"
        ),
        advice=(
            "start the mirror again: it resumes where its copy ends. Look why it died: at the end "
            "of its log, and at the kernel's for `oom-kill`"
        ),
        fault=Fault.HOST,
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
        fault=Fault.HOST,
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
        fault=Fault.HOST,
    ),
    Condition(
        codes=("HTTP_DIED",),
        meaning=(
            "the thread that serves metrics and REST ended with an error; the copy continues, and "
            "the same address is served again a second later, and after longer pauses where that "
            "happens again and again"
        ),
        advice="report it with the traceback",
        fault=Fault.TWINLOG,
    ),
    Condition(
        codes=("LISTEN_UNGUARDED",),
        meaning=(
            "others reach the address of HTTP, and no key says who may come in: with `--listen` "
            "the mirror does not start; of `listeners` its port is served to this machine alone"
        ),
        advice=(
            "set `twinlog.rest.tokens.file` or `twinlog.rest.tls.client.ca.file`, or "
            "`twinlog.rest.monitoring.open = true`, which serves metrics and probes alone to "
            "whoever asks; or name 127.0.0.1"
        ),
        fault=Fault.SETUP,
    ),
    Condition(
        codes=("TIMED_OUT",),
        meaning="the Python API did not get an answer in the time given",
        advice="give it more",
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("MM2_RECORD",),
        meaning="a record of MirrorMaker 2's internal topics cannot be read or written",
        advice="find who else writes to that topic",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("LEASE",),
        meaning="a Spark job failed",
        advice="look at Spark's message; it is started again",
        retry=Retry.SOON,
        fault=Fault.HOST,
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
        fault=Fault.HOST,
    ),
    Condition(
        codes=("THREAD_DIED",),
        meaning=(
            "a part of this process ended with an error; without it the process must not stay up, "
            "and it ends with exit code 1"
        ),
        advice="systemd and Kubernetes start it again; report it with the traceback",
        fault=Fault.TWINLOG,
    ),
    Condition(
        codes=("INTERNAL",),
        meaning="a bug",
        advice="report it with the traceback",
        fault=Fault.TWINLOG,
    ),
)
