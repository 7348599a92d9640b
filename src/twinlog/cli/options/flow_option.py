"""`--flow`: the flow of a file that a command acts on; `--topics`: the topics of that flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinlog.cli.options.candidates import flows, topics
from twinlog.cli.options.option import option
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.config.flow.schema import FlowConfig


def flow_option(command: Any) -> Any:
    return option(
        "--flow",
        metavar="'A->B'",
        shell_complete=flows,
        help="The flow of FILE; not needed if FILE has only one.",
    )(command)


def topics_option(command: Any) -> Any:
    return option(
        "--topics",
        metavar="REGEX",
        shell_complete=topics,
        help="Only source topics whose whole name matches; default: all.",
    )(command)


def one_flow(flows: Sequence[FlowConfig], name: str | None) -> FlowConfig:
    """Return the flow of that name, or the only one."""
    names = [str(one.flow) for one in flows]
    if name is None and len(flows) == 1:
        return flows[0]
    if name is None:
        raise UsageError(f"--flow: the file has {len(flows)} flows: {', '.join(names)}")
    wanted = name.replace(" ", "")
    if wanted not in names:
        raise UsageError(
            f"--flow: {wanted} is not a flow of the file, which has {', '.join(names)}"
        )
    return flows[names.index(wanted)]
