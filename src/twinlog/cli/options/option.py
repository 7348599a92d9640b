"""The class of all options. Each option has a section in `--help` and an environment variable.

The variable is named after the flag, not after the parameter in the code: `twinlog mirror
--log-format` has TWINLOG_MIRROR_LOG_FORMAT. A flag on the command line takes precedence over the
variable. An error names the variable if the wrong value came from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from twinlog.errors import UsageError

PAIR: Final = ("consumer", "producer", "include", "whitelist", "exclude", "blacklist")
"""Names of the options by which MirrorMaker 1's two files are used instead of FILE."""

F = TypeVar("F", bound=Callable[..., Any])


class Section(StrEnum):
    """Headings of the options in `--help`, in the order in which they are printed."""

    OWN = "Options"
    CONFIGURATION = "Configuration"
    RUN = "How it runs"
    SPARK = "Spark"
    ADOPTION = "Taking over from MirrorMaker 2"
    MIRROR_MAKER_1 = "MirrorMaker 1's flags"
    KEYS = "Keys of FILE, for this run"
    OUTPUT = "Output"


class Option(click.Option):
    """An option with an environment variable. `section`: its heading in `--help`."""

    def __init__(self, *args: Any, section: Section = Section.OWN, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        # otherwise click would name the variable after the parameter in the code
        self.allow_from_autoenv = False
        self.section = section
        if isinstance(self.type, click.IntRange):
            self.type.name = "whole number"  # otherwise click's error would contain "integer range"
            self.metavar = self.metavar or "NUMBER"

    @property
    def flag(self) -> str:
        """Return the option's first long name, such as `--log-format`."""
        return next((flag for flag in self.opts if flag.startswith("--")), self.opts[0])

    def variable(self, context: click.Context) -> str | None:
        """Return the environment variable's name, or None if the context has no prefix for one."""
        prefix = context.auto_envvar_prefix
        words = self.flag.lstrip("-").replace("-", "_").replace(".", "_")
        return None if prefix is None else f"{prefix}_{words.upper()}"

    def name_used(self, context: click.Context) -> str:
        """Return the flag, or the environment variable if the value came from it."""
        return self._given_by(context) or self.flag

    def _given_by(self, context: click.Context) -> str | None:
        source = None if self.name is None else context.get_parameter_source(self.name)
        return self.variable(context) if source is ParameterSource.ENVIRONMENT else None

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        self.envvar = self.variable(ctx)
        return super().resolve_envvar_value(ctx)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the variable's value. If the option may be given several times, the value is split
        into words as in a shell, so words with blanks must be quoted.
        """
        if not self.multiple:
            return super().value_from_envvar(ctx)
        text = self.resolve_envvar_value(ctx)
        try:
            return None if text is None else shlex.split(text)
        except ValueError as problem:
            raise UsageError(f"{self.variable(ctx)}: {problem}") from None

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            variable = self._given_by(ctx)
            if variable is None:
                raise
            raise UsageError(f"{variable}: {error.message.rstrip('.')}") from None


class File(click.Argument):
    """The argument FILE. Its default is TWINLOG_CONFIG, unless MirrorMaker 1's flags are given."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        is_pair = any(ctx.params.get(name) is not None for name in PAIR)
        return None if is_pair else super().resolve_envvar_value(ctx)


def file_argument(name: str = "file", **attributes: Any) -> Callable[[F], F]:
    """Return the argument FILE or FILE..., with TWINLOG_CONFIG as its default."""
    from pathlib import Path  # imported here, because `twinlog --help` does not need it

    path = click.Path(path_type=Path)
    return click.argument(name, cls=File, envvar="TWINLOG_CONFIG", type=path, **attributes)


def option(
    *declarations: str, section: Section = Section.OWN, **attributes: Any
) -> Callable[[F], F]:
    """Return a decorator that adds an Option: `click.option` with a section and a variable."""
    return click.option(*declarations, cls=Option, section=section, **attributes)


def options(*each: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in the order of `--help`."""

    def with_options(command: F) -> F:
        for add in reversed(each):
            command = add(command)
        return command

    return with_options


reason_option = option("--reason", default="", metavar="TEXT", help="Shown by `twinlog status`.")
yes_option = option("--yes", is_flag=True, help="Do not ask for confirmation.")
