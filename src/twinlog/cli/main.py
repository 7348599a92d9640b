"""`twinlog`: finds the command, runs it, and turns every error into one line and an exit code.

Exit codes: 0 success, 1 failure, 2 wrong usage or configuration, 130 or 143 if a second signal
ended the command. A command's module is imported when the command is called, so that `--help` does
not load Spark or Kafka.
"""

from __future__ import annotations

import errno
import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from twinlog import __version__
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.format_option import requested_format, words_of
from twinlog.cli.terminal.output import (
    ANSWER,
    Envelope,
    Format,
    Loudness,
    configure_logging,
    error_object,
    errors_of,
    loudness,
    write_line,
)
from twinlog.errors import ConfigError, EnvironmentMissing, TwinlogError, UsageError
from twinlog.shown import set_in

SECTIONS: Final = {
    "Mirror": {
        "check": ("check:check", "Print what would be mirrored and what is wrong"),
        "mirror": ("mirror:mirror", "Mirror the topics of every enabled flow in FILE"),
        "status": ("status:status", "Print the state and lag of flows"),
        "convert": ("convert:convert", "Print a configuration as mm2.properties"),
        "mirror-maker": ("mirror:mirror_maker", "Run with MirrorMaker 1's arguments"),
        "pack": ("pack:pack", "Create the archive for executors of a Spark cluster"),
    },
    "Control": {
        "flow": ("steer:flow", "Pause, resume, limit or promote flows"),
        "topic": ("steer:topic", "Pause, resume, release, promote or skip"),
        "repair": ("repair:repair", "Accept or skip records that stop a partition"),
    },
    "Move clients": {
        "switchover": ("cutover:switchover", "Move clients to the target, planned"),
        "failover": ("cutover:failover", "Move clients to the target after the source is lost"),
        "failback": ("cutover:failback", "Move clients back to the source"),
        "drill": ("drill:drill", "Rehearse a switchover and a failover on scratch topics"),
        "offsets": ("offsets:offsets", "Translate offsets, set groups' offsets, rebuild a map"),
        "groups": ("groups:groups", "Print which groups may move to the target"),
    },
    "Find out": {
        "doctor": ("doctor:doctor", "Print why a flow is slow or has stopped"),
        "diff": ("diff:diff", "Compare both clusters, except for records"),
        "verify": ("verify:verify", "Compare every record of both clusters"),
        "explain": ("explain:explain", "Print what a code means and what to do"),
        "transform": ("transform:transform", "Try transforms on records, without writing"),
        "topology": ("topology:topology", "Print flows and clusters upstream of a cluster"),
        "export": ("export:export", "Write records of one cluster as lines of JSON"),
        "support-bundle": ("support_bundle:support_bundle", "Write an archive for support"),
    },
    "This machine": {
        "token": ("token:token", "Create API tokens for REST"),
        "completion": (
            "completion:completion",
            "Print the completion script for bash, zsh or fish",
        ),
        "demo": ("demo:demo", "Run two clusters, a stream, a mirror and a comparison"),
        "sandbox": ("sandbox:sandbox", "Run real Kafka clusters on this machine"),
    },
}
"""Commands by section: the command's module below `commands`, its function, and its help line."""
COMMANDS: Final = {
    name: f"twinlog.cli.commands.{where}"
    for section in SECTIONS.values()
    for name, (where, _) in section.items()
}
ASKED_BY_SHELLS: Final = "_TWINLOG_COMPLETE"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Commands(CommandGroup):
    """The group of all commands. A command's module is imported when it is first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help line of each command by section, without importing the commands."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in section.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TWINLOG"},
)
@click.version_option(
    __version__,
    prog_name="twinlog",
    message="%(prog)s %(version)s",
    allow_from_autoenv=False,  # ignore TWINLOG_VERSION, which is probably set for another purpose
)
def twinlog() -> None:
    """Mirror Kafka topics between clusters on Spark: exactly once, configured like MirrorMaker 2.

    \b
    twinlog check mm2.properties
    twinlog mirror mm2.properties
    twinlog status mm2.properties

    `twinlog COMMAND --help` prints a command's options. docs/glossary.md defines flow, lane, lease,
    generation, leader and standby. docs/command-line.md describes output, exit codes and options
    from the environment.
    """
    configure_logging(verbose=loudness() is Loudness.VERBOSE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `twinlog` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # as stderr does: a character that the locale's encoding lacks must not end a mirror
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Print the object for programs even if it fails."""
    if arguments and arguments[0] == "help":  # `help offsets reset` is `offsets reset --help`
        arguments = [*arguments[1:], "--help"]
    answer = Envelope(Format.TEXT, "")
    held = ANSWER.set(answer)
    try:
        code = _run(arguments, answer)
        try:
            if answer.answer or answer.errors or code:  # --help prints no object
                answer.write(code)
            if sys.stdout:  # None if it was closed before the start
                sys.stdout.flush()  # now, because an error at exit could not be reported
        except Exception as error:  # noqa: BLE001 (a full disk, a pipe that is closed, or a bug)
            return _exit_code(error, answer)
        return code
    finally:
        ANSWER.reset(held)


def _run(arguments: Sequence[str], answer: Envelope) -> int:
    try:
        question = os.environ.get(ASKED_BY_SHELLS)
        if question:
            from twinlog.cli.commands.completion import answer_shell

            return answer_shell(twinlog, question)
        words = words_of(twinlog, arguments)
        answer.command = " ".join(words)
        answer.output = requested_format(words, arguments, os.environ)
        value: Any = twinlog.main(list(arguments), prog_name="twinlog", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 (the command line's one boundary)
        return _exit_code(error, answer)
    return value if isinstance(value, int) else 0


def _exit_code(error: BaseException, answer: Envelope) -> int:
    """Report an error and return its exit code. The report is one line, or one per error in a
    configuration. A traceback follows if the error is a bug of Twinlog or the log level is DEBUG.
    """
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        error = _disk_full_error(error)
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            error.show(sys.stderr)
            answer.errors.append(error_object(UsageError.code, error.format_message()))
            return EXIT_USAGE
        case click.Abort() | KeyboardInterrupt():
            answer.errors.append(error_object("INTERRUPTED", "ended by Ctrl-C"))
            return EXIT_INTERRUPTED
        case BrokenPipeError():
            # the reader has closed the pipe (`| head`), so discard all further output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_FAILED
        case TwinlogError():
            for problem in error.each if isinstance(error, ConfigError) else (error,):
                write_line(f"twinlog: {problem}", sys.stderr)
            answer.errors.extend(errors_of(error))
            if logging.getLogger("twinlog").isEnabledFor(logging.DEBUG):
                _write_traceback(error)
            return error.exit_code
        case Exception():
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            write_line(f"twinlog: internal error: {what} [INTERNAL]", sys.stderr)
            answer.errors.append(error_object(TwinlogError.code, what))
            _write_traceback(error)
            return EXIT_FAILED
        case _:
            raise error


def _disk_full_error(error: OSError) -> EnvironmentMissing:
    """Return the error for a full disk. If stdout is on that disk, discard the text in its buffer,
    because Python would fail again to write it at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    what = f"{error.filename or 'output'} cannot be written: {error.strerror}"
    return EnvironmentMissing(f"{what}; make room on its disk")


def _write_traceback(error: BaseException) -> None:
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    click.echo(set_in(text), file=sys.stderr)  # an exception's message may come from a broker
