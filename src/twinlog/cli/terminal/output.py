"""How commands speak: lines for people, one object for programs, log lines on stderr."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TextIO, cast

import click

from twinlog.cli.terminal.loudness import is_quiet
from twinlog.errors import ConfigError, TwinlogError
from twinlog.shown import ShownFormatter, shown

log = logging.getLogger(__name__)

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"

LONGEST: Final = 1 << 30
"""A text of YAML stays on its line."""


class Format(StrEnum):
    """Who reads the output."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_for_programs(self) -> bool:
        return self is not Format.TEXT


class _Nowhere(io.TextIOBase):
    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


def nowhere() -> TextIO:
    """Takes the lines that -q leaves out."""
    return cast("TextIO", _Nowhere())


def write_line(line: str, stream: TextIO | None = None) -> None:
    """One line for people, whatever is in it; one of stdout is left out where -q was given. On a
    terminal it is broken between words.
    """
    if stream is not None or not is_quiet():
        out = stream or sys.stdout
        text = shown(line)
        width = shutil.get_terminal_size().columns if out.isatty() else LONGEST
        if len(text) > width:
            text = textwrap.fill(
                text,
                width,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        click.echo(text, file=out)


def write_step(line: str) -> None:
    """One line of stderr that says what is done meanwhile: -q leaves it out."""
    if not is_quiet():
        write_line(line, sys.stderr)


def write_warning(line: str) -> None:
    """One line of stdout that says what is wrong: -q leaves it in."""
    write_line(line, sys.stdout)


def write_while_it_is_read(line: str, stream: TextIO) -> None:
    """One line for whoever still reads it: what is written for a full disk or a closed pipe ends no
    mirror. The first failure of stdout is said in the log, and the rest goes nowhere; stderr, where
    the log is, is tried again with the next line.
    """
    try:
        write_line(line, stream)
    except OSError as error:
        if stream is sys.stderr:
            return
        log.warning("nothing more is shown on %s, the mirror runs on: %s", stream.name, error)
        # what the stream still holds goes there too, so that its end is no failure
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 (it is no path of a file)
            os.dup2(nowhere.fileno(), stream.fileno())


@dataclass(slots=True)
class Envelope:
    """The one object that a program gets at the end of a command, however it ends.

    It is held back until the exit code is known: an error may follow what a command has found.
    """

    output: Format
    command: str
    version: int = 1
    body: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    seal: Callable[[Mapping[str, Any]], str] | None = None
    """Makes `sha256` of all else, for an object that is kept."""

    def write(self, exit_code: int) -> None:
        """One object on stdout: a line of JSON, or a document of YAML with the same structure.

        Both escape what is not ASCII.
        """
        if not self.output.is_for_programs:
            return
        whole = {
            "command": self.command,
            "version": self.version,
            "ok": exit_code == 0,
            "errors": self.errors,
            **self.body,
        }
        if self.seal is not None:
            whole["sha256"] = self.seal(whole)
        text = json.dumps(whole)
        click.echo(_yaml(text) if self.output is Format.YAML else text)


ANSWER: ContextVar[Envelope] = ContextVar("answer")
"""Of the command that runs."""


def write_object(
    output: Format,
    command: str,
    body: Mapping[str, Any],
    errors: Iterable[Mapping[str, Any]] = (),
    *,
    seal: Callable[[Mapping[str, Any]], str] | None = None,
    version: int = 1,
) -> None:
    """What a command has found, for programs; `errors` says why it is not well, where it is not.
    `seal` makes its `sha256`.

    `version` changes when a field changes its meaning.
    """
    answer = ANSWER.get()
    answer.output, answer.command, answer.version = output, command, version
    answer.body = dict(body)
    answer.errors, answer.seal = [dict(one) for one in errors], seal


def error_object(
    code: str,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    key: str | None = None,
) -> dict[str, Any]:
    """One of `errors`: the place is known where a line of a file is to blame."""
    return {"file": file, "line": line, "key": key, "code": code, "message": message}


def errors_of(error: TwinlogError) -> list[dict[str, Any]]:
    """What `errors` says of it; the message does not repeat a place that is known."""
    if not isinstance(error, ConfigError):
        return [error_object(error.code, error.message)]
    return [
        error_object(
            one.code,
            one.message if one.file is None and one.key is None else one.what,
            file=one.file,
            line=one.line,
            key=one.key,
        )
        for one in error.each
    ]


def _yaml(text: str) -> str:
    """The YAML of what JSON says: enumerations and tuples are there what programs read."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, where it is built
    document: str = yaml.dump(
        json.loads(text), Dumper=dumper, sort_keys=False, allow_unicode=False, width=LONGEST
    )
    return document.rstrip("\n")


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is now: a live display takes it over while it is on."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure_logging(*, verbose: bool) -> None:
    """Warnings and worse of everybody in one format; our own events too when asked for."""
    handler = _CurrentStderr()
    handler.setFormatter(ShownFormatter(LOG_FORMAT, TIME_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("twinlog").setLevel(logging.DEBUG if verbose else logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.ERROR)
