"""Generates two pages of the site from the code: all commands, and the public Python API."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import click

import twinlog.client
import twinlog.records
from twinlog.cli.main import SECTIONS
from twinlog.cli.main import twinlog as program

_WIDTH: Final = 100
_COMMANDS: Final = """\
# All commands

The help of each command, as `twinlog COMMAND --help` prints it.
[Command line](../docs/command-line.md) describes output, exit codes and options from the
environment.
"""
_API: Final = """\
# Python reference

The names that `twinlog.client` and `twinlog.records` export. [Python API](../docs/api.md) and
[DataFrames](../docs/dataframes.md) describe how to use them.
"""


def commands() -> str:
    """Return the page with the help texts of all commands."""
    top = whole()
    sections = {name: title for title, names in SECTIONS.items() for name in names}
    parts = [_COMMANDS, *_help(top)]
    last = ""
    for name, context in below(top):
        if sections[name] != last:
            last = sections[name]
            parts.append(f"## {last}\n")
        parts += _with_subcommands(context)
    return "\n".join(parts)


def whole() -> click.Context:
    """Return the click context of the program `twinlog`."""
    settings: Any = program.context_settings
    return click.Context(program, info_name="twinlog", terminal_width=_WIDTH, **settings)


def _with_subcommands(context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path.removeprefix('twinlog ')}\n"
    yield from _help(context)
    for _, one in below(context):
        yield from _with_subcommands(one)


def below(context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """Yield the name and click context of each subcommand of a group."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            below = click.Context(command, info_name=name, parent=context, terminal_width=_WIDTH)
            yield name, below


def _help(context: click.Context) -> Iterator[str]:
    yield f"```text\n{context.get_help()}\n```\n"


def python_api() -> str:
    """Return the page with all public names, their signatures and docstrings."""
    return "\n".join((_API, *_module(twinlog.client), *_module(twinlog.records)))


def _module(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}\n"
    for name in module.__all__:
        yield from _entry(name, getattr(module, name), "###")


def _entry(name: str, value: Any, level: str) -> Iterator[str]:
    if not (inspect.isclass(value) or isinstance(value, FunctionType)):
        yield f"{level} {name}\n\n`{name} = {value}`\n"
        return
    yield f"{level} {name}\n\n```python\n{name}{_signature(value)}\n```\n"
    yield f"{inspect.cleandoc(value.__doc__ or '')}\n"
    if inspect.isclass(value):
        for method, one in vars(value).items():
            if not method.startswith("_") and isinstance(one, FunctionType):
                yield from _entry(f"{name}.{method}", one, f"{level}#")


def _signature(value: Any) -> str:
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
