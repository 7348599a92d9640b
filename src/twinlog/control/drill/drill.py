"""Runs a drill: creates its topics, starts a mirror for them, rehearses, and cleans up.

If the drill dies, its mirror ends a second later. Topics, groups, ACLs and rows whose names contain
the drill's mark (`cleaning.DrillNames`) remain until `twinlog drill clean` removes them. No file
remains: the mirror's configuration may contain passwords, so it is only in memory. The drill never
changes the flow itself.
"""

from __future__ import annotations

import hashlib
import html
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets
from twinlog.cluster.topics.acls import SECURITY_DISABLED, topic_acls
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.cluster.topics.topic_admin import create_topic
from twinlog.config.config_file import canonical
from twinlog.config.files.raw import RawConfig
from twinlog.config.flow.connect import CHAIN, CONNECT_PREFIXES, PREDICATES
from twinlog.config.flow.precedence import prefix_of
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.load import load, load_raw
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.cutover.switchover import FenceKind
from twinlog.control.drill.cleaning import DrillNames, Part, clean
from twinlog.control.drill.rehearsal import Defect, Load, Measurements, MirrorProcess, Rehearsal
from twinlog.control.flow.wiring import flow_setup
from twinlog.encoded import encoded
from twinlog.errors import BrokerRefused, FlowError, TwinlogError, UsageError
from twinlog.folders import memory_file
from twinlog.model import Flow, TopicPartition
from twinlog.quantities import count, duration, first_few, plural

MOST_PARTITIONS: Final = 100
COPIED_CONFIGS: Final = (
    *("compression.type", "max.message.bytes", "min.insync.replicas", "message.timestamp.type"),
)
"""Topic configs that the drill's topics get from the topics that they are modeled on. Configs that
delete or compact records are not copied, because the drill searches for every record.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """Partitions, replicas and configs of a topic of the flow. The drill creates such a topic."""

    topic: str
    partitions: int
    replicas: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """The plan of a drill, which is printed before the drill runs."""

    FIELDS = (
        "flow topics=shapes fence parts seconds=load.seconds "
        "records_per_second=load.records_per_s record_bytes=load.record_bytes"
    )

    flow: str
    shapes: tuple[TopicShape, ...]
    fence: FenceKind
    load: Load
    parts: tuple[Part, ...]
    is_open: ClassVar = True

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text."""
        for shape in self.shapes:
            yield f"a topic like {shape.topic}: {plural(shape.partitions, 'partition')}"
        rate = f"{self.load.records_per_s:.0f} records/s of {self.load.record_bytes} bytes"
        yield f"{' and '.join(self.parts)}, with {rate} for {duration(self.load.seconds)} each"
        if Part.SWITCHOVER in self.parts:
            how = {
                FenceKind.ACL: "fenced off by ACLs on its own topics",
                FenceKind.NONE: "stopped, because the source has no ACLs",
            }
            yield f"its producers are {how[self.fence]}"


@dataclass(slots=True, kw_only=True)
class DrillResult:
    """The result of a drill: measurements and defects of each rehearsal, and the verdict."""

    FIELDS = "id=mark began_ms seconds verdict plan rehearsals=outcomes problem? is_clean evidence"

    plan: DrillPlan
    mark: str
    began_ms: int
    seconds: float = 0.0
    outcomes: list[Measurements] = field(default_factory=list)
    problem: str = ""
    """The error that ended the drill early. Empty if all rehearsals have run."""
    is_clean: bool = True
    """False if topics, groups, ACLs or rows of the drill are left on a cluster."""
    evidence: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Defect]:
        return [finding for outcome in self.outcomes for finding in outcome.findings]

    @property
    def is_green(self) -> bool:
        return not (self.findings or self.problem) and self.is_clean

    @property
    def verdict(self) -> str:
        return "green" if self.is_green else "red"


