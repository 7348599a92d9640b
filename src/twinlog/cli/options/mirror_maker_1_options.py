"""MirrorMaker 1's flags and its two files, for every command that accepts them instead of FILE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from twinlog.cli.options.option import PAIR, Section, option, options
from twinlog.cli.options.run_options import configuration, overrides

if TYPE_CHECKING:
    from twinlog.config.files.mirror_maker_1 import PairOptions
    from twinlog.config.flow.schema import MirrorConfig

_IDLE: Final = {
    "rebalance_listener": "--rebalance.listener",
    "rebalance_listener_args": "--rebalance.listener.args",
    "new_consumer": "--new.consumer",
}
_NAMES: Final = (
    *PAIR,
    *("streams", "commit_interval_ms", "abort", "handler", "handler_args", "source", *_IDLE),
)
_FILE: Final = click.Path(path_type=Path)
_flag: Final = partial(option, section=Section.MIRROR_MAKER_1)
pair_options = options(
    _flag("--consumer.config", "consumer", type=_FILE, help="The source and the group."),
    _flag("--producer.config", "producer", type=_FILE, help="The target."),
    _flag("--include", help="Topics to mirror: one or several regular expressions."),
    _flag("--whitelist", help="The old name of --include."),
    _flag("--exclude", help="Topics not to mirror."),
    _flag("--blacklist", help="The old name of --exclude."),
    _flag("--num.streams", "streams", metavar="N", help="Maximum number of lanes."),
    _flag(
        "--offset.commit.interval.ms",
        "commit_interval_ms",
        metavar="N",
        help="How often the group's offsets are committed on the source; default 60000.",
    ),
    _flag(
        "--abort.on.send.failure",
        "abort",
        type=click.BOOL,
        default=True,
        help="No effect: no record is ever skipped.",
    ),
    _flag(
        "--message.handler",
        "handler",
        help="Not supported: it names a Java class, which Twinlog cannot run.",
    ),
    _flag("--message.handler.args", "handler_args", help="Not supported."),
    _flag(
        "--consumer.rebalance.listener",
        "--rebalance.listener",
        "rebalance_listener",
        help="Ignored: it names a Java class.",
    ),
    _flag("--rebalance.listener.args", "rebalance_listener_args", help="Ignored."),
    _flag("--new.consumer", "new_consumer", is_flag=True, hidden=True),
    _flag(
        "--source",
        metavar="ALIAS",
        help="The source's alias, if several mirrors with the same group share a target.",
    ),
)
"""Add MirrorMaker 1's flags to a command. `pair()` reads their values."""


def pair(arguments: dict[str, Any]) -> tuple[Path, Path, PairOptions]:
    """Return the consumer file, the producer file, and MirrorMaker 1's other flags. All of them are
    removed from `arguments`. Raises UsageError if a required flag is missing or one is refused.
    """
    from twinlog.config.files.mirror_maker_1 import PairOptions

    flags = {name: arguments.pop(name) for name in _NAMES}
    for name in ("consumer", "producer"):
        if flags[name] is None:
            raise click.UsageError(f"Missing option '--{name}.config'.")
    if flags["handler"] is not None or flags["handler_args"] is not None:
        raise click.UsageError(
            "--message.handler: a Java class cannot run here. Write it in Python with "
            "twinlog.transforms (docs/transforms.md)."
        )
    include, include_flag = _one_spelling(flags, "include", "whitelist")
    if include is None:
        raise click.UsageError("Missing option '--include' (or '--whitelist').")
    idle = [flag for name, flag in _IDLE.items() if flags[name]]
    if not flags["abort"]:
        idle.append("--abort.on.send.failure=false (no record is ever skipped)")
    # like MirrorMaker 1, `mirror-maker` ignores additional words; other commands refuse them
    idle += click.get_current_context().args
    options = PairOptions(
        include=include,
        include_flag=include_flag,
        exclude=_one_spelling(flags, "exclude", "blacklist")[0],
        streams=flags["streams"],
        commit_interval_ms=flags["commit_interval_ms"],
        source=flags["source"],
        idle=tuple(idle),
    )
    return flags["consumer"], flags["producer"], options


def check_pair(files: object, flags: dict[str, Any]) -> None:
    """Raise UsageError unless either FILE (`files`) or MirrorMaker 1's files are given."""
    if files and is_pair(flags):
        raise click.UsageError("Give FILE, or the flags of MirrorMaker 1: not both.")
    if not files and not is_pair(flags):
        raise click.UsageError("Missing argument 'FILE', or the flags of MirrorMaker 1.")


def _one_spelling(flags: dict[str, Any], new: str, old: str) -> tuple[str | None, str]:
    if flags[new] is not None and flags[old] is not None:
        raise click.UsageError(f"--{old} is the old name of --{new}: give one of them.")
    name = new if flags[new] is not None else old
    return flags[name], f"--{name}"


def configuration_of_pair(
    flags: dict[str, Any], clusters: str | None = None
) -> tuple[Path, Callable[[], MirrorConfig]]:
    """Return (consumer file, load). `load`: loads MirrorMaker 1's two files with the options of the
    running command. MirrorMaker 1's flags are removed from `flags`. Raises UsageError if they are
    incomplete or refused.
    """
    consumer, producer, options = pair(flags)
    overridden = overrides()
    aliases = [] if clusters is None else [clusters]

    def read() -> MirrorConfig:
        from twinlog.config.files.mirror_maker_1 import read_pair
        from twinlog.config.load import load_raw

        raw = read_pair(consumer, producer, options)
        return load_raw(raw, aliases, None, overridden)

    return consumer, read


def files_or_pair(
    files: Sequence[Path], clusters: str | None, flags: dict[str, Any]
) -> Callable[[], MirrorConfig]:
    """Return a function that loads `files`, or MirrorMaker 1's two files if `files` is empty."""
    check_pair(files, flags)
    return configuration(files, clusters) if files else configuration_of_pair(flags, clusters)[1]


def is_pair(flags: dict[str, Any]) -> bool:
    """Return True if any of MirrorMaker 1's flags in PAIR is given."""
    return any(flags[name] is not None for name in PAIR)
