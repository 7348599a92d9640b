"""`twinlog topic skip`: skip the one record at which a partition has stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, flow_option, on_file
from twinlog.cli.options.option import option
from twinlog.cli.options.steering_options import in_force
from twinlog.cli.terminal.output import Answer
from twinlog.config.values.times import in_iso

if TYPE_CHECKING:
    from twinlog.client.skipping import SkipChange


@click.command("skip", cls=Command)
@on_file
@click.argument("topic")
@option(
    "--partition",
    required=True,
    type=click.IntRange(min=0),
    metavar="P",
    help="The partition of TOPIC.",
)
@option(
    "--offset",
    required=True,
    type=click.IntRange(min=0),
    metavar="O",
    help="The source offset that `twinlog status` prints for this partition.",
)
@option(
    "--quarantine",
    is_flag=True,
    help="First write the record to mm2-twinlog-quarantine.SOURCE.internal on the target.",
)
@option("--reason", default="", metavar="TEXT", help="Written to the log and the quarantine topic.")
@option("--dry-run", is_flag=True, help="Print what would change, and write nothing.")
@flow_option
def skip(  # noqa: PLR0913 (what the command was given)
    file: Path,
    topic: str,
    partition: int,
    offset: int,
    *,
    quarantine: bool,
    reason: str,
    dry_run: bool,
    flow: str | None,
) -> Answer:
    """Skip the record of TOPIC at which copying has stopped, and copy the records after it.

    Accepted only if the partition is stopped with RECORD_TOO_LARGE, RECORD_REFUSED or CORRUPT_BATCH
    at exactly this offset. If a batch cannot be decoded, all of its records are skipped. The range
    is printed, so try --dry-run first. It cannot be undone: the record stays on the source, and the
    target never gets it.

    \b
    twinlog topic skip mm2.properties orders --partition 0 --offset 4711 --dry-run
    twinlog topic skip mm2.properties orders --partition 0 --offset 4711 --quarantine
    """
    from twinlog.client.skipping import RecordSkip
    from twinlog.model import TopicPartition

    with ChosenFlow(file, flow).open(RecordSkip, reason) as skipping:
        change = skipping.check(TopicPartition(topic, partition), offset)
        offsets: list[int] = []
        if not dry_run:
            offsets = skipping.quarantine(change) if quarantine else []
            skipping.write(change)
        name = skipping.quarantine_topic if quarantine else None
    fields = {
        "dry_run": dry_run,
        "change": change,
        "quarantine": None if name is None else {"topic": name, "offsets": offsets},
    }
    said = [_said(change, dry_run=dry_run)]
    if name is not None:
        where = "would be written" if dry_run else f"is at offset {', '.join(map(str, offsets))}"
        said.append(f"quarantine: it {where} of {name}")
    if change.before is None and not dry_run:
        said.append(in_force(file))
    return Answer(fields, said)


def _said(change: SkipChange, *, dry_run: bool) -> str:
    wanted = change.wanted
    what = f"{wanted.flow}: {wanted.topic}-{wanted.partition}: "
    what += f"{'batch' if wanted.skip.is_batch else 'record'} {wanted.skip} "
    if change.before is not None:
        said = f", {change.before.reason}" if change.before.reason else ""
        return f"{what}is already skipped, by {change.before.who}, {in_iso(wanted.at_ms)}{said}"
    return f"{what}{'would be' if dry_run else 'is'} skipped [{wanted.code}]"
