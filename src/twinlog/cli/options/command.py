"""The base class of every command. It shows options in sections, accepts `-v`, `-q` and
`--no-color` after the command's name, and suggests corrections of mistyped names.

Errors that are found after parsing begin with the flag whose value is wrong, or with the
environment variable if the value came from the variable.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from twinlog.cli.options.option import Option, Section
from twinlog.cli.terminal.output import (
    Answer,
    Loudness,
    configure_logging,
    loudness,
    set_loudness,
    write_line,
)
from twinlog.errors import TwinlogError

_FLAG: Final = re.compile(r"--[a-z][\w.-]*")
WHOLE: Final = 1_000
"""Length at which listings cut a command's help line: longer than any, so no line is cut."""


class _Sectioned(click.Command):
    """A command with -v, -q and --no-color, whose help shows options in sections."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params.extend(_common_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options below their sections' headings. Options of click are below
        Section.OUTPUT.
        """
        by_section: dict[Section, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                section = param.section if isinstance(param, Option) else Section.OUTPUT
                by_section.setdefault(section, []).append(record)
        for section in Section:
            if section in by_section:
                with formatter.section(section):
                    formatter.write_dl(by_section[section])

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.allow_from_autoenv = False  # nobody would set --help by a variable on purpose
        return option


class Command(_Sectioned):
    def invoke(self, ctx: click.Context) -> Any:
        for name, near in misspelt_variables(ctx):
            line = f"warning: {name} is no option of `{ctx.command_path}`; did you mean {near}?"
            write_line(line, sys.stderr)
        try:
            answer = super().invoke(ctx)
            if not isinstance(answer, Answer):
                return answer
            # imported here, so that `--help` does not load rich
            from twinlog.cli.terminal.tables import write_answer

            return write_answer(answer)
        except TwinlogError as error:
            error.message = _with_used_flag(error.message, self, ctx)
            raise
        except click.BadParameter as error:
            if isinstance(error.param_hint, str):
                error.param_hint = _with_used_flag(error.param_hint, self, ctx)
            raise


class CommandGroup(_Sectioned, click.Group):
    """A command that has subcommands."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each subcommand with the whole first sentence of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(limit=WHOLE))
                    for name, command in commands
                    if command
                ]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from twinlog.config.values.nearest import suggestion

            hint = suggestion(args[0], known)
            if not hint and ctx.parent is not None:  # except `twinlog`, which has too many
                hint = f"`{ctx.command_path}` has {', '.join(known)}"
            raise click.UsageError(f"No such command {args[0]!r}{hint and f'; {hint}'}", ctx)
        return super().resolve_command(ctx, args)


def _common_options() -> list[click.Parameter]:
    """Return -v, -q and --no-color, which are accepted before and after the name of a command."""
    return [
        Option(
            names,
            is_flag=True,
            expose_value=False,
            callback=callback,
            section=Section.OUTPUT,
            help=text,
        )
        for names, callback, text in (
            (["-v", "--verbose"], _set_loudness, "Print more, and show tracebacks."),
            (["-q", "--quiet"], _set_loudness, "Print only warnings and errors."),
            (["--no-color"], _without_color, "Print no colors; NO_COLOR=1 does the same."),
        )
    ]


def _without_color(_ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        os.environ["NO_COLOR"] = "1"  # rich reads it, also in child processes


def _set_loudness(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and option.name is not None:
        wanted = Loudness.VERBOSE if option.name == "verbose" else Loudness.QUIET
        set_loudness(ctx, wanted, ctx.get_parameter_source(option.name))
        configure_logging(verbose=loudness() is Loudness.VERBOSE)


def _with_used_flag(text: str, command: click.Command, ctx: click.Context) -> str:
    """Return `text` with a flag at its begin replaced by the spelling or the environment variable
    from which the option's value came.
    """
    start = _FLAG.match(text)
    for param in command.params if start else ():
        if start and isinstance(param, Option) and start[0] in (*param.opts, *param.secondary_opts):
            used = param.name_used(ctx)
            return (used if used != param.flag else start[0]) + text[start.end() :]
    return text


def misspelt_variables(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield each environment variable whose name is similar to one of this command's variables,
    with the similar name.

    Variables with the same prefix but other names may belong to other programs. Values are not
    checked because they may be secret.
    """
    prefix = f"{context.auto_envvar_prefix}_"
    variables = {
        str(param.variable(context))
        for param in context.command.params
        if isinstance(param, Option)
    }
    others = tuple(_of_longer_names(context, prefix))
    for name in sorted(os.environ):
        if name.startswith(prefix) and name not in variables and not name.startswith(others):
            from twinlog.config.values.nearest import nearest

            # compare without the common prefix, which would make any two names similar
            near = nearest(
                name.removeprefix(prefix), {variable.removeprefix(prefix) for variable in variables}
            )
            if near is not None:
                yield name, prefix + near


def _of_longer_names(context: click.Context, prefix: str) -> Iterator[str]:
    """Yield the prefixes of sibling commands that begin with this command's prefix, such as
    TWINLOG_MIRROR_MAKER_ for TWINLOG_MIRROR_.
    """
    parent = context.parent
    if parent is not None and isinstance(parent.command, click.Group):
        for name in parent.command.list_commands(parent):
            words = f"{parent.auto_envvar_prefix}_{name.upper().replace('-', '_')}_"
            if words.startswith(prefix) and words != prefix:
                yield words
