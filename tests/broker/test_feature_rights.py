"""The rights of optional features on secured clusters, as in the second table of docs/security.md.
Each test withholds one right: the feature is disabled with one log line, and the copy continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import Outgoing, Seen, produce, read_all
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.granted_flow import PAGE, Flow, warned
from tests.support.groups import commit, committed
from tests.support.mirror import EmittingMirror
from tests.support.rights import Grant, SecuredPair, secured_pair
from tests.support.share import begin_at, stands_at
from tests.support.topics import create_topic, delete_topic, topic_names
from twinlog.config.load import load
from twinlog.control.adopt import adoption
from twinlog.control.check.mirror_check import check
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.mirror.names.naming import (
    HEARTBEATS_TOPIC,
    PROBE_TOPIC,
    STATE_TOPIC,
    STATUS_TOPIC,
)
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import Checkpoint, OffsetSync, PositionKey, encode_position

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("feature-rights")]

ROW: Final = re.compile(
    r"^\| ([^|]+) \| (source|target) \| `(\w+)` on ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.M
)

CHECKPOINTS, SYNC, WAY_BACK = "checkpoints", "sync.group.offsets.enabled", "the way back"
HEARTBEATS, STATUS = "heartbeats", "status on other hosts"
SYNCS_AT_SOURCE, SYNCS_AT_TARGET = "offset syncs", "offset-syncs.topic.location=target"
ADOPTION, MIRROR_MAKER_1 = "--adopt-mm2", "twinlog.source.group.id"
FEATURES: Final = (
    CHECKPOINTS,
    SYNC,
    WAY_BACK,
    HEARTBEATS,
    STATUS,
    SYNCS_AT_SOURCE,
    SYNCS_AT_TARGET,
    ADOPTION,
    MIRROR_MAKER_1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One right of an optional feature, and the consequence if the right is missing."""

    feature: str
    cluster: str
    operation: str
    on: str
    """The resource as named in the table, in which A is the source and B the target."""
    key: str = ""
    """The setting that avoids the log line by disabling the feature."""
    code: str = "TOPIC_UNAUTHORIZED"
    is_off: bool = True
    stops: bool = False
    """True if the flow does not run without the right, because it would not know where to begin."""
    says: str = ""
    """Text in the log line, or empty if the line names the ACL in the usual way."""
    checked: bool = True
    """True if `check` detects the missing right before anything is written."""
    implied_by: str = ""
    """Another operation on the same resource that includes this one, so a user must lack both to
    lack the right.
    """

    def __str__(self) -> str:
        name = re.sub(r"[^\w.-]+", "-", f"{self.operation} on {self.on}").strip("-")
        return f"{self.cluster}-{name}"


GROUP, GROUPS = "GROUP_UNAUTHORIZED", "groups that are translated"
NO_CHECKPOINTS, NO_HEARTBEATS = "emit.checkpoints.enabled=false", "emit.heartbeats.enabled=false"
NO_STATUS = "twinlog.status.interval.seconds=0"
ON_TARGET, NO_SYNCS = "offset-syncs.topic.location=target", "emit.offset-syncs.enabled=false"


def _rows(
    feature: str, cluster: str, operations: str, on: str, key: str, *, reads: bool = False
) -> Iterator[Row]:
    for operation in operations.split():
        # If the topic does not exist yet, `check` cannot detect that WRITE is missing: to users
        # with READ, brokers report only that the topic is missing.
        checked = feature != ADOPTION and not (reads and operation == "WRITE")
        yield Row(
            feature=feature,
            cluster=cluster,
            operation=operation,
            on=on,
            key=key,
            checked=checked,
        )
    if reads:
        yield Row(feature=feature, cluster=cluster, operation="READ", on=on, key=key, is_off=False)


