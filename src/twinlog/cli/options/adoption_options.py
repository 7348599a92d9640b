"""The options to take over from a MirrorMaker 2, and to name its connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.cli.options.option import F, Section, option
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.config.flow.offset_storage import OffsetStorage
    from twinlog.config.flow.schema import FlowConfig, MirrorConfig


def adoption_options(command: F) -> F:
    """`--adopt-mm2` and `--connector`."""
    named = option(
        "--connector",
        section=Section.ADOPTION,
        metavar="NAME",
        help="With --adopt-mm2: the source connector, if Kafka Connect runs MirrorMaker 2.",
    )
    adopt = option(
        "--adopt-mm2",
        section=Section.ADOPTION,
        is_flag=True,
        help="Resume where the MirrorMaker 2 of FILE stopped, and keep its offsets up to date, so "
        "that MirrorMaker 2 can take over again. Refused while it runs.",
    )
    return adopt(named(command))


def storages(
    config: MirrorConfig, *, adopt_mm2: bool, connector: str | None
) -> Callable[[FlowConfig], OffsetStorage | None]:
    """Return where each flow's MirrorMaker 2 stores its offsets, or None if none is adopted."""
    from twinlog.config.flow.offset_storage import offset_storage

    if not adopt_mm2:
        if connector is not None:
            raise UsageError("--connector is only used with --adopt-mm2: give both, or neither")
        return lambda _: None
    return lambda flow: offset_storage(config, flow, connector)