class Drill:
    """Plans and runs one drill of one flow. Not thread-safe."""

    def __init__(self, raw: RawConfig, config: FlowConfig, say: Say) -> None:
        self._raw, self._config = raw, config
        self._write = say
        self._evidence: list[str] = []
        self._setup = flow_setup(config)

    def _print_line(self, line: str) -> None:
        self._evidence.append(line)
        self._write(line)

    def plan(
        self, topics: NamePattern | None, limit: int, load: Load, parts: Sequence[Part]
    ) -> DrillPlan:
        """Return the plan without changing anything. `limit`: the maximum number of topics. Raises
        FlowError (NOTHING_TO_DRILL) if `topics` selects no topic of the flow.
        """
        with CutoverScope(self._setup, topics) as scope:
            scope.require_source()
            source_topics = scope.source.metadata(None).topics
            names = sorted(name for name in source_topics if scope.covers(name))
            shapes = [
                TopicShape(
                    topic=name,
                    partitions=min(len(source_topics[name].partitions), MOST_PARTITIONS),
                    replicas=min(
                        (len(partition.replicas) for partition in source_topics[name].partitions),
                        default=1,
                    ),
                    configs=configs,
                )
                for name, configs in _configs(scope.source, names[:limit]).items()
            ]
            fence = _fence(scope.source)
        if not shapes:
            raise FlowError(
                "the flow mirrors no topic of the source that --topics selects: "
                "`twinlog topology` lists the topics that it mirrors",
                flow=self._setup.name,
                code="NOTHING_TO_DRILL",
            )
        flow = self._setup.name
        return DrillPlan(
            flow=flow, shapes=tuple(shapes), fence=fence, load=load, parts=tuple(parts)
        )

    def run(self, plan: DrillPlan) -> DrillResult:
        """Run the drill, and clean up even if it fails. A failure is in the result's `problem`."""
        names = DrillNames.new()
        began = time.monotonic()
        result = DrillResult(plan=plan, mark=names.mark, began_ms=int(time.time() * 1000))
        result.evidence = self._evidence
        setup = self._setup
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            try:
                topics = dict.fromkeys(plan.parts, len(plan.shapes))
                text = drill_text(self._raw, self._config.flow, names, topics)
                with memory_file(text, "twinlog drill") as file:
                    self._rehearse(plan, names, source, file, result)
            except TwinlogError as error:
                result.problem = str(error)
                self._print_line(f"ended: {error}")
            finally:
                self._print_line("cleaning up")
                clients = (source, target)
                cleaned = [clean(client, names.mark, self._print_line) for client in clients]
                result.is_clean = all(cleaned)
        result.seconds = round(time.monotonic() - began, 1)
        return result

    def _rehearse(
        self,
        plan: DrillPlan,
        names: DrillNames,
        source: ClusterClient,
        file: int,
        result: DrillResult,
    ) -> None:
        path = Path(f"/proc/self/fd/{file}")
        config = load(path)
        for part in plan.parts:
            for number, shape in enumerate(plan.shapes):
                create_topic(
                    source,
                    names.topic(part, number),
                    partitions=shape.partitions,
                    replication_factor=shape.replicas,
                    configs=shape.configs,
                )
            _commit_first(source, names, part, plan.shapes)
        self._print_line(
            f"topics like {first_few(shape.topic for shape in plan.shapes)} are created"
        )
        self._print_line("starting a separate mirror (Spark takes some seconds)")
        mirror = MirrorProcess(path, "--listen", "off", pass_fds=(file,))
        try:
            for part in plan.parts:
                flow = next(
                    flow
                    for flow in config.flows
                    if flow.flow.source == names.alias(part, self._config.flow.source)
                )
                counts = [shape.partitions for shape in plan.shapes]
                work = Rehearsal(part, flow, names, counts, plan.load, mirror, self._print_line)
                outcome = work.run(plan.fence)
                self._report_outcome(outcome)
                result.outcomes.append(outcome)
        finally:
            mirror.kill()

    def _report_outcome(self, outcome: Measurements) -> None:
        limit = self._config.rpo_seconds
        if limit is not None and outcome.lost_s > limit:
            what = f"{outcome.lost_s:.1f} s were lost, twinlog.rpo.seconds is {limit}"
            outcome.findings.append(Defect(part=outcome.part, where="the loss", what=what))
        for finding in outcome.findings:
            self._print_line(f"RED: {finding}")