ROWS: Final = (
    Row(
        feature=CHECKPOINTS,
        cluster="source",
        operation="DESCRIBE",
        on=GROUPS,
        key=NO_CHECKPOINTS,
        code=GROUP,
        says="grant DESCRIBE on group *",
    ),
    *_rows(
        CHECKPOINTS,
        "target",
        "CREATE WRITE",
        "`A.checkpoints.internal`",
        NO_CHECKPOINTS,
        reads=True,
    ),
    Row(
        feature=SYNC,
        cluster="target",
        operation="READ",
        on=GROUPS,
        key="sync.group.offsets.enabled=false",
        code=GROUP,
    ),
    Row(
        feature=WAY_BACK,
        cluster="source",
        operation="READ",
        on="`mm2-twinlog-offset-map.B.internal`",
        checked=False,
    ),
    Row(
        feature=WAY_BACK,
        cluster="source",
        operation="READ",
        on="`B.checkpoints.internal`",
        key="sync.group.offsets.enabled=false",
        is_off=False,
        checked=False,
    ),
    *_rows(HEARTBEATS, "target", "CREATE WRITE", "`heartbeats`", NO_HEARTBEATS),
    *_rows(HEARTBEATS, "source", "CREATE WRITE", "`heartbeats`", NO_HEARTBEATS),
    *_rows(STATUS, "target", "CREATE WRITE", f"`{STATUS_TOPIC}`", NO_STATUS),
    *_rows(
        SYNCS_AT_SOURCE,
        "source",
        "CREATE WRITE",
        "`mm2-offset-syncs.B.internal`",
        ON_TARGET,
        reads=True,
    ),
    *_rows(
        SYNCS_AT_TARGET,
        "target",
        "CREATE WRITE",
        "`mm2-offset-syncs.A.internal`",
        NO_SYNCS,
        reads=True,
    ),
    Row(
        feature=ADOPTION,
        cluster="target",
        operation="DESCRIBE",
        on="group `A-mm2`",
        code=GROUP,
        stops=True,
        checked=False,
    ),
    Row(
        feature=ADOPTION,
        cluster="target",
        operation="READ",
        on="`mm2-offsets.A.internal`",
        stops=True,
        checked=False,
    ),
    *_rows(ADOPTION, "target", "WRITE", "`mm2-offsets.A.internal`", ""),
    Row(
        feature=MIRROR_MAKER_1,
        cluster="source",
        operation="DESCRIBE",
        on="group `twinlog.source.group.id`",
        code=GROUP,
        stops=True,
        implied_by="READ",
    ),
    Row(
        feature=MIRROR_MAKER_1,
        cluster="source",
        operation="READ",
        on="group `twinlog.source.group.id`",
        code=GROUP,
    ),
)


@pytest.fixture(scope="module")
def pair() -> Iterator[SecuredPair]:
    # separate clusters, because the mirrors of all tests would share the heartbeats topic
    with secured_pair("features") as clusters:
        yield clusters


@pytest.fixture(autouse=True)
def no_long_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "QUIET_S", 0.2)


