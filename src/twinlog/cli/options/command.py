"""What every command is: options in sections, `-v` and `-q` behind its name, mistyped names.

Errors that are found after the options were read begin with the flag they are about; where a
variable of the environment gave it, they are said of the variable.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from twinlog.cli.options.option import Option, Section
from twinlog.cli.terminal.loudness import Loudness, be, loudness
from twinlog.cli.terminal.output import configure_logging, write_line
from twinlog.errors import TwinlogError

_FLAG: Final = re.compile(r"--[a-z][\w.-]*")
WHOLE: Final = 1_000
"""Characters: more than the first sentence of any command's help."""


class _Sectioned(click.Command):
    """Options in sections, -v and -q among them."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params.extend(_loudness_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(self.get_params(ctx), ctx, formatter)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return _without_variable(super().get_help_option(ctx))


class Command(_Sectioned):
    """A command of ours."""

    def invoke(self, ctx: click.Context) -> Any:
        for name, near in misspelt_variables(ctx, os.environ):
            line = f"warning: {name} is no option of `{ctx.command_path}`; did you mean {near}?"
            write_line(line, sys.stderr)
        try:
            return super().invoke(ctx)
        except TwinlogError as error:
            error.message = _said(error.message, self, ctx)
            raise
        except click.BadParameter as error:
            if isinstance(error.param_hint, str):
                error.param_hint = _said(error.param_hint, self, ctx)
            raise


class CommandGroup(_Sectioned, click.Group):
    """A command that has commands."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With the first sentence of each, whole: cut at a verb it says nothing."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=WHOLE)) for name, one in found if one]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from twinlog.config.values.nearest import suggestion

            hint = suggestion(args[0], known)
            if not hint and ctx.parent is not None:  # of `twinlog` itself there are too many
                hint = f"`{ctx.command_path}` has {', '.join(known)}"
            raise click.UsageError(f"No such command {args[0]!r}{hint and f'; {hint}'}", ctx)
        return super().resolve_command(ctx, args)


def write_sections(
    parameters: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Options below the headings of their sections, those without one with what is said."""
    found: dict[Section, list[tuple[str, str]]] = {}
    for one in parameters:
        record = None if isinstance(one, click.Argument) else one.get_help_record(ctx)
        if record is not None:
            section = one.section if isinstance(one, Option) else Section.OUTPUT
            found.setdefault(section, []).append(record)
    for section in Section:
        if section in found:
            with formatter.section(section):
                formatter.write_dl(found[section])


def _loudness_options() -> list[click.Parameter]:
    """-v and -q, which are taken before the name of a command as well as behind it."""
    return [
        Option(
            [short, long],
            is_flag=True,
            expose_value=False,
            callback=_be,
            section=Section.OUTPUT,
            help=text,
        )
        for short, long, text in (
            ("-v", "--verbose", "Say more, and show tracebacks."),
            ("-q", "--quiet", "Say only warnings and errors."),
        )
    ]


def _be(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and option.name is not None:
        wanted = Loudness.VERBOSE if option.name == "verbose" else Loudness.QUIET
        be(ctx, wanted, ctx.get_parameter_source(option.name))
        configure_logging(verbose=loudness() is Loudness.VERBOSE)


def _without_variable(found: click.Option | None) -> click.Option | None:
    """Of --help: a variable that asks for help would be an accident."""
    if found is not None:
        found.allow_from_autoenv = False
    return found


def _said(text: str, command: click.Command, ctx: click.Context) -> str:
    """A text that begins with a flag, beginning with what gave its value."""
    start = _FLAG.match(text)
    for one in command.params if start else ():
        if start and isinstance(one, Option) and start[0] in (*one.opts, *one.secondary_opts):
            given = one.said(ctx)
            return (given if given != one.flag else start[0]) + text[start.end() :]
    return text


def misspelt_variables(
    context: click.Context, environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Names that are near those of the command that runs, each with the one that it is near.

    Others that begin as they do may be anybody's, and a value may be a secret: it is not checked.
    """
    prefix = f"{context.auto_envvar_prefix}_"
    ours = {str(one.variable(context)) for one in context.command.params if isinstance(one, Option)}
    others = tuple(_of_longer_names(context, prefix))
    for name in sorted(environment):
        if name.startswith(prefix) and name not in ours and not name.startswith(others):
            from twinlog.config.values.nearest import nearest

            # what all of them begin with would make any two alike
            near = nearest(name.removeprefix(prefix), {one.removeprefix(prefix) for one in ours})
            if near is not None:
                yield name, prefix + near


def _of_longer_names(context: click.Context, prefix: str) -> Iterator[str]:
    """TWINLOG_MIRROR_MAKER_ beside TWINLOG_MIRROR_."""
    parent = context.parent
    if parent is not None and isinstance(parent.command, click.Group):
        for name in parent.command.list_commands(parent):
            words = f"{parent.auto_envvar_prefix}_{name.upper().replace('-', '_')}_"
            if words.startswith(prefix) and words != prefix:
                yield words
