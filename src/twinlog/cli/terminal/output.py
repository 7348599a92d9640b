"""Output of commands: lines for people, one object for programs, and log lines on stderr.

With `-q` only warnings and errors are printed, with `-v` also debug lines.
"""

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
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias, cast

import click
from click.core import ParameterSource

from twinlog.encoded import encoded
from twinlog.errors import ConfigError, TwinlogError
from twinlog.shown import ShownFormatter, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

_META: Final = "twinlog.loudness"


class Loudness(StrEnum):
    QUIET = "--quiet"
    NORMAL = ""
    VERBOSE = "--verbose"


def loudness() -> Loudness:
    """Return whether -q, -v or neither was given to the command that runs in this thread."""
    context = click.get_current_context(silent=True)
    return Loudness.NORMAL if context is None else _loudness_of(context)[0]


def is_quiet() -> bool:
    return loudness() is Loudness.QUIET


def set_loudness(context: click.Context, wanted: Loudness, source: ParameterSource | None) -> None:
    """Store -v or -q. A flag on the command line takes precedence over an environment variable.
    Raises UsageError if both -v and -q come from the same source.
    """
    before, its_source = _loudness_of(context)
    if before in (Loudness.NORMAL, wanted) or its_source is not source:
        if its_source is not ParameterSource.COMMANDLINE:
            context.meta[_META] = (wanted, source)
        return
    raise click.UsageError(f"{before} or {wanted}: give one of them", context)


def _loudness_of(context: click.Context) -> tuple[Loudness, ParameterSource | None]:
    loudness: tuple[Loudness, ParameterSource | None]
    loudness = context.meta.get(_META, (Loudness.NORMAL, None))
    return loudness


Part: TypeAlias = "str | RenderableType"
"""A line as text, which is wrapped between words on a terminal, or an object that rich prints."""

log = logging.getLogger(__name__)

LOG_FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"
TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
"""Format of times in log lines. They are in UTC, as in JSON lines."""

LONGEST: Final = 1 << 30
"""Line width that no line reaches, for YAML and output to files, which are not wrapped."""


class Format(StrEnum):
    """Format of a command's output."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_for_programs(self) -> bool:
        return self is not Format.TEXT


class _Discarding(io.TextIOBase):
    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


def nowhere() -> TextIO:
    """Return a stream that discards everything, for lines that -q suppresses."""
    return cast("TextIO", _Discarding())


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Write one line for people to `stream`, with control characters made visible. A line for a
    terminal is wrapped between words. Without `stream`, the line is for stdout, and -q suppresses
    it.
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
    """Write a progress line to stderr, unless -q is given."""
    if not is_quiet():
        write_line(line, sys.stderr)


def write_while_it_is_read(line: str, stream: TextIO) -> None:
    """Write one line, and ignore errors, because a full disk or a closed pipe must not end a
    mirror. If stdout fails, this is logged once, and later lines are discarded. If stderr fails,
    where the log is written, only this line is lost.
    """
    try:
        write_line(line, stream)
    except OSError as error:
        if stream is sys.stderr:
            return
        log.warning("output to %s stopped, the mirror continues: %s", stream.name, error)
        # text in the stream's buffer goes to /dev/null, too; writing it would fail at exit
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 (not a path of a regular file)
            os.dup2(nowhere.fileno(), stream.fileno())


@dataclass(frozen=True, slots=True)
class Answer:
    """The return value of a command: its result for programs and for people, and its exit code."""

    fields: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    """The command's own fields of the JSON object. Values are encoded by `twinlog.encoded`."""
    text: Iterable[Part] = ()
    """The lines and tables for people, printed unless `--format` is json or yaml."""
    exit_code: int = 0
    _: KW_ONLY
    problems: Iterable[Part] = ()
    """The lines and tables that are printed instead of `text` if -q is given."""
    errors: Iterable[Mapping[str, Any]] = ()
    """Entries of the JSON field `errors` for problems that did not end the command."""
    version: int = 1
    """The JSON field `version`, incremented when a field of this command changes its meaning."""
    seal: Callable[[Mapping[str, Any]], str] | None = None
    """Returns the JSON field `sha256`, given all other fields, for objects that users store."""


@dataclass(slots=True)
class Envelope:
    """The object that a command prints for programs, even if the command fails.

    The object contains the exit code's meaning (`ok`), so it is printed after everything else.
    """

    output: Format
    command: str
    answer: Answer | None = None
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    """Entries of the JSON field `errors` for the error that ended the command."""

    def write(self, exit_code: int) -> None:
        """Write the object to stdout as a line of JSON, or as YAML with the same structure.

        Both formats escape non-ASCII characters.
        """
        if not self.output.is_for_programs:
            return
        answer = self.answer or Answer({})
        whole = {
            "command": self.command,
            "version": answer.version,
            "ok": exit_code == 0,
            "errors": [*answer.errors, *self.errors],
            **(answer.fields() if callable(answer.fields) else answer.fields),
        }
        text = json.dumps(whole, default=encoded)
        if answer.seal is not None:
            whole = json.loads(text)
            text = json.dumps({**whole, "sha256": answer.seal(whole)})
        click.echo(_yaml(text) if self.output is Format.YAML else text)


ANSWER: ContextVar[Envelope] = ContextVar("answer")
"""The object that the running command prints for programs."""


def is_for_programs() -> bool:
    """Return True if the running command prints only one object, for programs, to stdout."""
    return ANSWER.get().output.is_for_programs


def error_object(
    code: str,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    key: str | None = None,
) -> dict[str, Any]:
    """Return an entry of the JSON field `errors`. File, line and key are None if unknown."""
    return {"file": file, "line": line, "key": key, "code": code, "message": message}


def errors_of(error: TwinlogError) -> list[dict[str, Any]]:
    """Return an error's entries of the JSON field `errors`. If an entry has file, line or key, its
    message does not repeat them.
    """
    if not isinstance(error, ConfigError):
        return [error_object(error.code, error.message)]
    return [
        error_object(
            each.code,
            each.message if each.file is None and each.key is None else each.what,
            file=each.file,
            line=each.line,
            key=each.key,
        )
        for each in error.each
    ]


def _yaml(text: str) -> str:
    """Convert JSON to YAML. The input is JSON so that it has no enumerations or tuples."""
    import yaml

    # the C dumper, if it is available, is ten times as fast
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document: str = yaml.dump(
        json.loads(text), Dumper=dumper, sort_keys=False, allow_unicode=False, width=LONGEST
    )
    return document.rstrip("\n")


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """A log handler that writes to the current sys.stderr, which live displays replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure_logging(*, verbose: bool) -> None:
    """Log warnings and errors of all loggers, and also Twinlog's debug events if `verbose`."""
    handler = _CurrentStderr()
    handler.setFormatter(ShownFormatter(LOG_FORMAT, TIME_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("twinlog").setLevel(logging.DEBUG if verbose else logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.ERROR)