class Scene:
    """A flow with one enabled feature, and the data that this feature needs."""

    def __init__(self, flow: Flow, feature: str) -> None:
        self.flow, self.feature = flow, feature
        self.source, self.target = flow.pair.source, flow.pair.target
        self.group = f"shop-{flow.source}"
        self._prepare()

    def cluster(self, row: Row) -> LocalCluster:
        return self.source if row.cluster == "source" else self.target

    def grant(self, row: Row) -> Grant:
        a, b = self.flow.source, self.flow.target
        if row.on.startswith("group"):
            name = f"{a}-mm2" if row.feature == ADOPTION else self.group
            return Grant(operation=row.operation, kind="group", name=name)
        name = row.on.strip("`").replace("A.", f"{a}.").replace("B.", f"{b}.")
        return Grant(operation=row.operation, kind="topic", name=name)

    def _prepare(self) -> None:
        flow, feature = self.flow, self.feature
        if feature in (CHECKPOINTS, SYNC):
            commit(self.source, self.group, flow.topic, 7)
        elif feature == WAY_BACK:
            self._mirror_back()
            commit(self.source, self.group, f"{flow.target}.{flow.topic}", 7)
        elif feature == HEARTBEATS:
            for cluster in (self.source, self.target):
                if HEARTBEATS_TOPIC in topic_names(cluster):
                    delete_topic(cluster, HEARTBEATS_TOPIC)
        elif feature == STATUS:
            if STATUS_TOPIC in topic_names(self.target):
                delete_topic(self.target, STATUS_TOPIC)
        elif feature == ADOPTION:
            storage = create_topic(self.target, f"mm2-offsets.{flow.source}.internal", 3)
            key = PositionKey(
                connector="MirrorSourceConnector",
                cluster=flow.source,
                source=TopicPartition("another", 0),
            ).encode()
            produce(self.target, storage, [Outgoing(key=key, value=encode_position(5))])
        elif feature == MIRROR_MAKER_1:
            commit(self.source, self.group, flow.topic, 0)

    def _mirror_back(self) -> None:
        """Start a second mirror, which copies a topic from the target to the source."""
        flow, pair = self.flow, self.flow.pair
        create_topic(self.target, flow.topic)
        produce(self.target, flow.topic, [Outgoing(value=b"%d" % n) for n in range(20)])
        everything = [
            Grant(operation="ALL", kind="topic", name="*"),
            Grant(operation="ALL", kind="group", name="*"),
            Grant(operation="ALL", kind="cluster"),
        ]
        back = SecuredPair(source=self.target, target=self.source)
        users = pair.user(self.target, everything), pair.user(self.source, everything)
        path = flow.path.with_name("back.properties")
        lines = [f"topics = {flow.topic}", *OTHERS_OFF, "emit.checkpoints.enabled = false"]
        config = back.config(path, users, lines, aliases=(flow.target, flow.source))
        with EmittingMirror(config, once=True) as mirror:
            mirror.wait()

    def rights(self) -> list[tuple[str, Grant]]:
        """Return the rights that the copy needs, and those rights of the feature that have no `Row`
        in the table.
        """
        a, b, topic = self.flow.source, self.flow.target, self.flow.topic
        found = [
            ("source", Grant(operation="READ", kind="topic", name=f"{topic}*")),
            ("source", Grant(operation="DESCRIBE_CONFIGS", kind="topic", name=f"{topic}*")),
            ("target", Grant(operation="ALL", kind="group", name=f"twinlog-{a}->{b}")),
            ("target", Grant(operation="DESCRIBE_CONFIGS", kind="cluster")),
        ]
        names = (f"{a}.{topic}*", STATE_TOPIC, PROBE_TOPIC, f"mm2-twinlog-offset-map.{a}.internal")
        found += [("target", Grant(operation="ALL", kind="topic", name=name)) for name in names]
        if self.feature in (SYNC, WAY_BACK):
            found += [
                ("source", Grant(operation="DESCRIBE", kind="group", name=self.group)),
                ("target", Grant(operation="ALL", kind="topic", name=f"{a}.checkpoints.internal")),
            ]
        if self.feature == WAY_BACK:
            found += [
                ("target", Grant(operation="READ", kind="group", name=self.group)),
                ("source", Grant(operation="READ", kind="topic", name=f"{b}.{topic}")),
                ("target", Grant(operation="READ", kind="topic", name=topic)),
            ]
        return found

    def config(self, rights: Sequence[Row]) -> Path:
        """Write a configuration. Its users have exactly these rights and those that the
        copy needs.
        """
        given = [*self.rights(), *((row.cluster, self.grant(row)) for row in rights)]
        users = [
            self.flow.pair.user(cluster, [grant for side, grant in given if side == name])
            for name, cluster in (("source", self.source), ("target", self.target))
        ]
        return self.flow.write((users[0], users[1]), *self._lines())

    def _lines(self) -> Iterator[str]:
        feature, name = self.feature, f"{self.flow.source}->{self.flow.target}"
        yield "sync.topic.acls.enabled = false"
        yield "heartbeats.replication.enabled = false"
        if feature == HEARTBEATS:
            back = f"{self.flow.target}->{self.flow.source}"
            yield from (f"{pair}.emit.heartbeats.enabled = true" for pair in (name, back))
            yield "emit.heartbeats.interval.seconds = 1"
        if feature == STATUS:
            yield f"{name}.twinlog.status.interval.seconds = 1"
        if feature in (SYNCS_AT_SOURCE, SYNCS_AT_TARGET):
            yield f"{name}.emit.offset-syncs.enabled = true"
        if feature == SYNCS_AT_TARGET:
            yield "offset-syncs.topic.location = target"
        if feature in (CHECKPOINTS, SYNC, WAY_BACK):
            yield f"{name}.emit.checkpoints.enabled = true"
            yield f"groups = {self.group}"
        if feature in (SYNC, WAY_BACK):
            yield "sync.group.offsets.enabled = true"
        if feature == MIRROR_MAKER_1:
            yield f"twinlog.source.group.id = {self.group}"

    def run(self, config: Path, within: float = PATIENCE_S) -> FlowSnapshot:
        """Run the flow, and return its last snapshot. With most features it runs with --once. With
        heartbeats or the status, it runs until some were written or rejected.
        """
        if self.feature not in (HEARTBEATS, STATUS):
            adopts = self.feature == ADOPTION
            with EmittingMirror(config, once=True, adopt_mm2=adopts) as mirror:
                (found,) = mirror.wait(within)
            return found
        with EmittingMirror(config) as mirror:
            mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts), within)
            if self.feature == HEARTBEATS:
                eventually(lambda: max(map(len, self.beats())) >= 4, within)
            else:
                setup = mirror.supervisor.flows[0].setup
                eventually(lambda: self.works() or setup._logged, within)
            (found,) = mirror.stop()
        return found

    def beats(self) -> tuple[list[Seen], list[Seen]]:
        """Return the heartbeats on the source and those on the target."""
        here, there = (
            read_all(one, HEARTBEATS_TOPIC) if HEARTBEATS_TOPIC in topic_names(one) else []
            for one in (self.source, self.target)
        )
        return here, there

    def works(self, row: Row | None = None) -> bool:
        """Return True if the feature works. Heartbeats are checked on the cluster of `row`, or on
        both clusters if `row` is None.
        """
        flow = self.flow
        if self.feature == SYNC:
            return committed(self.target, self.group, flow.remote) == 7
        if self.feature == MIRROR_MAKER_1:
            return committed(self.source, self.group, flow.topic) > 0
        if self.feature == HEARTBEATS:
            here, there = map(bool, self.beats())
            sides = {"source": here, "target": there}
            return all(sides.values()) if row is None else sides[row.cluster]
        if self.feature == STATUS:
            return STATUS_TOPIC in topic_names(self.target) and bool(
                read_all(self.target, STATUS_TOPIC)
            )
        cluster, topic = {
            CHECKPOINTS: (self.target, f"{flow.source}.checkpoints.internal"),
            WAY_BACK: (self.target, f"{flow.source}.checkpoints.internal"),
            SYNCS_AT_SOURCE: (self.source, f"mm2-offset-syncs.{flow.target}.internal"),
            SYNCS_AT_TARGET: (self.target, f"mm2-offset-syncs.{flow.source}.internal"),
            ADOPTION: (self.target, f"mm2-offsets.{flow.source}.internal"),
        }[self.feature]
        about = {_topic_of(self.feature, one) for one in self._held(cluster, topic)}
        return (flow.remote if self.feature == CHECKPOINTS else flow.topic) in about

    def _held(self, cluster: LocalCluster, topic: str) -> list[Seen]:
        if topic not in topic_names(cluster):
            return []
        return [one for one in read_all(cluster, topic) if one.key != FILLER]


