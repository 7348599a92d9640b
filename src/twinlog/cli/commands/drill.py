"""`twinlog drill`: rehearse a switchover and a failover on scratch topics and groups."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from twinlog.cli.commands.cutover import (
    Evidence,
    cutover_options,
    is_confirmed,
    require_an_answer,
)
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flow, topic_pattern
from twinlog.cli.options.option import option, yes_option
from twinlog.cli.options.run_options import secrets_folder
from twinlog.cli.terminal.output import Answer
from twinlog.errors import UsageError

PARTS = ("switchover", "failover")
ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupting() -> Iterator[None]:
    """Within the block, raise KeyboardInterrupt at SIGTERM and SIGHUP, so that the drill is cleaned
    up before the process ends. Signals that are ignored, as SIGHUP under nohup, remain ignored.
    """
    ends = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.group("drill", cls=CommandGroup)
def drill() -> None:
    """Rehearse a switchover and a failover of a flow, with topics, groups and clients of its own.

    The flow itself is not changed. The drill creates topics like those of the flow, runs its own
    mirror, and produces and consumes while clients are moved. It measures lost records and how long
    producers are interrupted, and then removes everything that it created.

    \b
    twinlog drill run mm2.properties --flow A:B --report ./drills
    twinlog drill clean mm2.properties --flow A:B --dry-run
    """


@drill.command("run")
@cutover_options
@option(
    "--most",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    metavar="TOPICS",
    help="Maximum number of topics to imitate: the first of the flow's topics by name.",
)
@option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    help="Only this rehearsal; default: both.",
)
@option(
    "--seconds",
    type=click.FloatRange(min=1, max=3600),
    default=10.0,
    show_default=True,
    help="How long clients run before they are moved.",
)
@option(
    "--rate",
    type=click.FloatRange(min=1, max=20_000),
    default=200.0,
    show_default=True,
    metavar="RECORDS",
    help="Records per second of the drill's producer.",
)
@option(
    "--record-bytes",
    type=click.IntRange(1, 900_000),
    default=200,
    show_default=True,
    metavar="BYTES",
    help="Size of a record's value.",
)
@option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for the report: JSON, HTML and their SHA-256.",
)
@option(
    "--sign",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="With --report: sign the checksums with this Ed25519 key (PEM).",
)
@yes_option
@option("--dry-run", is_flag=True, help="Print what would be rehearsed, and change nothing.")
def run(  # noqa: PLR0913, PLR0917 (the options)
    chosen: ChosenFlow,
    topics: str | None,
    most: int,
    parts: tuple[str, ...],
    seconds: float,
    rate: float,
    record_bytes: int,
    report: Path | None,
    sign: Path | None,
    yes: bool,
    dry_run: bool,
) -> Answer:
    """Rehearse a switchover and a failover; exit code 0 if every check passed, else 1.

    The drill needs the rights of the mirror, and the rights to create and delete topics and groups
    whose names begin with twinlog-drill- on both clusters.

    \b
    twinlog drill run mm2.properties --flow A:B --dry-run
    twinlog drill run mm2.properties --flow A:B --yes --report ./drills --sign drill.pem
    twinlog drill run mm2.properties --part failover --seconds 60 --rate 1000
    """
    from twinlog.config.config_file import read_raw
    from twinlog.config.load import load_raw
    from twinlog.control.drill.cleaning import Part
    from twinlog.control.drill.drill import Drill, signing_key, write_report
    from twinlog.control.drill.rehearsal import Load

    require_an_answer(yes=yes, dry_run=dry_run)
    if sign is not None and report is None:
        raise UsageError("--sign is only used with --report: give both, or neither")
    key = None if sign is None else signing_key(sign)
    pattern = topic_pattern(topics)
    shown = Evidence(version=1)
    raw = read_raw(chosen.file, secrets_folder())
    work = Drill(raw, chosen.of(load_raw(raw)), shown.print_line)
    load = Load(seconds=seconds, records_per_s=rate, record_bytes=record_bytes)
    plan = work.plan(pattern, most, load, [Part(part) for part in parts or PARTS])
    what = "The drill will create topics on both clusters."
    if end := shown.ends_at(plan, plan.flow, what, dry_run=dry_run, yes=yes):
        return end
    with interrupting():
        result = work.run(plan)
    for outcome in result.outcomes:
        shown.print_line(
            f"{outcome.part}: interrupted for {outcome.interruption_s:.1f} s, {outcome.lost} of "
            f"{outcome.written} records lost ({outcome.lost_s:.1f} s), {outcome.read_again} read "
            "twice"
        )
    shown.print_line("GREEN" if result.is_green else "RED")
    if report is not None:
        for path in write_report(result, report, key):
            shown.print_line(f"report: {path}")
    return shown.answer({"dry_run": False, "result": result}, 0 if result.is_green else 1)


@drill.command("clean")
@on_flow
@yes_option
@option("--dry-run", is_flag=True, help="Print what drills have left, and change nothing.")
def clean(chosen: ChosenFlow, yes: bool, dry_run: bool) -> Answer:
    """Remove what killed drills have left on both clusters.

    Nothing is removed while a drill's group has members. Members of a killed drill expire within a
    minute.

    \b
    twinlog drill clean mm2.properties --flow A:B --dry-run
    twinlog drill clean mm2.properties --flow A:B --yes
    """
    from twinlog.cluster.client import prompt_client
    from twinlog.control.drill.cleaning import clean as clean_up
    from twinlog.control.drill.cleaning import leftovers
    from twinlog.quantities import first_few

    require_an_answer(yes=yes, dry_run=dry_run)
    shown = Evidence(version=1)
    setup = chosen.setup
    with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
        remains = [leftovers(source), leftovers(target)]
        for line in (line for left in remains for line in left.lines()):
            shown.print_line(line)
        running = sorted({mark for left in remains for mark in left.running})
        if running:
            shown.print_line(
                f"a drill is running: {first_few(running)}. If it was killed, its groups have "
                "members for up to a minute; run this command again after that"
            )
        if not any(remains):
            shown.print_line("no drill has left anything")
        elif not dry_run:
            what = "Everything listed above will be deleted."
            if running or not (yes or is_confirmed(setup.name, what)):
                return shown.nothing_changed()
            # only the drills listed above, because another one may have begun since
            marks = sorted({mark for left in remains for mark in left.marks})
            cleaned = [
                clean_up(client, mark, shown.print_line)
                for mark in marks
                for client in (source, target)
            ]
            if not all(cleaned):
                return Answer({}, exit_code=1)
            shown.print_line("everything is removed")
    return shown.answer({"dry_run": dry_run, "leftovers": [[*left.lines()] for left in remains]})
