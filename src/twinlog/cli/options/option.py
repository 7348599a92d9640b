"""An option of ours: the section of `--help` that it stands in, and its variable.

The variable of `twinlog mirror --log-format` is TWINLOG_MIRROR_LOG_FORMAT: of the flag as users
know it, not of the name that it has here. The command line wins over it. A value that is wrong is
said of the variable, since nobody wrote the flag.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from twinlog.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


class Section(StrEnum):
    """Headings of `--help`, in their order."""

    OWN = "Options"
    CONFIGURATION = "Configuration"
    RUN = "How it runs"
    SPARK = "Spark"
    ADOPTION = "Taking over from MirrorMaker 2"
    MIRROR_MAKER_1 = "MirrorMaker 1's flags"
    KEYS = "Keys of FILE, for this run"
    OUTPUT = "Output"


class Option(click.Option):
    """One option; `section` is where `--help` shows it."""

    def __init__(self, *args: Any, section: Section = Section.OWN, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.allow_from_autoenv = False  # click's name for it would be the parameter's in the code
        self.section = section
        if isinstance(self.type, click.IntRange):
            self.type.name = "whole number"  # click calls a value that is wrong no integer range
            self.metavar = self.metavar or "NUMBER"

    @property
    def flag(self) -> str:
        """The name that people see: `--log-format`."""
        return next((one for one in self.opts if one.startswith("--")), self.opts[0])

    def variable(self, context: click.Context) -> str | None:
        """The variable of the environment that gives it; None for a command of no program."""
        prefix = context.auto_envvar_prefix
        words = self.flag.lstrip("-").replace("-", "_").replace(".", "_")
        return None if prefix is None else f"{prefix}_{words.upper()}"

    def said(self, context: click.Context) -> str:
        """What gave the value: the flag, or its variable."""
        return self._given_by(context) or self.flag

    def _given_by(self, context: click.Context) -> str | None:
        source = None if self.name is None else context.get_parameter_source(self.name)
        return self.variable(context) if source is ParameterSource.ENVIRONMENT else None

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        self.envvar = self.variable(ctx)
        return super().resolve_envvar_value(ctx)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Several values are words as a shell has them: one with blanks stands in quotes."""
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


def said(context: click.Context, parameter: click.Parameter) -> str:
    """What gave a parameter's value: the flag, or its variable."""
    return parameter.said(context) if isinstance(parameter, Option) else str(parameter.name)


def option(
    *declarations: str, section: Section = Section.OWN, **attributes: Any
) -> Callable[[F], F]:
    """`click.option` with a section, and a variable of its own."""
    return click.option(*declarations, cls=Option, section=section, **attributes)