def _topic_of(feature: str, seen: Seen) -> str:
    """Return the source topic that a record in MirrorMaker 2's format is about."""
    if feature in (CHECKPOINTS, WAY_BACK):
        return Checkpoint.decode(seen.key, seen.value).topic_partition.topic
    if feature in (SYNCS_AT_SOURCE, SYNCS_AT_TARGET):
        return OffsetSync.decode(seen.key, seen.value).topic_partition.topic
    key = PositionKey.decode(seen.key)
    assert key is not None
    return key.source.topic


FILLER: Final = b"not what belongs here"
OTHERS_OFF: Final = (
    "emit.heartbeats.enabled = false",
    "emit.offset-syncs.enabled = false",
    "sync.topic.acls.enabled = false",
)


@pytest.fixture
def flow(pair: SecuredPair, fresh_topic: str, tmp_path: Path) -> Flow:
    made = Flow(pair, fresh_topic, tmp_path)
    produce(pair.source, fresh_topic, [Outgoing(value=b"%d" % n, partition=0) for n in range(10)])
    return made


def checked(config: Path) -> list[str]:
    """Return all notes and problems that `check` reports about the flow."""
    (flow,) = check(load(config, environment={})).flows
    return [*flow.notes, *map(str, flow.problems)]


@pytest.mark.witness("the rights page lists each permission that a feature needs")
def test_the_page_has_exactly_these_rows() -> None:
    written = ROW.findall(PAGE.read_text())
    assert [found[1:4] for found in written] == [
        (row.cluster, row.operation, row.on) for row in ROWS
    ]
    assert {row.feature for row in ROWS} == set(FEATURES)
    assert len({str(row) for row in ROWS}) == len(ROWS), "each has a test of its own"
    for row, (_, _, _, _, text, key) in zip(ROWS, written, strict=True):
        assert f"`{row.code}`" in text, row
        assert ("The flow does not run" in text) == row.stops, row
        assert key == (f"`{row.key}`" if row.key else "none"), row


