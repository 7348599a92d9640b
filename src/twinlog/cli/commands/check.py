"""`twinlog check FILE`: print what would be mirrored, and problems that would prevent that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import to_builtins
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.mirror_maker_1_options import files_or_pair, pair_options
from twinlog.cli.options.option import file_argument, option
from twinlog.cli.options.run_options import (
    SpreadClusters,
    adoption_options,
    configuration_options,
    leave_secrets_unread,
    storages,
    timeout_option,
)
from twinlog.cli.terminal.output import Answer, error_object, is_for_programs, write_step
from twinlog.cli.terminal.tables import (
    Cell,
    Column,
    fitted_table,
    indented,
    multiline_text,
    row,
    shown_width,
    text,
)
from twinlog.config.advice.explanation import ExplainedKey, explain, without_meaning
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.key_table import Support
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError
from twinlog.extras import require_extra
from twinlog.quantities import plural, size

if TYPE_CHECKING:
    from twinlog.control.check.report import CheckReport, FlowReport, LaneMemory, TopicReport


# Shows a configuration for `twinlog check`: its errors by line, its warnings, and with `--explain`
# each key with its line and its meaning.

KEY_WIDTH: Final = 36
"""Maximum width of a key. Longer keys are broken into several lines, to leave room for messages."""


def names_lines(error: ConfigError) -> bool:
    """Return True if each error is about a key of a file, not about a whole file or an option."""
    return all(
        line.file is not None and line.key is not None and not line.file.startswith("--")
        for line in error.each
    )


def error_parts(error: ConfigError) -> Iterator[RenderableType]:
    """Yield the verdict, and a table with the errors and then the warnings."""
    errors = error.each
    problems = [plural(len(errors), "error")]
    if error.warnings:
        problems.append(plural(len(error.warnings), "warning"))
    file = errors[0].file
    found = ", ".join(problems)
    yield text(("NOT READY", "bold red"), f": {file}: {found}; no cluster was queried")
    yield _keys_table(errors, error.warnings, file)


def warning_parts(warnings: Sequence[ConfigWarning]) -> Iterator[RenderableType]:
    """Yield a table with a row for each warning."""
    if warnings:
        yield _keys_table((), warnings, warnings[0].file)


def _keys_table(
    errors: Iterable[ConfigError], warnings: Iterable[ConfigWarning], file: str | None
) -> Table:
    """Return a table with a row for each error and warning. Those about `file` are shown with their
    line only.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(min_width=len("warning"), no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    table.add_column(overflow="fold", max_width=KEY_WIDTH)
    table.add_column(overflow="fold")
    for each in errors:
        # show the code only if it is more specific than that of all configuration errors
        code = "" if each.code == ConfigError.code else f" [{each.code}]"
        where = _location(each.file, each.line, file)
        row(table, text("error", style="red"), where, _key(each.key or ""), f"{each.what}{code}")
    for warning in sorted(warnings, key=lambda warning: (warning.file, warning.line or 0)):
        where = _location(warning.file, warning.line, file)
        message = f"{warning.message} [{warning.code}]"
        row(table, text("warning", style="yellow"), where, _key(warning.key), message)
    return table


def _key(key: str) -> Text:
    """Return a key as text. A long key is broken after dots."""
    broken = [""]
    for part in re.findall(r"[^.]*\.|[^.]+$", text(key).plain):
        if broken[-1] and len(broken[-1] + part) > KEY_WIDTH:
            broken.append("")
        broken[-1] += part
    return multiline_text("\n".join(broken))


def _location(file: str | None, line: int | None, usual: str | None) -> str:
    number = "-" if line is None else str(line)
    return number if file == usual else f"{file}:{number}"


def explanation_json(config: MirrorConfig) -> dict[str, Any]:
    """Return fields of the JSON output: every key of every flow, and lines without effect."""
    return {
        "warnings": [str(warning) for warning in config.warnings],
        "explained": [asdict(explain(flow)) for flow in config.flows],
        "without_meaning": [asdict(line) for line in without_meaning(config)],
    }


def explanation_parts(config: MirrorConfig, *, with_defaults: bool) -> Iterator[RenderableType]:
    """Yield for each flow the keys that the file sets, and the differences from MirrorMaker 2."""
    for flow in map(explain, config.flows):
        yield text((flow.flow, "bold"), ": set in FILE")
        yield from _keys([key for key in flow.keys if key.file], config)
        if with_defaults:
            yield text((flow.flow, "bold"), ": defaults")
            acting = [key for key in flow.keys if key.support is not Support.NO_MEANING]
            yield from _keys([key for key in acting if not key.file], config)
        if flow.differences:
            yield text((flow.flow, "bold"), ": differences from MirrorMaker 2")
            yield from map(indented, flow.differences)
        yield text()
    idle = without_meaning(config)
    if idle:
        yield text("accepted, without effect", style="bold")
        yield from _keys(idle, config)
        yield text()


def _keys(keys: Iterable[ExplainedKey], config: MirrorConfig) -> Iterator[RenderableType]:
    for key in keys:
        mark = "" if key.support is Support.ACTS else f"[{key.support}] "
        line = text(f"{key.key} = ")
        line.append_text(multiline_text(key.value))
        line.append_text(text(f"  ({_origin(key, config)})", style="dim"))
        line.overflow = "fold"
        yield Padding(line, (0, 0, 0, 2), expand=False)
        yield indented(mark + key.meaning, blanks=6)


def _origin(key: ExplainedKey, config: MirrorConfig) -> str:
    if not key.file:
        return "default"
    if key.line is None:
        return key.file
    # if there is only one file, the user knows its name
    return f"{key.file}:{key.line}" if config.more_files else f"line {key.line}"


TOPICS_SHOWN: Final = 50
SAME_CODE_SHOWN: Final = 10
COLUMNS: Final = (
    Column("topic", "left", 0),
    Column("parts", "right", 0),
    Column("remote topic", "left", 0),
    Column("which", "left", 0),
    Column("begins at", "left", 0),
    Column("configs", "left", 1),
)
NAME_WIDTH: Final = 80
"""Maximum width of a topic name, because a name of 249 characters would widen all rows. --format
json has whole names.
"""


@click.command("check", cls=SpreadClusters)
@file_argument("files", metavar="FILE...", nargs=-1)
@configuration_options
@pair_options
@option(
    "--probe",
    is_flag=True,
    help="Test the targets' capabilities with a scratch topic, which is created once and kept.",
)
@timeout_option
@option(
    "--explain",
    is_flag=True,
    help="Only explain the keys that FILE sets, and the differences from MirrorMaker 2.",
)
@option(
    "--defaults",
    is_flag=True,
    help="With --explain: also the keys that FILE leaves at their defaults.",
)
@adoption_options
@format_option
def check(
    files: tuple[Path, ...],
    clusters: str | None,
    probe: bool,
    explain: bool,
    adopt_mm2: bool,
    connector: str | None,
    **arguments: Any,
) -> Answer:
    """Parse FILE, connect to every cluster, and print what would be mirrored and what is wrong.

    FILE is an mm2.properties file or a KafkaMirrorMaker2 resource. Without FILE, the flags of
    MirrorMaker 1 are required.

    The command only reads, except that --probe creates a scratch topic. With --explain it does not
    connect to any cluster. If FILE has transforms, their functions are imported and run on an empty
    DataFrame.

    \b
    twinlog check mm2.properties
    twinlog check mm2.properties --probe
    twinlog check mirror.yaml --secrets ./secrets --explain
    """
    from twinlog.control.check.mirror_check import check as check_config

    defaults, timeout_s = arguments.pop("defaults"), arguments.pop("timeout_s")
    if explain:
        leave_secrets_unread()
    try:
        config = files_or_pair(files, clusters, arguments)()
        if explain:
            warnings = [*warning_parts(config.warnings)]
            text = chain(explanation_parts(config, with_defaults=defaults), warnings)
            return Answer(partial(explanation_json, config), text, problems=warnings)
        adopts = storages(config, adopt_mm2=adopt_mm2, connector=connector)
        report = check_config(
            config, with_probe=probe, gives_up_s=timeout_s, adopts=adopts, say=write_step
        )
        report = with_transforms(config, report)
    except ConfigError as error:
        if is_for_programs() or not names_lines(error):
            raise
        lines = [*error_parts(error)]
        return Answer({}, lines, error.exit_code, problems=lines)
    return Answer(
        lambda: {**to_builtins(report), **explanation_json(config)},
        _report_parts(report, config),
        1 if report.problems else 0,
        problems=_what_is_wrong(report, config),
        errors=(error_object(problem.code, problem.message) for problem in report.problems),
    )


def with_transforms(config: MirrorConfig, report: CheckReport) -> CheckReport:
    """Return the report with each flow's transforms, and a problem for each transform that cannot
    run. Spark is loaded only if the configuration has transforms.
    """
    from twinlog.config.advice.transforms import unrun_transforms
    from twinlog.control.check.report import Problem
    from twinlog.mirror.names.naming import dead_letter_topic

    flows = [flow for flow in config.flows if flow.transforms.entries]
    if flows:
        require_extra("pyspark", "records", "the check of transforms")
        from twinlog.transforms.loading import check_flows

        reports = {flow.flow: flow for flow in report.flows}
        for flow, transform, checked in check_flows(flows):
            to = reports[str(flow.flow)]
            if isinstance(checked, ConfigError):
                to.problems.append(Problem.of(checked))
            else:
                to.transforms.append(f"{transform.name} of {transform.topics}: {checked}")
        for flow in flows:
            if topic := dead_letter_topic(flow.flow, flow.transforms):
                what = f"records on which a transform fails go to {topic}"
                reports[str(flow.flow)].transforms.append(what)
    return replace(report, refused=tuple(map(Problem.of, unrun_transforms(config))))


def _report_parts(report: CheckReport, config: MirrorConfig) -> Iterator[RenderableType]:
    """Yield the verdict, the clusters, each flow's plan and problems, and the warnings."""
    from twinlog.config.advice.explanation import explain

    totals = [
        *([plural(len(report.problems), "problem")] if report.problems else []),
        *([plural(len(config.warnings), "warning")] if config.warnings else []),
    ]
    verdict, style = ("NOT READY", "bold red") if report.problems else ("READY", "bold green")
    yield text((verdict, style), ": " if totals else "", ", ".join(totals))
    yield from _first_problems(report)
    for cluster in report.clusters:
        if cluster.problem is not None:
            yield _problem("not reached", str(cluster.problem))
        else:
            brokers = plural(cluster.brokers, "broker")
            where = f"{cluster.addresses}, {brokers}, id {cluster.cluster_id}"
            yield text(f"cluster {cluster.alias}: {where}")
    was_queried = not any(cluster.problem for cluster in report.clusters)
    for flow in report.flows:
        yield from _flow_parts(flow, was_queried=was_queried)
    if config.warnings:
        yield text()
        yield from warning_parts(config.warnings)
    differences = sum(len(explain(flow).differences) for flow in config.flows)
    yield text()
    yield text(f"{plural(differences, 'difference')} from MirrorMaker 2, and every key: --explain")


def _what_is_wrong(report: CheckReport, config: MirrorConfig) -> Iterator[RenderableType]:
    """Yield the warnings, and a line for each problem with its cluster or flow, for -q."""
    yield from warning_parts(config.warnings)
    yield from _first_problems(report)
    for cluster in report.clusters:
        if cluster.problem is not None:
            yield _problem("not reached", str(cluster.problem))
    for flow in report.flows:
        for line in _problem_lines(flow):
            yield _problem(flow.flow, line)


def _first_problems(report: CheckReport) -> Iterator[RenderableType]:
    """Yield a line for each problem that belongs to no cluster and no flow."""
    for transform in report.refused:
        yield _problem("refused by mirror", str(transform))
    for certificate in report.certificates:
        yield _problem("certificate", str(certificate))


def _flow_parts(flow: FlowReport, *, was_queried: bool) -> Iterator[RenderableType]:
    nothing = "no topic to mirror" if was_queried else "topics unknown"
    what = f"{plural(len(flow.topics), 'topic')} with {plural(flow.partitions, 'partition')}"
    yield text()
    yield text((flow.flow, "bold"), ": ", what if flow.topics else nothing)
    if flow.topics:
        yield _table(flow.topics)
    if len(flow.topics) > TOPICS_SHOWN:
        yield text(f"  and {len(flow.topics) - TOPICS_SHOWN} more (--format json has all)")
    if flow.guarantee is not None:
        missing = ", ".join(flow.missing_capabilities)
        yield text(f"  guarantee: {flow.guarantee}" + (f" (missing: {missing})" if missing else ""))
    if flow.memory is not None:
        yield text(f"  memory: {_memory(flow.memory)}")
    for transform in flow.transforms:
        yield text("  ", ("transform ", "cyan"), transform)
    for change in flow.changes:
        yield text("  ", ("would change: ", "cyan"), change)
    for note in flow.notes:
        yield text("  ", ("note: ", "cyan"), note)
    for line in _problem_lines(flow):
        yield _problem("  problem", line)


def _memory(need: LaneMemory) -> str:
    total = size(need.process_bytes + need.lanes * need.lane_bytes + need.transforms_bytes)
    transforms = f", {size(need.transforms_bytes)} for transforms" if need.transforms_bytes else ""
    limit = "" if need.limit_bytes is None else f" of {size(need.limit_bytes)} allowed"
    return (
        f"{total}{limit} for {plural(need.lanes, 'lane')} on this machine, {size(need.lane_bytes)} "
        f"each and {size(need.process_bytes)} for driver and JVM{transforms}; on a Spark master "
        f"{size(need.lane_bytes)} for each lane, beside the heap of its executor"
    )


def _table(topics: Iterable[TopicReport]) -> Table:
    cells: list[list[Cell]] = [
        [
            f"  {topic.topic}",
            str(topic.partitions),
            topic.remote_topic,
            _plan(topic),
            topic.start,
            " ".join(f"{key}={value}" for key, value in sorted(topic.configs.items())),
        ]
        for topic in islice(topics, TOPICS_SHOWN)
    ]
    return fitted_table(COLUMNS, cells, shown_width(), limit=NAME_WIDTH)


def _plan(topic: TopicReport) -> str:
    match topic.plan.value:
        case "create":
            return "would be created"
        case "grow":
            return f"would grow from {topic.remote_partitions} to {topic.partitions} partitions"
        case "missing":
            return "is missing"
        case _:
            return "exists"


def _problem_lines(flow: FlowReport) -> Iterator[str]:
    """Yield the flow's problems in the order in which they were found. Of the problems with the
    same code, only the first SAME_CODE_SHOWN are shown.
    """
    shown: dict[str, int] = {}
    for problem in flow.problems:
        shown[problem.code] = shown.get(problem.code, 0) + 1
        if shown[problem.code] <= SAME_CODE_SHOWN:
            yield str(problem)
    for code, number in shown.items():
        if number > SAME_CODE_SHOWN:
            yield f"and {number - SAME_CODE_SHOWN} more of this kind [{code}]"


def _problem(what: str, line: str) -> Text:
    return text((f"{what}: ", "red"), line)
