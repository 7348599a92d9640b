"""The base of every command: options in sections, `-v`, `-q` and `--no-color` after its name,
suggestions for mistyped names.

Errors found after parsing begin with the flag that they are about, or with the environment variable
if that set the value.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
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
"""Maximum length of a sentence in a listing, longer than the first one of any command's help."""


class _Sectioned(click.Command):
    """Show options in sections, with -v, -q and --no-color."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params.extend(_common_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(self.get_params(ctx), ctx, formatter)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.allow_from_autoenv = False  # a variable that sets --help would be a mistake
        return option


class Command(_Sectioned):
    def invoke(self, ctx: click.Context) -> Any:
        for name, near in misspelt_variables(ctx, os.environ):
            line = f"warning: {name} is no option of `{ctx.command_path}`; did you mean {near}?"
            write_line(line, sys.stderr)
        try:
            answer = super().invoke(ctx)
            if not isinstance(answer, Answer):
                return answer
            # not loaded for `--help`, because it loads rich
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
    """A command with subcommands."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands with the whole first sentence of each."""
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
            if not hint and ctx.parent is not None:  # `twinlog` itself has too many subcommands
                hint = f"`{ctx.command_path}` has {', '.join(known)}"
            raise click.UsageError(f"No such command {args[0]!r}{hint and f'; {hint}'}", ctx)
        return super().resolve_command(ctx, args)


def write_sections(
    parameters: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write options below their sections' headings; options without a section are below Output."""
    by_section: dict[Section, list[tuple[str, str]]] = {}
    for parameter in parameters:
        record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
        if record is not None:
            section = parameter.section if isinstance(parameter, Option) else Section.OUTPUT
            by_section.setdefault(section, []).append(record)
    for section in Section:
        if section in by_section:
            with formatter.section(section):
                formatter.write_dl(by_section[section])


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
            (["--no-color"], _without_color, "Print no colours; NO_COLOR=1 does the same."),
        )
    ]


def _without_color(_ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        os.environ["NO_COLOR"] = "1"  # read by rich, also in commands that this one starts


def _set_loudness(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and option.name is not None:
        wanted = Loudness.VERBOSE if option.name == "verbose" else Loudness.QUIET
        set_loudness(ctx, wanted, ctx.get_parameter_source(option.name))
        configure_logging(verbose=loudness() is Loudness.VERBOSE)


def _with_used_flag(text: str, command: click.Command, ctx: click.Context) -> str:
    """If `text` begins with a flag, replace it by the flag or variable that gave the value."""
    start = _FLAG.match(text)
    for param in command.params if start else ():
        if start and isinstance(param, Option) and start[0] in (*param.opts, *param.secondary_opts):
            used = param.name_used(ctx)
            return (used if used != param.flag else start[0]) + text[start.end() :]
    return text


def misspelt_variables(
    context: click.Context, environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield variables whose names resemble one of this command, each with the name it resembles.

    Other variables with the same prefix may belong to other programs. Values are not checked
    because they may be secret.
    """
    prefix = f"{context.auto_envvar_prefix}_"
    variables = {
        str(param.variable(context))
        for param in context.command.params
        if isinstance(param, Option)
    }
    others = tuple(_of_longer_names(context, prefix))
    for name in sorted(environment):
        if name.startswith(prefix) and name not in variables and not name.startswith(others):
            from twinlog.config.values.nearest import nearest

            # the common prefix would make any two names similar
            near = nearest(
                name.removeprefix(prefix), {variable.removeprefix(prefix) for variable in variables}
            )
            if near is not None:
                yield name, prefix + near


def _of_longer_names(context: click.Context, prefix: str) -> Iterator[str]:
    """Yield longer prefixes of sibling commands: TWINLOG_MIRROR_MAKER_ beside TWINLOG_MIRROR_."""
    parent = context.parent
    if parent is not None and isinstance(parent.command, click.Group):
        for name in parent.command.list_commands(parent):
            words = f"{parent.auto_envvar_prefix}_{name.upper().replace('-', '_')}_"
            if words.startswith(prefix) and words != prefix:
                yield words