@pytest.mark.parametrize("feature", FEATURES)
def test_these_rights_are_enough(
    feature: str, flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(flow, feature)
    config = scene.config([row for row in ROWS if row.feature == feature])
    assert checked(config) == []
    found = scene.run(config)
    assert {p.code for p in found.partitions} == {""}
    assert warned(caplog) == []
    assert scene.works()
    assert flow.is_copied()


SAMPLED = [
    pytest.param(row, id=str(row), marks=[pytest.mark.long] if number % 2 else [])
    for number, row in enumerate(ROWS)
]
"""All rows of the table. The gate of `scripts/test` runs only every second row, because the rows
differ only in one detail (`tests.support.sweeps`).
"""


@pytest.mark.parametrize("missing", SAMPLED)
def test_without_this_right(missing: Row, flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(flow, missing.feature)
    acl = scene.grant(missing)
    if missing.operation == "READ" and not missing.is_off:
        # READ is needed only if the topic has records
        create_topic(scene.cluster(missing), acl.name, configs={"cleanup.policy": "compact"})
        produce(scene.cluster(missing), acl.name, [Outgoing(key=FILLER, value=b"")])
    taken = (missing.operation, missing.implied_by)
    rest = [
        row
        for row in ROWS
        if row.feature == missing.feature
        and not (row.cluster == missing.cluster and row.on == missing.on and row.operation in taken)
    ]
    config = scene.config(rest)
    says = missing.says or f"grant {missing.operation} on {acl.kind} {acl.name}"
    said = checked(config)
    assert len(said) == missing.checked, said
    assert all(says in one and missing.code in one and missing.key in one for one in said), said
    found = scene.run(config)
    if missing.stops:
        assert (found.state, found.code) == ("FAILED", missing.code)
        assert says in found.reason
        assert flow.remote not in topic_names(scene.target) or not read_all(
            scene.target, flow.remote
        )
        return
    (line,) = warned(caplog)
    assert says in line
    assert f"[{missing.code}]" in line
    assert missing.key in line
    assert scene.works(missing) == (not missing.is_off)
    assert {p.code for p in found.partitions} == {""}
    assert flow.is_copied()


class ShareScene(Scene):
    """A scene whose group is a share group. The rights to describe the group may be missing."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow, SYNC)
        self.group = f"{self.group}-shared"
        begin_at(self.source, flow.topic, {self.group: 7})

    def rights(self) -> list[tuple[str, Grant]]:
        return [(side, one) for side, one in super().rights() if one.name != self.group]


@pytest.mark.parametrize("missing", ["", "source", "target"])
def test_share_groups_need_the_rights_of_other_groups(
    missing: str, flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    scene = ShareScene(flow)
    needed = {row.cluster: row for row in ROWS if row.on == GROUPS}
    config = scene.config([row for side, row in needed.items() if side != missing])
    said = checked(config)
    scene.run(config)
    assert flow.is_copied()
    assert stands_at(scene.target, scene.group, flow.remote) == (-1 if missing else 7)
    lines = warned(caplog)
    assert len(said) == len(lines) == bool(missing), (said, lines)
    if missing:
        acl = needed[missing].says or f"grant READ on group {scene.group}"
        assert all(acl in one and f"[{GROUP}]" in one for one in [*said, *lines])
