"""`twinlog mirror-maker`: MirrorMaker 1's command line, over what `twinlog mirror` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from twinlog.cli.mirror import RunOptions, run_configuration, run_options

if TYPE_CHECKING:
    from twinlog.config.mirror_maker_1 import PairOptions
    from twinlog.config.schema import MirrorConfig

F = TypeVar("F", bound=Callable[..., Any])

_IDLE: Final = {
    "rebalance_listener": "--rebalance.listener",
    "rebalance_listener_args": "--rebalance.listener.args",
    "new_consumer": "--new.consumer",
}
_NAMES: Final = (
    *("consumer", "producer", "include", "whitelist", "exclude", "blacklist", "streams"),
    *("commit_interval_ms", "abort", "handler", "handler_args", "source", *_IDLE),
)
_FILE: Final = click.Path(path_type=Path)
_PAIR_OPTIONS: Final = (
    click.option("--consumer.config", "consumer", type=_FILE, help="The source and the group."),
    click.option("--producer.config", "producer", type=_FILE, help="The target."),
    click.option("--include", help="Topics to mirror: a regular expression, or a list of them."),
    click.option("--whitelist", help="The old name of --include."),
    click.option("--exclude", help="Topics not to mirror."),
    click.option("--blacklist", help="The old name of --exclude."),
    click.option("--num.streams", "streams", metavar="N", help="The most lanes."),
    click.option(
        "--offset.commit.interval.ms",
        "commit_interval_ms",
        metavar="N",
        help="How often the group's offsets are committed on the source; default 60000.",
    ),
    click.option(
        "--abort.on.send.failure",
        "abort",
        type=click.BOOL,
        default=True,
        help="No record is ever left out here, whatever this says.",
    ),
    click.option("--message.handler", "handler", help="Refused: a Java class."),
    click.option("--message.handler.args", "handler_args", help="Refused."),
    click.option("--consumer.rebalance.listener", "--rebalance.listener", "rebalance_listener"),
    click.option("--rebalance.listener.args", "rebalance_listener_args"),
    click.option("--new.consumer", "new_consumer", is_flag=True, hidden=True),
    click.option(
        "--source",
        metavar="ALIAS",
        help="A name for the source, where mirrors with one group go into one target.",
    ),
)


def pair_options(command: F) -> F:
    """MirrorMaker 1's flags; `pair()` takes them."""
    for option in reversed(_PAIR_OPTIONS):
        command = option(command)
    return command


def pair(given: dict[str, Any]) -> tuple[Path, Path, PairOptions]:
    """Takes the flags out of a command's options; wrong usage raises UsageError."""
    from twinlog.config.mirror_maker_1 import PairOptions

    flags = {name: given.pop(name) for name in _NAMES}
    for name in ("consumer", "producer"):
        if flags[name] is None:
            raise click.UsageError(f"Missing option '--{name}.config'.")
    if flags["handler"] is not None or flags["handler_args"] is not None:
        raise click.UsageError("--message.handler: a Java class cannot run here.")
    include, include_flag = _either(flags, "include", "whitelist")
    if include is None:
        raise click.UsageError("Missing option '--include' (or '--whitelist').")
    idle = [flag for name, flag in _IDLE.items() if flags[name]]
    if not flags["abort"]:
        idle.append("--abort.on.send.failure=false (no record is ever left out)")
    options = PairOptions(
        include=include,
        include_flag=include_flag,
        exclude=_either(flags, "exclude", "blacklist")[0],
        streams=flags["streams"],
        commit_interval_ms=flags["commit_interval_ms"],
        source=flags["source"],
        idle=tuple(idle),
    )
    return flags["consumer"], flags["producer"], options


def no_pair(given: dict[str, Any]) -> None:
    """Refuses MirrorMaker 1's files beside another one."""
    for name in ("consumer", "producer", "include", "whitelist"):
        if given[name] is not None:
            raise click.UsageError("Give FILE, or the flags of MirrorMaker 1: not both.")


def _either(flags: dict[str, Any], new: str, old: str) -> tuple[str | None, str]:
    if flags[new] is not None and flags[old] is not None:
        raise click.UsageError(f"--{old} is the old name of --{new}: give one of them.")
    name = new if flags[new] is not None else old
    return flags[name], f"--{name}"


@click.command("mirror-maker")
@pair_options
@run_options
def mirror_maker(**given: Any) -> int:
    """Run what `kafka-mirror-maker.sh` ran: topics keep their names, from one cluster to another.

    A partition that was never copied starts at the offset of the group in --consumer.config, else
    as its auto.offset.reset says (`latest` by default). Then the group's offset on the source is
    the next record that is not on the target yet.

    \b
    twinlog mirror-maker --consumer.config c.properties --producer.config p.properties \\
        --whitelist 'orders|pay.*'
    """
    from twinlog.config.load import load_raw
    from twinlog.config.mirror_maker_1 import read_pair

    consumer, producer, options = pair(given)

    def read() -> MirrorConfig:
        config = load_raw(read_pair(consumer, producer, options))
        return replace(config, more_files=(str(producer),))

    return run_configuration(read, consumer, RunOptions(**given))
