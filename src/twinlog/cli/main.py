"""`twinlog`: finds the command, runs it, and turns every error into one line and an exit code.

Exit codes: 0 done, 1 something failed, 2 wrong usage or configuration, 130 and 143 ended by a
second signal. A command's module is imported when it is asked for, so that `--help` does not wait
for Spark or Kafka.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from twinlog import __version__
from twinlog.cli.options.asked_format import asked_format, words_of
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.terminal.loudness import Loudness, loudness
from twinlog.cli.terminal.output import (
    ANSWER,
    Envelope,
    Format,
    configure_logging,
    error_object,
    errors_of,
    write_line,
)
from twinlog.errors import ConfigError, TwinlogError, UsageError
from twinlog.shown import set_in

SECTIONS: Final = {
    "Mirror": {
        "check": ("check:check", "What would be mirrored, and what is in its way"),
        "mirror": ("mirror:mirror", "Mirror the topics of every enabled flow in FILE"),
        "status": ("status:status", "What flows do, and how far behind they are"),
        "convert": ("convert:convert", "Print a configuration as mm2.properties"),
        "mirror-maker": ("mirror_maker:mirror_maker", "MirrorMaker 1's command lines"),
        "pack": ("pack:pack", "The archive that executors of a Spark cluster need"),
    },
    "Steer": {
        "flow": ("steer.flow:flow", "Pause, resume, limit or promote flows"),
        "topic": ("steer.topic:topic", "The same of single topics, and release them"),
        "repair": ("steer.repair:repair", "Accept or skip what stops a partition"),
    },
    "Move clients": {
        "switchover": ("cutover.switchover:switchover", "To the target, planned"),
        "failover": ("cutover.failover:failover", "To the target of a source that is gone"),
        "failback": ("cutover.failback:failback", "Home again"),
        "drill": ("cutover.drill:drill", "Rehearse it with topics of its own"),
        "offsets": ("offsets:offsets", "Translate offsets, set groups' offsets, rebuild a map"),
        "groups": ("groups.ready:groups", "Which groups may move to the target"),
    },
    "Find out": {
        "doctor": ("compare.doctor:doctor", "Why a flow is slow, or has stopped"),
        "diff": ("compare.diff:diff", "What differs between both clusters, without records"),
        "verify": ("compare.verify:verify", "Whether both sides hold the same records"),
        "explain": ("explain:explain", "What a code means, and what to do"),
        "topology": ("topology:topology", "Flows and clusters upstream of one cluster"),
        "export": ("export:export", "Records of one side as lines of JSON"),
        "support-bundle": ("support_bundle:support_bundle", "An archive for who helps you"),
    },
    "This machine": {
        "token": ("rest.token:token", "Tokens for REST"),
        "completion": ("completion:completion", "Completion for bash, zsh and fish"),
        "demo": ("demo:demo", "Two clusters, a stream, a mirror, compared: in a minute"),
        "sandbox": ("sandbox:sandbox", "Real Kafka clusters on this machine"),
    },
}
"""Commands by what people want; a module below `commands`, its function, a line for `--help`."""
COMMANDS: Final = {
    name: f"twinlog.cli.commands.{where}"
    for section in SECTIONS.values()
    for name, (where, _) in section.items()
}
ASKED_BY_SHELLS: Final = "_TWINLOG_COMPLETE"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class Commands(CommandGroup):
    """Commands by name, each imported at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By section; no command is imported for it."""
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
    allow_from_autoenv=False,  # TWINLOG_VERSION is a likely name for something else
)
def twinlog() -> None:
    """Mirror Kafka topics between clusters on Spark: exactly once, set up like MirrorMaker 2.

    \b
    twinlog check mm2.properties
    twinlog mirror mm2.properties
    twinlog status mm2.properties

    `twinlog COMMAND --help` has its options. docs/glossary.md says what flow, lane, lease,
    generation, leader and standby are; docs/command-line.md is about output, exit codes and options
    from the environment.
    """
    configure_logging(verbose=loudness() is Loudness.VERBOSE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `twinlog` command."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. A program gets its object at every end of it."""
    answer = Envelope(Format.TEXT, "")
    held = ANSWER.set(answer)
    try:
        code = _run(arguments, answer)
        if answer.body or answer.errors or code:  # not behind --help
            try:
                answer.write(code)
            except BrokenPipeError as error:
                return _exit_code(error, answer)
        return code
    finally:
        ANSWER.reset(held)


def _run(arguments: Sequence[str], answer: Envelope) -> int:
    try:
        question = os.environ.get(ASKED_BY_SHELLS)
        if question:
            from twinlog.cli.options.shells import answer as answer_shell

            return answer_shell(twinlog, question)
        words = words_of(twinlog, arguments)
        answer.command = " ".join(words)
        answer.output = asked_format(words, arguments, os.environ)
        value: Any = twinlog.main(list(arguments), prog_name="twinlog", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 (the command line's one boundary)
        return _exit_code(error, answer)
    return value if isinstance(value, int) else 0


def _exit_code(error: BaseException, answer: Envelope) -> int:
    """Say what happened, in one line where it is no bug of ours."""
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
            # whoever read our output has enough (`| head`): there is no place left for a word
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_FAILED
        case TwinlogError():
            for one in error.each if isinstance(error, ConfigError) else (error,):
                write_line(f"twinlog: {one}", sys.stderr)
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


def _write_traceback(error: BaseException) -> None:
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    click.echo(set_in(text), file=sys.stderr)  # an exception's message may be a broker's