def _commit_first(
    source: ClusterClient, names: DrillNames, part: Part, shapes: Sequence[TopicShape]
) -> None:
    """Create the drill's groups by committing offset 0. A mirror rarely lists groups, so they must
    exist before the drill's mirror starts.
    """
    wanted = {
        names.group(part, number): {
            TopicPartition(names.topic(part, number), p): Committed(offset=0)
            for p in range(shape.partitions)
        }
        for number, shape in enumerate(shapes)
    }
    for answer in commit_offsets(Coordinators(source), wanted).values():
        for error in [answer] if isinstance(answer, TwinlogError) else answer.values():
            if error is not None:
                raise error


def _configs(source: ClusterClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    out: dict[str, dict[str, str]] = {}
    for name, answer in describe_topic_configs(source, names).items():
        entries = () if isinstance(answer, TwinlogError) else answer
        out[name] = {
            entry.name: entry.value
            for entry in entries
            if entry.name in COPIED_CONFIGS and entry.value is not None and not entry.is_default
        }
    return out


def _fence(source: ClusterClient) -> FenceKind:
    try:
        topic_acls(source, needs="ALTER")
    except BrokerRefused as error:
        if error.code != SECURITY_DISABLED:
            raise
        return FenceKind.NONE
    return FenceKind.ACL


# A drill's configuration is the flow's configuration with other cluster aliases. So the drill has
# remote topics, an offset map, checkpoints and a leader of its own, and does not affect the flow.
# Keys that affect anything else are left out: HTTP, heartbeats, producer quotas, the source's
# groups, and `twinlog.start.*`.

LEFT_OUT: Final = (
    *("clusters", "enabled", "topics", "topics.exclude", "topics.blacklist"),
    *("groups", "groups.exclude", "groups.blacklist", "emit.heartbeats.enabled"),
    *("heartbeats.replication.enabled", "listeners", "admin.listeners", "source.cluster.alias"),
    *("target.cluster.alias", "twinlog.start", "twinlog.start.new", "twinlog.source.group.id"),
    *("twinlog.source.group.commit.interval.ms", "twinlog.rpo.enforce", "twinlog.rename"),
    *("emit.checkpoints.enabled", "refresh.topics.enabled", "refresh.groups.enabled"),
    *(CHAIN, PREDICATES),
)
OF_EACH: Final = {
    "enabled": "true",
    "topics.exclude": "none",
    "groups.exclude": "none",
    "emit.checkpoints.enabled": "true",
    "heartbeats.replication.enabled": "false",
}


def drill_text(raw: RawConfig, flow: Flow, names: DrillNames, topics: Mapping[Part, int]) -> str:
    """Return the drill's configuration as the text of an mm2.properties file. `topics`: number of
    topics of each part. References to secrets are copied without resolving them.
    """
    aliases = [cluster.alias for cluster in load_raw(raw).clusters]
    settings = {
        key: setting
        for key, setting in raw.settings.items()
        if not prefix_of(key, aliases) and not _is_left_out(key)
    }
    clusters: list[str] = []
    for part, size in topics.items():
        source, target = (names.alias(part, alias) for alias in (flow.source, flow.target))
        own = Flow(source, target)
        clusters += [source, target]
        renamed = {f"{flow}.": f"{own}.", f"{flow.source}.": f"{source}."}
        settings.update(_renamed(raw, aliases, renamed | {f"{flow.target}.": f"{target}."}))
        values = {
            **OF_EACH,
            "topics": ", ".join(names.topic(part, number) for number in range(size)),
            "groups": ", ".join(names.group(part, number) for number in range(size)),
        }
        settings.update(_set({f"{own}.{name}": value for name, value in values.items()}))
    # without this key, the disabled flows between the drill's clusters would emit heartbeats, too
    settings.update(_set({"clusters": ", ".join(clusters), "emit.heartbeats.enabled": "false"}))
    return canonical(settings, clusters)


def _renamed(
    raw: RawConfig, aliases: Sequence[str], prefixes: Mapping[str, str]
) -> Iterator[tuple[str, Setting]]:
    for key, setting in raw.settings.items():
        prefix = prefix_of(key, aliases)
        bare = key.removeprefix(prefix)
        if prefix in prefixes and not _is_left_out(bare):
            yield prefixes[prefix] + bare, replace(setting, key=prefixes[prefix] + bare)


def _is_left_out(key: str) -> bool:
    return key in LEFT_OUT or key.startswith(CONNECT_PREFIXES)


def _set(values: Mapping[str, str]) -> dict[str, Setting]:
    return {key: Setting(key=key, value=value, file="drill") for key, value in values.items()}


# The report's files are `drill-ID.json`, `drill-ID.html`, and `drill-ID.sha256` for
# `sha256sum --check`. If a key is given, `drill-ID.sha256.sig` is added: an Ed25519 signature
# (RFC 8032) of `drill-ID.sha256`.

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8886 }
.green, .red { display: inline-block; padding: .2rem .8rem; border-radius: .4rem; color: #fff }
.green { background: #17692f } .red { background: #a11 }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886 }
"""


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key of an unencrypted PEM file. Raises UsageError if there is none."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"--sign {path}: not a private key in PEM without a passphrase "
            f"({type(error).__name__}); create one with openssl genpkey -algorithm ed25519 -out "
            "FILE"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"--sign {path}: not an Ed25519 key")
    return key


def write_report(result: DrillResult, folder: Path, key: Ed25519PrivateKey | None) -> list[Path]:
    """Write the report's files. Return their paths: JSON, HTML, checksums, and the signature if
    there is a key. Raises UsageError if a file cannot be written.
    """
    stem = folder / f"drill-{result.mark.rpartition('-')[2]}"
    data = {"v": 1, **encoded(result)}
    files = {
        stem.with_suffix(".json"): json.dumps(data, indent=2) + "\n",
        stem.with_suffix(".html"): page(result),
    }
    sums = "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()}  {path.name}\n"
        for path, text in files.items()
    )
    written = {path: text.encode() for path, text in files.items()}
    written[stem.with_suffix(".sha256")] = sums.encode()
    if key is not None:
        written[stem.with_suffix(".sha256.sig")] = key.sign(sums.encode())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written.items():
            path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"--report {folder}: {error.strerror}; name another folder") from error
    return [*written]


def page(result: DrillResult) -> str:
    """Return the report as an HTML page without references to other files."""
    verdict = result.verdict
    began = datetime.fromtimestamp(result.began_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>Drill of {_text(result.plan.flow)}: {verdict}</title><style>{_STYLE}</style>",
        f"<h1>Drill of {_text(result.plan.flow)} <span class={verdict}>{verdict}</span></h1>",
        f"<p>{began}, {_text(duration(result.seconds))}, {_text(result.mark)}</p>",
        _table(["", *(outcome.part.value for outcome in result.outcomes)], _rows(result.outcomes)),
        "<h2>Findings</h2>",
        _list([*map(str, result.findings), *([result.problem] if result.problem else [])]),
        "<h2>Rehearsed with</h2>",
        _list(list(result.plan.lines())),
        "<h2>Evidence</h2>",
        f"<pre>{_text(chr(10).join(result.evidence))}</pre></html>",
    ]
    return "\n".join(parts) + "\n"


def _rows(outcomes: list[Measurements]) -> Iterator[list[str]]:
    pauses = (duration(outcome.interruption_s) for outcome in outcomes)
    yield ["producers were interrupted for", *pauses]
    yield ["records written", *(count(outcome.written) for outcome in outcomes)]
    yield ["records lost", *(count(outcome.lost) for outcome in outcomes)]
    yield ["seconds lost", *(f"{outcome.lost_s:.1f}" for outcome in outcomes)]
    lost_texts = (
        "" if outcome.planned_loss is None else count(outcome.planned_loss) for outcome in outcomes
    )
    yield ["offsets lost, by the plan", *lost_texts]
    yield ["records read twice", *(count(outcome.read_again) for outcome in outcomes)]


def _table(head: list[str], rows: Iterator[list[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{_text(cell)}" for cell in head)]
    for first, *rest in rows:
        lines.append(f"<tr><th>{_text(first)}" + "".join(f"<td>{_text(cell)}" for cell in rest))
    return "\n".join([*lines, "</table>"])


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line)}" for line in lines or ["none"]) + "</ul>"


def _text(value: Any) -> str:
    return html.escape(str(value))
