"""`twinlog export`: save records of one cluster to a file, before they are deleted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from twinlog.cli.options.candidates import names_of_topics
from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, is_quiet, write_line
from twinlog.encoded import encoded_fields
from twinlog.errors import UsageError
from twinlog.folders import private_opener

if TYPE_CHECKING:
    from twinlog.client.export import Export

PROGRESS_EVERY_S: Final = 5.0
COUNTS: Final = "records aborted deleted before_log behind_log=after_log uncommitted unread"


@click.command("export", cls=Command)
@on_flow
@option(
    "--topic",
    required=True,
    shell_complete=names_of_topics,
    help="The topic's name on that cluster.",
)
@option(
    "--partition",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The partition of the topic.",
)
@option(
    "--side",
    type=click.Choice(["source", "target"]),
    required=True,
    help="The cluster of the flow to read.",
)
@option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    help="The first offset; default: the log start offset.",
)
@option(
    "--to",
    "until",
    type=click.IntRange(min=0),
    help="The offset after the last one; default: the log end offset.",
)
@option(
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file to write; it must not exist.",
)
@option("--include-aborted", is_flag=True, help="Include records of aborted transactions.")
def export(  # noqa: PLR0913, PLR0917 (options of a command)
    chosen: ChosenFlow,
    topic: str,
    partition: int,
    side: str,
    first: int | None,
    until: int | None,
    path: Path,
    include_aborted: bool,
) -> Answer:
    """Write records of one cluster to a file, as one line of JSON each.

    The command only reads, and a mirror may run at the same time. Keys, values and header values
    are text if they are UTF-8, else {"base64": ...}. The exit code is 1 if some requested offsets
    are not in the log; they are printed.

    \b
    twinlog export mm2.properties --topic A.orders --partition 3 --side target --output kept.jsonl
    twinlog export mm2.properties --flow A:B --topic A.orders --side target --from 100 \\
        --to 250 --output lost-by-the-source.jsonl
    twinlog export mm2.properties --topic orders --side source --from 100 --output new.jsonl
    """
    from twinlog.client.export import Export
    from twinlog.cluster.client import prompt_client
    from twinlog.model import TopicPartition

    if first is not None and until is not None and first >= until:
        raise UsageError(f"--from {first} --to {until}: the range is empty")
    if path.exists():
        raise UsageError(f"--output: {path} already exists")
    settings = chosen.setup.source if side == "source" else chosen.setup.target
    with prompt_client(settings) as client:
        tp = TopicPartition(topic, partition)
        work = Export(client, tp, first, until, with_aborted=include_aborted)
        _write(work, path)
    return _answer(work, settings.alias, path)


def _write(work: Export, path: Path) -> None:
    """Write all records to a file, which gets the name `path` only after it is complete."""
    from twinlog.client.export import record_line

    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "x", encoding="ascii", opener=private_opener) as out:
            reported_at = time.monotonic()
            for record in work.records():
                out.write(record_line(work.tp.partition, record) + "\n")
                if time.monotonic() - reported_at > PROGRESS_EVERY_S and not is_quiet():
                    reported_at = time.monotonic()
                    done, span = work.counts.position, work.span
                    write_line(f"offset {done:,} of {span.next:,}", sys.stderr)
            out.flush()
            os.fsync(out.fileno())
        # create the file first, which fails if it exists: the rename replaces an existing file
        path.touch(0o600, exist_ok=False)
        partial.replace(path)
    except FileExistsError as error:
        raise UsageError(f"--output: {error.filename} already exists") from None
    except OSError as error:
        raise UsageError(f"--output: {error.filename or path}: {error.strerror}") from None


def _answer(work: Export, alias: str, path: Path) -> Answer:
    counts, span = work.counts, work.span
    fields = {
        "cluster": alias,
        "topic": work.tp.topic,
        "partition": work.tp.partition,
        "from": span.first,
        "to": span.next,
        **encoded_fields(counts, COUNTS),
        "output": path,
    }
    line = f"{work.tp} on {alias}, offsets {span}: {counts.records:,} records in {path}"
    remarks = [*_omission_lines(work)]
    return Answer(fields, [line, *remarks], 0 if work.is_whole else 1, problems=remarks)


def _omission_lines(work: Export) -> Iterator[str]:
    """Yield a line for each kind of requested offsets that are not in the file, with the reason."""
    counts, span = work.counts, work.span
    empty = span.next - span.first - counts.records - counts.aborted - counts.deleted
    empty -= sum(span.next - span.first for span in (counts.uncommitted, counts.unread) if span)
    if empty:
        yield f"{empty:,} offsets have no record: compacted, or transaction markers"
    if counts.aborted:
        yield (
            f"{counts.aborted:,} records of aborted transactions were left out "
            "(--include-aborted writes them)"
        )
    if counts.before_log:
        yield f"offsets {counts.before_log} do not exist: the log starts at {span.first}"
    if counts.after_log:
        yield f"offsets {counts.after_log} do not exist: the log ends at {span.next}"
    if counts.deleted:
        yield f"{counts.deleted:,} offsets were deleted on the broker during the export"
    if counts.uncommitted:
        yield (
            f"offsets {counts.uncommitted} were left out because of an open transaction "
            "(--include-aborted writes them)"
        )
    if counts.unread:
        yield (
            f"offsets {counts.unread} cannot be read: the broker returns no data; inspect that "
            "segment with kafka-dump-log.sh on the partition's leader"
        )
