"""`twinlog transform try`: show what transforms do with the last records of a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType

from twinlog.cli.options.candidates import names_of_topics
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import plain_table, row, text
from twinlog.errors import UsageError
from twinlog.extras import require_extra
from twinlog.quantities import plural

if TYPE_CHECKING:
    from twinlog.config.flow.schema import FlowConfig
    from twinlog.transforms.trial import TriedRecord

MOST_RECORDS: Final = 100
"""Maximum of --limit. If a transform fails, each record is tried in a Spark job of its own."""
MOST_CHARACTERS: Final = 1_000
"""Number of characters after which values are cut. --format json has the whole values."""


@click.group("transform", cls=CommandGroup)
def transform() -> None:
    """Try the transforms of a flow.

    docs/transforms.md describes how a flow runs them, and how to run them in a
    stream of your own.

    \b
    twinlog transform try mm2.properties --topic orders
    """


@transform.command("try")
@on_flow
@option(
    "--topic",
    required=True,
    shell_complete=names_of_topics,
    help="The topic's name on the source.",
)
@option(
    "--limit",
    type=click.IntRange(min=1, max=MOST_RECORDS),
    default=20,
    show_default=True,
    help="Number of records to read: the newest ones of all partitions.",
)
def try_transforms(chosen: ChosenFlow, topic: str, limit: int) -> Answer:
    """Print the last records of a topic before and after the transforms of FILE.

    The records are read from the source with the credentials of FILE. Nothing is written anywhere.
    The functions run in processes of this user. Exit code 1 if a transform fails for a record.

    \b
    twinlog transform try mm2.properties --topic orders
    twinlog transform try mm2.properties --flow A:B --topic orders --limit 5
    twinlog transform try mm2.properties --topic orders --format json
    """
    names = _names(chosen.config, topic)
    require_extra("pyarrow", "records", "twinlog transform try")
    from twinlog.control.flow.wiring import cluster_settings
    from twinlog.transforms.trial import TrialOutcome, try_flow

    flow = chosen.config
    # with `cluster_settings`, errors name the cluster and the key of the file
    source = cluster_settings(flow.flow.source, flow.clients.source_consumer, str(flow.flow))
    tried = try_flow(flow, source, topic, limit)
    failures = [record for record in tried if record.outcome is TrialOutcome.FAILED]
    cluster = chosen.config.flow.source
    fields = {"cluster": cluster, "topic": topic, "transforms": names, "records": tried}
    head = f"{topic} on {cluster}, through {', '.join(names)}: {_summary(tried)}"
    if failures:
        head += f"; {_on_error(flow)}"
    exit_code = 1 if failures else 0
    return Answer(
        fields, _record_rows(head, topic, tried), exit_code, problems=_lines(topic, failures)
    )


def _names(flow: FlowConfig, topic: str) -> list[str]:
    """Return the names of the topic's transforms. Raises UsageError if the topic has none."""
    if not flow.transforms.entries:
        raise UsageError(f"{flow.flow} has no transforms: set twinlog.transforms in FILE")
    names = [transform.name for transform in flow.transforms.of_topic(topic)]
    if not names:
        known = "; ".join(
            f"{transform.name}: {transform.topics}" for transform in flow.transforms.entries
        )
        raise UsageError(f"--topic: no transform is for {topic}; the topics are {known}")
    return names


def _summary(tried: Sequence[TriedRecord]) -> str:
    counts = Counter(record.outcome for record in tried)
    parts = [f"{number} {outcome}" for outcome, number in sorted(counts.items())]
    return ": ".join(filter(None, (plural(len(tried), "record"), ", ".join(parts))))


def _on_error(flow: FlowConfig) -> str:
    """Return a text that says what a mirror does with a record for which a transform fails."""
    from twinlog.config.flow.transforms import OnError
    from twinlog.mirror.names.naming import dead_letter_topic

    match flow.transforms.on_error:
        case OnError.STOP:
            return "a mirror stops at a failed record"
        case OnError.SKIP:
            return "a mirror leaves out failed records"
        case OnError.QUARANTINE:
            return (
                f"a mirror writes failed records to {dead_letter_topic(flow.flow, flow.transforms)}"
            )


def _record_rows(head: str, topic: str, tried: Sequence[TriedRecord]) -> Iterator[RenderableType]:
    """Yield `head`, and a table with a row for each changed column of a record. A record without
    changed columns has one row with its outcome.
    """
    yield text((head, "bold"))
    if not tried:
        return
    table = plain_table("record", "", numbers=())
    for name in ("before", "after"):
        table.add_column(name, overflow="fold")
    for row_of in tried:
        record = f"{topic}-{row_of.partition}:{row_of.offset}"
        for column, before, after in row_of.changes:
            row(table, record, column, _cell(before), _cell(after))
            record = ""
        if record:
            row(table, record, row_of.outcome, _cell(row_of.before["value"]), row_of.error)
    yield table


def _lines(topic: str, failures: Sequence[TriedRecord]) -> Iterator[str]:
    for failure in failures:
        yield f"{topic}-{failure.partition} offset {failure.offset}: {failure.error}"


def _cell(value: Any) -> str:
    shown = "NULL" if value is None else value if isinstance(value, str) else str(value)
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]}..."
