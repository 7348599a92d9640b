"""The options FILE and `--flow`, which select the flow that a command acts on, and `--topics`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from twinlog.cli.options.candidates import flows, topics
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.option import file_argument, option, options
from twinlog.cli.options.run_options import secrets_folder, secrets_option
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.config.flow.schema import FlowConfig, MirrorConfig
    from twinlog.config.regex.patterns import NamePattern
    from twinlog.control.flow.flow_setup import FlowSetup


class Closeable(Protocol):
    def close(self) -> None: ...


WorkT = TypeVar("WorkT", bound=Closeable)


class ChosenFlow:
    """The flow of FILE that a command acts on. FILE is read when a property first needs it, so that
    the command can check its other options before.
    """

    def __init__(self, file: Path, name: str | None) -> None:
        self.file, self._name = file, name

    @cached_property
    def config(self) -> FlowConfig:
        return self.of(load_file(self.file))

    def of(self, config: MirrorConfig) -> FlowConfig:
        """Return the flow that `--flow` names, or the only flow of the configuration."""
        return one_flow(config.flows, self._name)

    @cached_property
    def setup(self) -> FlowSetup:
        from twinlog.control.flow.wiring import flow_setup

        return flow_setup(self.config)

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def open(self, make: Callable[..., WorkT], *more: Any) -> AbstractContextManager[WorkT]:
        """Return a context manager with the result of `make`, which is called with the flow and the
        settings of both clusters. The result is closed at the end of the `with` block.
        """
        return closing(make(self.config, self.setup.source, self.setup.target, *more))

    def all(self) -> MirrorConfig:
        """Return the configuration with only the flow that `--flow` names, or else all flows."""
        return with_flow(load_file(self.file), self._name)


_flow: Final = partial(option, "--flow", metavar="A:B", shell_complete=flows)
flow_option = _flow(help="The flow of FILE, as A:B or 'A->B'; not needed if FILE has only one.")
only_flow_option = _flow(help="Only this flow, as A:B or 'A->B'; default: all.")
topics_option = option(
    "--topics",
    metavar="REGEX",
    shell_complete=topics,
    help="Only source topics whose whole name matches; default: all.",
)
on_file = options(file_argument(), secrets_option, format_option)


def on_flow(command: Any, which: Callable[[Any], Any] = flow_option) -> Any:
    """Add FILE, --flow, --secrets and --format. `command` gets the first two as a ChosenFlow."""

    @wraps(command)
    def with_chosen(file: Path, flow: str | None, **arguments: Any) -> Any:
        return command(chosen=ChosenFlow(file, flow), **arguments)

    return on_file(which(with_chosen))


on_flows = partial(on_flow, which=only_flow_option)
"""Add the options of `on_flow` to a command that acts on all flows of FILE if --flow is missing."""


def names_of(topics: str) -> list[str]:
    """Return the entries of --topics, a list with commas. Raises UsageError if it is empty."""
    names = [name.strip() for name in topics.split(",") if name.strip()]
    if not names:
        raise UsageError("--topics: name a topic, or a regular expression")
    return names


def topic_pattern(topics: str | None) -> NamePattern | None:
    from twinlog.client.steering import name_pattern

    return None if topics is None else name_pattern(names_of(topics))


def load_file(path: Path) -> MirrorConfig:
    """Load one configuration file, with all of its flows."""
    from twinlog.config.load import load

    return load(path, secrets=secrets_folder())


def with_flow(config: MirrorConfig, name: str | None) -> MirrorConfig:
    """Return the configuration with only the flow `name`, or with all flows if it is None."""
    return config if name is None else replace(config, flows=(one_flow(config.flows, name),))


def one_flow(flows: Sequence[FlowConfig], name: str | None) -> FlowConfig:
    """Return the flow `name`, or the only one if it is None. Raises UsageError if there is none."""
    names = [str(flow.flow) for flow in flows]
    if name is None and len(flows) == 1:
        return flows[0]
    if name is None:
        raise UsageError(f"--flow: name one of the {len(flows)} flows: {', '.join(names)}")
    wanted = name.replace(" ", "")
    chosen = next((flow for flow in flows if wanted in flow.flow.spellings), None)
    if chosen is None:
        raise UsageError(
            f"--flow: {wanted} is not a flow of the file, which has {', '.join(names)}"
        )
    return chosen
