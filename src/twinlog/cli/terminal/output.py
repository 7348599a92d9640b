"""How commands speak: lines for people, one JSON object for programs, log lines on stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TextIO, TypeVar

import click

from twinlog.shown import ShownFormatter, shown

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"

F = TypeVar("F", bound=Callable[..., Any])


class Format(StrEnum):
    """Who reads the output."""

    TEXT = "text"
    JSON = "json"


def format_option(command: F) -> F:
    """`--format text|json`, given to the command as `output`."""
    option = click.option(
        "--format",
        "output",
        type=click.Choice([one.value for one in Format]),
        callback=lambda _context, _parameter, value: Format(value),
        default=Format.TEXT.value,
        show_default=True,
        help="text for people, json for programs.",
    )
    return option(command)


def write_line(line: str, stream: TextIO | None = None) -> None:
    """One line for people, whatever is in it."""
    click.echo(shown(line), file=stream or sys.stdout)


def write_json(command: str, version: int, body: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout; `version` changes when a field changes its meaning."""
    click.echo(json.dumps({"command": command, "version": version, **body}))


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
