"""Generates the man page from the click commands: each command with its help, examples and options.

Options that every command has are described only once, at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from tools.site.reference import below, whole
from twinlog.cli.main import SECTIONS
from twinlog.cli.main import twinlog as program

PATH: Final = "share/man/man1/twinlog.1"
_HEAD: Final = (
    ".TH TWINLOG 1",
    ".nh",  # no hyphenation, because keys must not be hyphenated
    ".ad l",
    ".SH NAME",
    r"twinlog \- mirror Kafka topics between clusters on Spark",
    ".SH SYNOPSIS",
    r".B twinlog \fICOMMAND\fR [\fIOPTIONS\fR] \fIFILE\fR",
    ".SH DESCRIPTION",
)
_FILES: Final = (
    ".SH FILES",
    ".I FILE",
    "is an mm2.properties of MirrorMaker 2. TWINLOG_CONFIG names it for commands without FILE.",
    r"Examples and alerts are in \fIPREFIX/share/twinlog\fR.",
)


def render() -> str:
    """Return the page as roff."""
    top = whole()
    common = {name for one in program.params for name in one.opts} | {"-h", "--help"}
    lines = [*_HEAD, *_text(program.help or "")]
    commands = dict(below(top))
    for title, names in SECTIONS.items():
        lines.append(f".SH {title.upper()}")
        for name in names:
            lines += _command(commands[name], common)
    lines += [".SH OPTIONS OF EVERY COMMAND", *_options(top, set())]
    return "\n".join((*lines, *_FILES)) + "\n"


def _command(context: click.Context, common: set[str]) -> Iterator[str]:
    command = context.command
    words = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield f'.SS "{_escaped(words)}"'
    yield from _text(command.help or "")
    yield from _options(context, common)
    for _, one in below(context):
        yield from _command(one, common)


def _text(text: str) -> Iterator[str]:
    r"""Yield roff for the paragraphs of a help text. A paragraph that begins with `\b` is an
    example, whose lines are not wrapped.
    """
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from (".PP", ".nf", *map(_line, lines[1:]), ".fi")
        else:
            yield from (".PP", *map(_line, lines))


def _options(context: click.Context, common: set[str]) -> Iterator[str]:
    for one in context.command.get_params(context):
        found = None if isinstance(one, click.Argument) else one.get_help_record(context)
        if found is not None and not common & {*one.opts}:
            yield from (".TP", f".B {_escaped(found[0])}", _line(found[1]))


def _line(text: str) -> str:
    """Return an escaped line. A `.` or `'` at its start is also escaped, because roff would read it
    as a request.
    """
    return rf"\&{_escaped(text)}" if text.startswith((".", "'")) else _escaped(text)


def _escaped(text: str) -> str:
    """Return text with roff's escapes. Permits a line break after each `|` in a list of choices."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return text.replace("|", r"|\:")
