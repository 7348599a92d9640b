"""`twinlog mirror FILE`: run every enabled flow of a configuration until it is done or stopped.
`twinlog mirror-maker`: do the same with the command line of MirrorMaker 1.
"""

from __future__ import annotations

import gc
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click
from pythonjsonlogger.json import JsonFormatter

from twinlog.cli.options.command import Command
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.mirror_maker_1_options import configuration_of_pair, pair_options
from twinlog.cli.options.option import Section, file_argument, option, options
from twinlog.cli.options.run_options import (
    SpreadClusters,
    adoption_options,
    configuration,
    configuration_options,
    override_options,
    spark_options,
    storages,
    take_spark_options,
)
from twinlog.cli.terminal.output import (
    LOG_FORMAT,
    TIME_FORMAT,
    Answer,
    Loudness,
    error_object,
    is_for_programs,
    is_quiet,
    loudness,
    nowhere,
    write_line,
)
from twinlog.cli.terminal.signals import on_signals
from twinlog.codes import FlowState, PartitionState
from twinlog.errors import TwinlogError, UsageError
from twinlog.extras import require_extra
from twinlog.flow_log import code_among
from twinlog.folders import private_opener
from twinlog.quantities import count, duration, plural, size
from twinlog.shown import ShownFormatter, shown_in_json, without_secrets

if TYPE_CHECKING:
    from twinlog.config.flow.schema import FlowConfig, MirrorConfig
    from twinlog.control.process.run import MirrorResult
    from twinlog.control.watch.snapshot import FlowSnapshot
    from twinlog.control.web.server import WebServer
    from twinlog.spark.options import SparkOptions


# Destinations and formats of a mirror's log: stderr, a rotated file, text or JSON.
#
# stderr gets warnings, errors and good news, such as the end of a problem. The file also gets the
# events of normal operation. A JSON line has `time` (UTC), `level`, `logger` and `message`. If
# known, it also has `flow`, `topic`, `partition`, `code` and `traceback`.

FILE_BYTES: Final = 10_000_000
OLD_FILES: Final = 5


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


class _PrivateFile(RotatingFileHandler):
    """A rotated log file that only this user can read, because it names topics, groups and hosts.
    If the file already exists with other permissions, they are kept, also for the next files.
    """

    _rights = 0o600

    def _open(self) -> TextIOWrapper:
        with suppress(FileNotFoundError):
            self._rights = stat.S_IMODE(Path(self.baseFilename).stat().st_mode)
        file = open(  # noqa: SIM115 (the handler closes it)
            self.baseFilename, "a", encoding=self.encoding, opener=private_opener
        )
        # set the permissions of a new file; an existing file may belong to another user
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != self._rights:
            with suppress(PermissionError):
                os.fchmod(file.fileno(), self._rights)
        return file


