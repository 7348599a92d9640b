"""`twinlog doctor FILE`: print why a flow is slow or has stopped, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flow
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import text
from twinlog.quantities import count, duration, plural, size

if TYPE_CHECKING:
    from twinlog.control.doctor.findings import Finding, Observation

STYLES: Final[Mapping[str, str]] = {"certain": "red", "likely": "yellow", "possible": "cyan"}


@click.command("doctor", cls=Command)
@on_flow
def doctor(chosen: ChosenFlow) -> Answer:
    """Print why a flow is slow or has stopped, the likeliest reason first.

    Each reason has a line with the number that was measured, and a line with the key to change or
    the command to run. The command queries the flow's process on this host, or its status on the
    target, and both clusters. It measures for a few seconds and changes nothing. Exit code 0 if
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


def parts(seen: Observation, findings: list[Finding]) -> Iterator[Text]:
    """Yield the measurements, then each reason with what to do."""
    yield text((seen.flow, "bold"), f": {seen.snapshot.state}, {numbers_line(seen)}")
    for note in seen.notes:
        yield text("  ", ("note: ", "cyan"), note)
    if not findings:
        yield text("  no bottleneck found", style="green")
    for number, finding in enumerate(findings, 1):
        likelihood = finding.likelihood.name.lower()
        yield text(f"  {number}. ", (likelihood, STYLES[likelihood]), f": {finding.what}")
        yield text(f"     do: {finding.todo}")


def numbers_line(seen: Observation) -> str:
    """Return the known numbers as one line."""
    behind = "at its end"
    if (
        any(partition.lag is None for partition in seen.snapshot.partitions)
        or not seen.snapshot.partitions
    ):
        behind = "lag unknown"
    if seen.behind:
        behind = f"{count(seen.lag)} records behind ({duration(max(0, seen.lag_ms) / 1000)})"
    rate = "" if seen.rate is None else f"{size(seen.rate)}/s"
    lanes = plural(seen.snapshot.lanes, "lane") if seen.snapshot.lanes else ""
    where = f"on {seen.snapshot.where}" if seen.snapshot.where else ""
    trips = f"round trips: {seen.round_trips}" if seen.round_trips else ""
    return ", ".join(filter(None, (behind, rate, lanes, where, trips)))
