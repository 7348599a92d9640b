"""`twinlog verify FILE`: compare the records of the target with the source."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flows, topics_option
from twinlog.cli.options.option import option
from twinlog.cli.options.run_options import spark_options, take_spark_options
from twinlog.cli.terminal.output import Answer, write_line
from twinlog.cli.terminal.reading import ReadingLine
from twinlog.cli.terminal.tables import text, write_parts
from twinlog.config.values.times import NoTime, in_iso, to_milliseconds
from twinlog.errors import TwinlogError, UsageError
from twinlog.quantities import count, plural, size

if TYPE_CHECKING:
    from twinlog.control.verify.result import VerifiedFlow, VerifiedPartition
    from twinlog.mirror.verify.difference import Difference

SHOWN_EACH: Final = 20
"""Maximum number of lines for ranges of a partition, and for groups and configs of a flow."""

EXIT_NOT_COMPLETED: Final = 2
"""Exit code of a comparison that an error has ended."""

STYLES: Final = {"identical": "green", "different": "red", "not compared": "yellow"}


@click.command("verify", cls=Command)
@on_flows
@topics_option
@option(
    "--since",
    metavar="TIME",
    help="Only source records at or after this time, like 2026-01-31T12:00Z.",
)
@option("--until", metavar="TIME", help="Only source records before this time.")
@option("--deep", is_flag=True, help="Decode every record, even if its batches are byte-equal.")
@option(
    "--no-record",
    "is_unrecorded",
    is_flag=True,
    help="Do not store the result on the target, where the page reads it.",
)
@spark_options
def verify(
    chosen: ChosenFlow,
    topics: str | None,
    since: str | None,
    until: str | None,
    deep: bool,
    **others: Any,
) -> Answer:
    """Compare the target with the source, record by record and in order.

    Both logs of every partition are read. Their records are paired by the offset map, and key,
    value, headers and timestamp are compared. The command prints the exact ranges that are missing,
    extra, different, reordered, or shifted (at other offsets than in the map). It also prints
    groups that would skip records. Gaps that are explained by compaction, retention, aborted
    transactions, skipped or accepted records are counted, but are not differences. Transformed
    topics are compared with the result of applying FILE's transforms to the source's records. Topic
    configs are compared in the same way as by `twinlog diff`. The command only reads, except that
    it stores the result in the target's state topic, for the page and REST. With --master it runs
    as a Spark job with a task for each section of a partition, otherwise in this process. Exit code
    0: identical; 1: different; 2: the comparison could not be completed.

    \b
    twinlog verify mm2.properties
    twinlog verify mm2.properties --flow A:B --topics 'orders.*' --since 2026-01-31T00:00:00Z
    twinlog verify mm2.properties --deep --format json > report.json
    twinlog verify mm2.properties --master 'local[*]'
    """
    from twinlog.control.compare import matching
    from twinlog.control.verify.result import ResultWriter, VerifyRequest, digest, worst
    from twinlog.control.verify.verification import VerifyScope, verify_flows
    from twinlog.control.verify.workers import workers

    spark = take_spark_options(others)
    since_ms, until_ms = _times(since, until)
    scope = VerifyScope(
        matches=matching(topics, "--topics"),
        since_ms=since_ms,
        until_ms=until_ms,
        is_deep=deep,
    )
    config = chosen.all()
    verified: list[VerifiedFlow] = []
    began_ms = int(time.time() * 1000)
    asked = VerifyRequest(began_ms=began_ms, topics=topics, since=since, until=until, deep=deep)
    records = ResultWriter(config.flows, asked, is_off=others.pop("is_unrecorded"))
    try:
        with ReadingLine() as reading, workers(spark) as tasks:
            for result in verify_flows(config, scope, tasks, reading.step):
                reading.clear()
                verified.append(result)
                for line in records.add(result):
                    write_line(line, sys.stderr)
                # print nothing about a flow that has none of --topics: it would look identical
                if topics is None or result.partitions:
                    wrong = (text(f"{result.flow}: {line}") for line in problems(result))
                    write_parts(parts(result), wrong)
    except TwinlogError as error:
        error.exit_code = EXIT_NOT_COMPLETED  # not 1, which means that records differ
        raise
    if topics is not None and not any(result.partitions for result in verified):
        raise UsageError(f"--topics: no flow mirrors a topic that matches {topics}")
    answer = worst([result.answer for result in verified])
    fields = {
        "answer": answer,
        "began": in_iso(began_ms),
        "topics": topics,
        "since": since,
        "until": until,
        "deep": deep,
        "flows": verified,
    }
    last = () if len(verified) == 1 else (answer.value,)
    return Answer(fields, last, answer.exit_code, problems=last, seal=digest)


def _times(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """Return both times in milliseconds. Raises UsageError if --until is not after --since."""
    since_ms, until_ms = _time(since, "--since"), _time(until, "--until")
    if since_ms is not None and until_ms is not None and until_ms <= since_ms:
        raise UsageError(f"--since {since} --until {until}: the range is empty")
    return since_ms, until_ms


def _time(value: str | None, where: str) -> int | None:
    try:
        return None if value is None else to_milliseconds(value)
    except NoTime as problem:
        raise UsageError(f"{where}: {problem}") from None


def parts(verified: VerifiedFlow) -> Iterator[Text]:
    """Yield a flow's answer, what was compared, the explained gaps, the notes, and the problems."""
    yield text(
        (verified.flow, "bold"), ": ", (verified.answer.value, STYLES[verified.answer.value])
    )
    yield text(f"  {compared(verified)}")
    for line in explained_gaps(verified):
        yield text(f"  {line}", style="dim")
    for note in verified.notes:
        yield text("  ", ("note: ", "cyan"), note)
    for line in problems(verified):
        yield text(f"  {line}", style="red")