def _is_problem(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _is_for_people(record: logging.LogRecord) -> bool:
    """Return True for problems and for good news."""
    return _is_problem(record) or bool(getattr(record, "news", False))


def configure_logs(file: Path | None, log_format: LogFormat, *, verbose: bool) -> None:
    """Log to stderr in this format, and to `file` if it is not None. Raises UsageError if the file
    cannot be written.

    The file is rotated at 10 MB, and five old files are kept. Only this user can read the files,
    unless `file` already exists with other permissions.
    """
    formatter: logging.Formatter = ShownFormatter(LOG_FORMAT, TIME_FORMAT)
    if log_format is LogFormat.JSON:
        formatter = JsonLines()
    root = logging.getLogger()
    # checked here, because only this thread has the command's context, and all threads log
    shown = _is_problem if is_quiet() else _is_for_people
    for handler in root.handlers:
        handler.filters = [] if verbose else [shown]
        handler.setFormatter(formatter)
    # create events for the file and the support bundle, even if stderr does not show them
    logger = logging.getLogger("twinlog")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    if file is None:
        return
    try:
        to_file = _PrivateFile(file, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log-file: {file} cannot be written: {error.strerror}") from error
    to_file.setFormatter(formatter)
    root.addHandler(to_file)


FIELDS: Final = ("flow", "topic", "partition", "code")


class JsonLines(JsonFormatter):
    """Formats each log record as one line of JSON. Of its `extra` fields, only FIELDS are used."""

    def __init__(self) -> None:
        super().__init__(json_ensure_ascii=False)

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(
            timespec="milliseconds"
        )
        log_data["level"], log_data["logger"] = record.levelname, record.name
        log_data["message"] = without_secrets(record.getMessage())
        log_data |= {name: record.__dict__[name] for name in FIELDS if name in record.__dict__}
        values = record.args if isinstance(record.args, tuple) else ()
        if "code" not in log_data and (code := code_among(values)):
            log_data["code"] = code
        if "exc_info" in message_dict:
            log_data["traceback"] = without_secrets(message_dict["exc_info"])

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        return shown_in_json(super().jsonify_log_record(log_data))


log = logging.getLogger(__name__)

DEFAULT_LISTEN: Final = "127.0.0.1:9405"
"""Default address of HTTP. The port is next to 9404, which the JMX exporter of a MirrorMaker 2 on
the same machine usually has.
"""

ENDED: Final = frozenset({PartitionState.DONE, PartitionState.TAKEN_OVER, PartitionState.PROMOTED})
"""Final states of a partition with `--once`. In the last two, other clients write to the remote
topic.
"""


run_options = options(
    option(
        "--once",
        section=Section.RUN,
        is_flag=True,
        help="Copy up to the current end offsets, then exit.",
    ),
    option(
        "--lanes",
        section=Section.RUN,
        type=click.IntRange(min=1),
        help="Lanes per flow, instead of tasks.max.",
    ),
    spark_options,
    option(
        "--listen",
        section=Section.OUTPUT,
        metavar="ADDRESS:PORT",
        help="Address of HTTP (metrics, probes, REST), or `off`; default: the "
        f"file's `listeners`, else {DEFAULT_LISTEN}.",
    ),
    option(
        "--log-file",
        section=Section.OUTPUT,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Log to this file as well; it is rotated at 10 MB, and five old files are kept.",
    ),
    option(
        "--log-format",
        section=Section.OUTPUT,
        type=click.Choice([format_.value for format_ in LogFormat]),
        callback=lambda _context, _parameter, value: LogFormat(value),
        default=LogFormat.TEXT.value,
        show_default=True,
        help="Format of log lines, on stderr and in the file.",
    ),
    format_option,
)
"""Add the options of a mirror's run, whose values are passed to `run_configuration`."""


COLLECTED_AFTER: Final = (50_000, 20, 20)
"""Thresholds of Python's garbage collector. The offsets of many groups are many objects without
reference cycles. With the default threshold (700 objects), scanning these objects took a quarter of
the CPU of a round in which 100,000 offsets had changed.
"""


@click.command("mirror", cls=SpreadClusters)
@file_argument("files", metavar="FILE...", nargs=-1, required=True)
@configuration_options
@adoption_options
@run_options
def mirror(files: tuple[Path, ...], clusters: str | None, **options: Any) -> Answer:
    """Mirror the topics of every enabled flow in FILE.

    FILE is an mm2.properties file, or a KafkaMirrorMaker2 resource of Strimzi.

    Several files are run by one process. Each file is read separately.

    Without --once the command runs until it is stopped. Ctrl-C or SIGTERM shut it down cleanly,
    and a second signal ends it immediately. SIGHUP reloads FILE: if it has errors, nothing changes;
    else only the flows whose configuration has changed restart.

    \b
    twinlog mirror mm2.properties
    twinlog mirror mm2.properties --once --set 'A->B.topics=orders.*'
    twinlog mirror mm2.properties --clusters B --listen 0.0.0.0:8080 --log-format json
    """
    spark = take_spark_options(options)
    read = configuration(files, clusters)
    return run_configuration(read, files[0], spark=spark, **options)


@click.command("mirror-maker", cls=Command, context_settings={"allow_extra_args": True})
@pair_options
@override_options
@run_options
def mirror_maker(**arguments: Any) -> Answer:
    """Run with the arguments of `kafka-mirror-maker.sh`, copying topics under the same names.

    A partition that was never copied starts at the offset of the group in --consumer.config, else
    according to its auto.offset.reset (`latest` by default). The mirror commits the group's offset
    on the source: the offset of the next record that is not on the target yet.

    \b
    twinlog mirror-maker --consumer.config c.properties --producer.config p.properties \\
        --whitelist 'orders|pay.*'
    """
    consumer, read = configuration_of_pair(arguments)
    spark = take_spark_options(arguments)
    return run_configuration(read, consumer, spark=spark, **arguments)


def run_configuration(  # noqa: PLR0913 (the options)
    read: Callable[[], MirrorConfig],
    file: Path,
    *,
    once: bool,
    lanes: int | None,
    spark: SparkOptions,
    listen: str | None,
    log_file: Path | None,
    log_format: LogFormat,
    adopt_mm2: bool = False,
    connector: str | None = None,
) -> Answer:
    """Run the configuration that `read` returns until it is done or stopped, and return the answer
    of the command. `read` is called again to reload `file`.
    """
    from twinlog.cli.terminal.monitoring import watched
    from twinlog.cli.terminal.progress import shown
    from twinlog.config.advice.transforms import refuse_transforms
    from twinlog.control.process.commands import CommandPort, Reload, Stop
    from twinlog.control.process.run import MirrorOptions, run_mirror
    from twinlog.control.web.address import parse_listen
    from twinlog.control.web.current_config import CurrentConfig
    from twinlog.threads import ThreadWatch

    is_quiet, verbose = loudness() is Loudness.QUIET, loudness() is Loudness.VERBOSE
    configure_logs(log_file, log_format, verbose=verbose)
    if listen is not None:
        parse_listen(listen)  # report wrong usage before reading the files
    # check extras and transforms before HTTP starts, although run_mirror checks them, too
    require_extra("pyspark", "spark", "twinlog mirror")
    config = refuse_transforms(read())
    for_programs = is_for_programs()
    address = parse_listen(listen or str(config.http_listener or DEFAULT_LISTEN))
    if address is not None:
        require_extra("uvicorn", "spark", "HTTP (--listen off turns it off)")
    for warning in config.warnings:
        log.warning("%s", warning, extra={"code": warning.code})
    people = _human_stream(is_quiet, for_programs)
    commands = CommandPort()
    thread_watch = ThreadWatch()
    current = CurrentConfig(config)

    def on_served(server: WebServer) -> None:
        # choose the stream again, because HTTP may start only at a takeover, when the screen
        # has replaced stdout
        write_line(server.line, _human_stream(is_quiet, for_programs))

    with (
        on_signals(
            lambda signal: commands.put(Stop(who=signal)),
            None if once else lambda signal: commands.put(Reload(who=signal)),
        ),
        watched(file, address, commands.stopping, on_served, thread_watch, current) as watch,
        shown(once=once, stream=people, json_logs=log_format is LogFormat.JSON) as progress,
    ):

        def on_snapshot(flows: list[FlowSnapshot]) -> None:
            watch.update(flows)
            progress.update(flows)

        gc.set_threshold(*COLLECTED_AFTER)
        result = run_mirror(
            config,
            file,
            MirrorOptions(
                once=once,
                lanes=lanes,
                spark=spark,
                adopts=storages(config, adopt_mm2=adopt_mm2, connector=connector),
                commands=commands,
                read_again=None if once else read,
                on_snapshot=on_snapshot,
                on_turn=watch.turned,
                on_jvm=watch.jvm,
                events=watch.events,
                on_config=current.replace,
                thread_watch=thread_watch,
            ),
        )
        progress.update(list(result.flows))  # show failures of the last second, too
    report = MirrorReport(result, once=once)
    # with -q, show problems on stderr, because -q suppresses only progress
    wrong = sys.stderr if is_quiet else people
    for line in report.lines(only_failed=is_quiet):
        write_line(line, wrong)
    for line in report.flow_failures():
        write_line(line, sys.stderr)
    if once:
        ran = {flow.flow for flow in result.flows if not has_flow_error(flow)}
        _print_open_transactions([flow for flow in config.flows if str(flow.flow) in ran], wrong)
    fields = {"flows": report.flows}
    return Answer(fields, exit_code=report.exit_code, errors=report.errors())


def _human_stream(is_quiet: bool, for_programs: bool) -> TextIO:
    """Return the stream for progress and results that people read."""
    if is_quiet:
        return nowhere()
    # for programs, stdout is reserved for the final object
    return sys.stderr if for_programs else sys.stdout


def _print_open_transactions(flows: Iterable[FlowConfig], people: TextIO) -> None:
    from twinlog.cluster.client import ClusterClient
    from twinlog.control.flow.wiring import flow_setup
    from twinlog.survey.open_transactions import held_back

    for flow in flows:
        try:
            with ClusterClient(flow_setup(flow).source, api_timeout_s=10.0) as source:
                for held in held_back(flow, source):
                    write_line(f"{flow.flow}: {held}", people)
        except TwinlogError as error:
            # this does not fail the command, because only the hint about open transactions is
            # missing
            write_line(f"{flow.flow}: could not check for open transactions: {error}", people)


class MirrorReport:
    """The result of a mirror's run, as lines for people and as fields for programs."""

    def __init__(self, result: MirrorResult, *, once: bool) -> None:
        self._result = result
        self._once = once
        self.flows = [self._flow(flow) for flow in result.flows]

    @property
    def exit_code(self) -> int:
        """0 if everything was copied, 2 if no flow could run with its configuration, else 1."""
        errors = self._result.errors
        if errors and len(errors) == len(self._result.flows):
            return 2 if all(error.exit_code == 2 for error in errors) else 1
        return 1 if errors or any(flow["failed"] for flow in self.flows) else 0

    def _flow(self, flow: FlowSnapshot) -> dict[str, Any]:
        failed = [
            {
                "topic": part.topic,
                "partition": part.partition,
                "code": part.code or "NOT_FINISHED",
                "message": part.message if part.code else "stopped before the end was reached",
            }
            for part in flow.partitions
            if part.code or (self._once and part.state not in ENDED)
        ]
        if has_flow_error(flow):
            # add the flow's own error, because none of its partitions has one
            message = flow.reason if flow.error is None else flow.error.without_flow().message
            failed.append({"topic": None, "partition": None, "code": flow.code, "message": message})
        return {
            "flow": flow.flow,
            "partitions": len(flow.partitions),
            "records": flow.records,
            "bytes": flow.bytes,
            "seconds": round(self._result.seconds, 3),
            "failed": failed,
        }

    def lines(self, *, only_failed: bool = False) -> Iterator[str]:
        """Yield a summary for every flow that ran. Failures were already reported, and are not
        repeated.
        """
        for flow, snapshot in zip(self.flows, self._result.flows, strict=True):
            if not has_flow_error(snapshot) and (flow["failed"] or not only_failed):
                yield _flow_line(flow, snapshot)

    def errors(self) -> Iterator[dict[str, Any]]:
        """Yield an entry of the JSON field `errors` for each failure."""
        for flow in self.flows:
            for failure in flow["failed"]:
                topic = failure["topic"]
                where = "" if topic is None else f" {topic}-{failure['partition']}"
                yield error_object(failure["code"], f"{flow['flow']}{where}: {failure['message']}")

    def flow_failures(self) -> Iterator[str]:
        """Yield a line with the reason for every flow that could not run, or could not continue."""
        for flow in self._result.flows:
            if has_flow_error(flow):
                yield f"{flow.flow}: {flow.reason}"


def has_flow_error(flow: FlowSnapshot) -> bool:
    """Return True if the flow has failed as a whole, or if an outage kept it from being set up."""
    return flow.state is FlowState.FAILED or (
        flow.state is FlowState.DEGRADED and flow.generation is None
    )


def _flow_line(flow: dict[str, Any], snapshot: FlowSnapshot) -> str:
    # another process led the flow, or the flow's set-up did not end
    if snapshot.generation is None:
        if snapshot.error is not None and snapshot.error.code == snapshot.state:
            return f"{flow['flow']}: {snapshot.reason}"
        reason = f": {snapshot.reason}" if snapshot.reason else ""
        if snapshot.state is FlowState.STARTING:
            return f"{flow['flow']}: stopped before it started copying{reason}"
        return f"{flow['flow']}: {snapshot.state}{reason}"
    seconds = flow["seconds"]
    line = (
        f"{flow['flow']}: {count(flow['records'])} records, {size(flow['bytes'])} "
        f"of {plural(flow['partitions'], 'partition')} in {duration(seconds)}"
    )
    if flow["records"] and seconds:
        line += (
            f" ({count(flow['records'] / seconds)} records/s, {size(flow['bytes'] / seconds)}/s)"
        )
    if not flow["partitions"] and not flow["failed"]:
        line += "; no topic of the source matches `topics`"
    return line + (f"; {len(flow['failed'])} FAILED" if flow["failed"] else "")
