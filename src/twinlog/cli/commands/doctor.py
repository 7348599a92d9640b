"""`twinlog doctor FILE`: print why a flow is slow or has stopped, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flows
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import text
from twinlog.quantities import count, duration, plural, size

if TYPE_CHECKING:
    from twinlog.control.doctor.findings import Finding, Observation

STYLES: Final[Mapping[str, str]] = {"certain": "red", "likely": "yellow", "possible": "cyan"}


@click.command("doctor", cls=Command)
@on_flows
def doctor(chosen: ChosenFlow) -> Answer:
    """Print why a flow is slow or has stopped, the likeliest reason first.

    Each reason has a line with the number that was measured, and a line with the key to change or
    the command to run. The command queries the flow's process on this host, or its status on the
    target, and both clusters. It takes a few seconds and changes nothing. Exit code 0 if
    nothing is found, else 1.

    \b
    twinlog doctor mm2.properties
    twinlog doctor mm2.properties --flow A:B
    twinlog doctor mm2.properties --format json
    """
    from twinlog.control.doctor.findings import findings, printed
    from twinlog.control.doctor.observing import observe

    results = [(seen, findings(seen)) for seen in observe(chosen.all(), chosen.file)]
    reasons = [
        text(f"{seen.flow}: {finding.what}") for seen, findings in results for finding in findings
    ]
    return Answer(
        {"flows": starmap(printed, results)},
        (part for result in results for part in parts(*result)),
        1 if reasons else 0,
        problems=reasons,
    )


def parts(observation: Observation, findings: list[Finding]) -> Iterator[Text]:
    """Yield a line with the measurements, the notes, and two lines for each finding."""
    yield text(
        (observation.flow, "bold"), f": {observation.snapshot.state}, {numbers_line(observation)}"
    )
    for note in observation.notes:
        yield text("  ", ("note: ", "cyan"), note)
    if not findings:
        yield text("  no bottleneck found", style="green")
    for number, finding in enumerate(findings, 1):
        likelihood = finding.likelihood.name.lower()
        yield text(f"  {number}. ", (likelihood, STYLES[likelihood]), f": {finding.what}")
        yield text(f"     do: {finding.todo}")


def numbers_line(observation: Observation) -> str:
    """Return the known measurements as one line: lag, rate, lanes, host and round trips."""
    lag_text, partitions = "at its end", observation.snapshot.partitions
    if not partitions or any(partition.lag is None for partition in partitions):
        lag_text = "lag unknown"
    if observation.lagging:
        lag = duration(max(0, observation.lag_ms) / 1000)
        lag_text = f"{count(observation.lag)} records behind ({lag})"
    rate = "" if observation.rate is None else f"{size(observation.rate)}/s"
    lanes = plural(observation.snapshot.lanes, "lane") if observation.snapshot.lanes else ""
    where = f"on {observation.snapshot.where}" if observation.snapshot.where else ""
    trips = f"round trips: {observation.round_trips}" if observation.round_trips else ""
    return ", ".join(filter(None, (lag_text, rate, lanes, where, trips)))