def compared(verified: VerifiedFlow) -> str:
    """Return one line with the numbers of compared partitions, bytes, records and groups."""
    partitions = [each.compared for each in verified.partitions]
    equal = sum(each.equal for each in partitions)
    as_bytes = sum(each.by_bytes for each in partitions)
    total = sum(each.bytes for each in partitions)
    return (
        f"{plural(len(partitions), 'partition')}, {size(total)} of the target: {count(equal)} "
        f"records are equal and at the offsets in the map, {count(as_bytes)} as whole batches; "
        f"{plural(len({each.group for each in verified.groups}), 'group')}"
    )


def explained_gaps(verified: VerifiedFlow) -> Iterator[str]:
    """Yield lines about differences that are no errors: explained gaps, records that the mirror
    will still copy, and offsets of groups that are too low or not set on the target.
    """
    from twinlog.mirror.verify.difference import GapCause

    for gap in GapCause:
        number = sum(each.compared.gaps[gap] for each in verified.partitions)
        if number:
            yield f"{count(number)} {gap.value}"
    waiting = [each for each in verified.partitions if each.compared.pending is not None]
    if waiting and verified.is_led:
        names = ", ".join(f"{each.source} {each.compared.pending}" for each in waiting[:SHOWN_EACH])
        yield f"not copied yet by the running mirror: {names}"
    late = [each for each in verified.groups if each.standing.value in ("behind", "absent")]
    if late:
        yield f"{plural(len(late), 'offset')} of groups: before their translated offset, or not set"


def problems(verified: VerifiedFlow) -> Iterator[str]:
    """Yield a line for each difference, and for each partition that was not compared."""
    for partition in verified.partitions:
        if partition.why_not:
            yield f"{partition.source}: not compared: {partition.why_not}"
        for difference in partition.compared.differences[:SHOWN_EACH]:
            yield _difference(partition, difference)
        rest = len(partition.compared.differences) - SHOWN_EACH + partition.compared.unlisted_count
        if rest > 0:
            yield f"{partition.source}: and {count(rest)} more ranges (--format json has them)"
    for config in verified.configs[:SHOWN_EACH]:
        yield (
            f"config {config.detail} of {config.name} is {config.source}, and {config.target} on "
            "the target"
        )
    if len(verified.configs) > SHOWN_EACH:
        yield f"and {count(len(verified.configs) - SHOWN_EACH)} more configs (twinlog diff has all)"
    wrong = [group for group in verified.groups if group.is_wrong]
    for group in wrong[:SHOWN_EACH]:
        yield (
            f"group {group.group} is at {group.target_committed} in {group.target}, but its "
            f"translated offset is {group.translated_offset} ({group.source} {group.committed}): "
            "it would skip records"
        )
    if len(wrong) > SHOWN_EACH:
        yield f"and {count(len(wrong) - SHOWN_EACH)} more (--format json has all)"


def _difference(each: VerifiedPartition, difference: Difference) -> str:
    sides = []
    if difference.source is not None:
        sides.append(f"{each.source} {difference.source}")
    if difference.target is not None:
        sides.append(f"{each.target} {difference.target}")
    why = f": {difference.why}" if difference.why else ""
    return (
        f"{difference.kind.value}: {' / '.join(sides)}, {plural(difference.records, 'record')}{why}"
    )
