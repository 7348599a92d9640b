"""Codes of this process. Only codes of lanes are retried."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import Condition, Fault, Retry

PROCESS_CODES: Final = (
    Condition(
        codes=("CONFIG_INVALID",),
        meaning=(
            "the configuration file is invalid; the message has file, line, key and a valid value"
        ),
        advice="correct what the message names, and check it with `twinlog check`; exit code 2",
    ),
    Condition(
        codes=("USAGE",),
        meaning="the command line, or a value of a request, is invalid",
        advice="correct what the message names; a command ends with exit code 2",
    ),
    Condition(
        codes=("INTERRUPTED",),
        meaning="Ctrl-C ended a command before its result, or a confirmation prompt got no answer",
        advice="exit code 130; run it again",
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
            "Spark's JVM ended: it ran out of memory or was killed. The process ends with exit "
            "code 1"
        ),
        advice=(
            "let a service manager restart it; read the log lines before, and search the kernel's "
            "log for `oom-kill`"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("PROCESS_GONE",),
        meaning=(
            "the process that led the flow did not report that it ended, and it is gone or silent: "
            "it was killed, its host is down, or it cannot reach the target. As far as `status "
            "FILE` can see, no process runs the flow"
        ),
        advice=(
            "start the mirror again: it resumes where its copy ends. For the cause, read the end "
            "of its log, and search the kernel's log for `oom-kill`"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("WAITING_FOR_SPARK",),
        meaning=(
            "the Spark cluster of `--master` cannot be reached, or has no free cores or memory for "
            "an executor of this application, or its executors cannot reach this process"
        ),
        advice=(
            "read Spark's words in the message. Start workers, end other applications, or set "
            "`SPARK_LOCAL_IP` to an address that executors can reach; the mirror continues by "
            "itself"
        ),
        retry=Retry.SOON,
        fault=Fault.HOST,
    ),
    Condition(
        codes=("SPARK_UNAUTHENTICATED",),
        meaning=(
            "the Spark master given with `--master` has no secret, so anyone who reaches its ports "
            "could read the credentials of both clusters"
        ),
        advice=(
            "set the lines that the message names, or `--allow-unauthenticated-spark`; exit code 2"
        ),
    ),
    Condition(
        codes=("FOLDER_NOT_PRIVATE",),
        meaning=(
            "the folder of status files, or a link in its place, belongs to another user or is "
            "accessible to others; nothing is written or read there"
        ),
        advice=(
            "set `XDG_RUNTIME_DIR` to a folder of this user; or find out who created the folder, "
            "then `chmod 700` it if it is yours"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("CANNOT_LISTEN",),
        meaning=(
            "the address of `/metrics` and REST is in use, or not an address of this machine. The "
            "copy continues, and the address is retried every second"
        ),
        advice=(
            "nothing if the leader on this machine uses the address and this process is its "
            "standby; otherwise set another one with `--listen`, or `off`"
        ),
        fault=Fault.HOST,
    ),
    Condition(
        codes=("HTTP_DIED",),
        meaning=(
            "the thread that serves metrics and REST ended with an error. The copy continues, and "
            "the address is served again after a second, or after longer pauses if this repeats"
        ),
        advice="report it with the traceback",
        fault=Fault.TWINLOG,
    ),
    Condition(
        codes=("LISTEN_UNGUARDED",),
        meaning=(
            "other hosts can reach the HTTP address, and no key restricts access. With `--listen` "
            "the mirror does not start; a port in `listeners` is served to this machine only"
        ),
        advice=(
            "set `twinlog.rest.tokens.file` or `twinlog.rest.tls.client.ca.file`; or "
            "`twinlog.rest.monitoring.open = true`, which serves only metrics and probes, without "
            "authentication; or use 127.0.0.1"
        ),
        fault=Fault.SETUP,
    ),
    Condition(
        codes=("TIMED_OUT",),
        meaning="a call of the Python API did not complete within its timeout",
        advice="raise the timeout",
        fault=Fault.CLUSTER,
    ),
    Condition(
        codes=("MM2_RECORD",),
        meaning="a record of MirrorMaker 2's internal topics cannot be read or written",
        advice="find the other writer to that topic",
        fault=Fault.WRITER,
    ),
    Condition(
        codes=("LEASE",),
        meaning="a Spark job failed",
        advice="read Spark's message; the job is started again",
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
        meaning="a lane and the driver cannot communicate",
        advice=(
            "on a cluster, open the driver's port for the executors; set `SPARK_LOCAL_IP` to an "
            "address that they can reach"
        ),
        retry=Retry.SOON,
        fault=Fault.HOST,
    ),
    Condition(
        codes=("THREAD_DIED",),
        meaning=(
            "a thread of this process ended with an error. The process cannot run without it, and "
            "ends with exit code 1"
        ),
        advice="systemd or Kubernetes restarts it; report it with the traceback",
        fault=Fault.TWINLOG,
    ),
    Condition(
        codes=("INTERNAL",),
        meaning="a bug",
        advice="report it with the traceback",
        fault=Fault.TWINLOG,
    ),
)
