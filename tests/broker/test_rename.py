"""`twinlog.rename` on real clusters: records, groups, offsets and refusals under both policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.circle_of_flows import problems
from tests.support.client import eventually, produce, read_all
from tests.support.connect_chains import chain_lines
from tests.support.cutover import Commands
from tests.support.groups import IDENTITY, Pair, commit, committed, numbered, resume
from tests.support.groups import with_transactions as fill
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.topics import create_topic, delete_topic, end_offsets, topic_names
from twinlog.cli.main import run
from twinlog.client.mirror_client import MirrorClient
from twinlog.cluster.client import ClusterClient
from twinlog.codes import FlowState
from twinlog.config.load import load
from twinlog.control.duties.config_sync import find_drift
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.model import TopicPartition
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.survey.copied_topics import copies_by_name

pytestmark = [pytest.mark.broker]

FIRST = {0: 0, 3: 3, 12: 8}
"""Target offsets by source offset, in the log that `with_transactions` writes. Source offset 3 is
in a gap.
"""
BEHIND_GAP = 6


class Renamed(Pair):
    """A pair of clusters with one topic that is renamed, and one that keeps its name."""

    def __init__(
        self,
        folder: Path,
        a: LocalCluster,
        b: LocalCluster,
        *,
        identity: bool,
        ways: int = 1,
        routes: bool = False,
    ) -> None:
        """`routes`: if True, a router of Kafka Connect renames the topic. The remote names then
        have no alias.
        """
        super().__init__(folder, a, b, both_ways=ways > 1, identity=identity)
        self.folder = folder
        self.new = f"eu-{self.topic}"
        self.plain = f"plain-{self.topic}"
        self.before = "" if identity else f"{self.alias_a}."
        self.remote = self.new if routes else self.before + self.new
        self.lines = self.config.read_text().replace(
            f"topics = {self.topic}\n",
            f"topics = .*{self.topic}\nrefresh.topics.interval.seconds = 1\n",
        )
        self.routes = routes
        self.name_it()

    def name_it(self) -> None:
        if self.routes:
            self.route(rf"{self.alias_a}\\.(orders-.*)", "eu-$1")
        else:
            self.rules("(orders-.*):eu-$1")

    def rules(self, rules: str) -> None:
        flow = f"{self.alias_a}->{self.alias_b}"
        self.config.write_text(f"{self.lines}\n{flow}.twinlog.rename = {rules}\n")

    def route(self, regex: str, replacement: str) -> None:
        flow = f"{self.alias_a}->{self.alias_b}"
        lines = chain_lines(("RegexRouter", f"regex = {regex}", f"replacement = {replacement}"))
        self.config.write_text("\n".join([self.lines, *(f"{flow}.{one}" for one in lines)]))

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in read_all(self.b, topic, isolation="read_committed")]


def once(pair: Renamed) -> dict[str, PartitionSnapshot]:
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        flow = next(one for one in mirror.wait() if one.flow.startswith(pair.alias_a))
    return {part.topic: part for part in flow.partitions}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = run([*words, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.witness("records, groups and offsets use a topic's new name", case="default")
@pytest.mark.parametrize("policy", ["default", "identity", "router"])
def test_records_groups_and_offsets_go_by_the_new_name(
    policy: str,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    identity = policy == "identity"
    pair = Renamed(
        tmp_path, source_cluster, target_cluster, identity=identity, routes=policy == "router"
    )
    fill(pair)  # the log has gaps, so offsets differ between the clusters
    create_topic(pair.a, pair.plain)
    produce(pair.a, pair.plain, numbered(0, 3))
    groups = {offset: pair.stop_at(offset) for offset in FIRST}
    expected = {offset: [b"%d" % n for n in range(first, 8)] for offset, first in FIRST.items()}

    assert run(["check", str(pair.config)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert any(line[:3] == [pair.topic, "1", pair.remote] for line in shown), shown

    with Mirror(pair.config) as mirror:
        for offset, group in groups.items():
            eventually(lambda g=group, o=offset: committed(pair.b, g, pair.remote) == FIRST[o])  # type: ignore[misc]
        mirror.stop()
    assert pair.values(pair.before + pair.plain) == [b"0", b"1", b"2"]
    assert pair.topic not in topic_names(pair.b)
    produce(pair.a, pair.topic, numbered(5000, 4))
    once(pair)  # a restart continues where the copy was
    assert pair.values(pair.remote) == [
        r.value for r in read_all(pair.a, pair.topic, isolation="read_committed")
    ]
    for offset, group in groups.items():
        assert resume(pair.b, group, pair.remote) == [
            *expected[offset],
            *(b"%d" % n for n in range(5000, 5004)),
        ]

    words = ("offsets", "translate", str(pair.config), "--offset", "3", "--topic")
    assert f"{pair.remote}" in json.dumps(said(capsys, *words, pair.topic))
    assert run([*words, pair.new]) == 1, "it holds the copy of another topic"
    assert pair.topic in json.dumps(said(capsys, *words, pair.remote, "--reverse"))
    back = ("offsets", "translate", str(pair.config), "--reverse", "--group")
    code, found = said(capsys, *back, next(iter(groups.values())))
    assert (code, pair.topic in json.dumps(found)) == (0, True)
    client = MirrorClient({"bootstrap.servers": pair.b.bootstrap, **_policy(pair, identity)})
    try:
        here = client.to_downstream(pair.alias_a, {TopicPartition(pair.topic, 0): 3})
        assert {tp: place.offset for tp, place in here.items()} == {
            TopicPartition(pair.remote, 0): FIRST[3]
        }
        assert not client.to_downstream(pair.alias_a, {TopicPartition(pair.new, 0): 3})
        there = client.to_upstream(pair.alias_a, {TopicPartition(pair.remote, 0): FIRST[3]})
        assert {tp: place.offset for tp, place in there.items()} == {
            TopicPartition(pair.topic, 0): BEHIND_GAP
        }
    finally:
        client.close()
    assert run(["diff", str(pair.config)]) == 0, capsys.readouterr().out
    # the identity policy produces the same names, so it continues the same copy
    if policy == "router":
        pair.lines += f"\n{IDENTITY}"
        pair.rules("(orders-.*):eu-$1")
        produce(pair.a, pair.topic, numbered(6000, 2))
        assert once(pair)[pair.topic].code == ""
        assert pair.values(pair.remote)[-3:] == [b"5003", b"6000", b"6001"]
        pair.lines = pair.lines.removesuffix(IDENTITY)
        pair.name_it()  # back to the rename rule
        produce(pair.a, pair.topic, numbered(7000, 2))
        assert once(pair)[pair.topic].code == ""
        assert pair.values(pair.remote)[-3:] == [b"6001", b"7000", b"7001"]
        assert len(pair.values(pair.remote)) == len(expected[0]) + 8


def _policy(pair: Renamed, identity: bool) -> dict[str, str]:
    name, _, value = IDENTITY.partition(" = ")
    return {name: value.strip(), "source.cluster.alias": pair.alias_a} if identity else {}


@pytest.mark.parametrize("identity", [False, True], ids=["default", "identity"])
def test_a_clash_stops_both_and_a_changed_rule_stops_the_topic(
    identity: bool,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second topic gets the same remote name as the first one, so both topics stop. A topic whose
    rule is changed stops, too. The target's records stay, and the first copy continues when the
    clash has ended.
    """
    pair = Renamed(tmp_path, source_cluster, target_cluster, identity=identity)
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 5))
    with Mirror(pair.config) as mirror:
        eventually(
            lambda: pair.remote in topic_names(pair.b) and len(pair.values(pair.remote)) == 5
        )
        # without a rule, this topic has the remote name that the first one got by its rule
        create_topic(pair.a, pair.new)
        produce(pair.a, pair.new, numbered(100, 5))
        eventually(lambda: _codes(mirror) == {pair.topic: "RENAME_CLASH", pair.new: "RENAME_CLASH"})
        produce(pair.a, pair.topic, numbered(5, 5))
        mirror.stop()
    found = problems(pair.config)[_flow(pair)]
    assert (len(found), str(found).count("[RENAME_CLASH]")) == (2, 2)
    code, shown = said(capsys, "diff", str(pair.config))
    assert (code, json.dumps(shown).count("[RENAME_CLASH]")) == (1, 2)
    assert _codes_once(pair) == {pair.topic: "RENAME_CLASH", pair.new: "RENAME_CLASH"}
    assert pair.values(pair.remote) == [b"%d" % n for n in range(5)]

    pair.rules(f"{pair.topic}:{pair.new}, {pair.new}:other-{pair.new}")
    assert _codes_once(pair) == {pair.topic: "", pair.new: ""}
    assert len(_kept_equal(pair)) == 2
    assert pair.values(pair.remote) == [b"%d" % n for n in range(10)]
    assert pair.values(f"{pair.before}other-{pair.new}") == [b"%d" % n for n in range(100, 105)]

    held = {name: end_offsets(pair.b, name) for name in topic_names(pair.b) if pair.topic in name}
    # each topic gets the other's remote name
    pair.rules(f"{pair.topic}:other-{pair.new}, {pair.new}:{pair.new}")
    produce(pair.a, pair.topic, numbered(10, 2))
    assert _codes_once(pair) == {pair.topic: "RENAME_CHANGED", pair.new: "RENAME_CHANGED"}
    assert _kept_equal(pair) == [], "neither gets the configs of the other's source"
    pair.rules("none:none")
    assert set(_codes_once(pair).values()) == {"RENAME_CHANGED"}
    assert held == {
        name: end_offsets(pair.b, name) for name in topic_names(pair.b) if pair.topic in name
    }
    # the remaining topic would get the name of the deleted topic's copy
    delete_topic(pair.a, pair.topic)
    assert "RENAME" in _codes_once(pair)[pair.new]


def _flow(pair: Renamed) -> str:
    return f"{pair.alias_a}->{pair.alias_b}"


def _kept_equal(pair: Renamed) -> list[str]:
    """Return the remote topics whose configs are kept equal to those of the source."""
    (flow,) = load(pair.config, environment={}).flows
    sides = flow_setup(flow)
    with ClusterClient(sides.source) as source, ClusterClient(sides.target) as target:
        return sorted(find_drift(flow, copies_by_name(flow, source, target), source, target).own)


def _codes(mirror: Mirror) -> dict[str, str]:
    flow = mirror.snapshots[0] if mirror.snapshots else None
    return {} if flow is None else {part.topic: part.code for part in flow.partitions}


def _codes_once(pair: Renamed) -> dict[str, str]:
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        (flow,) = mirror.wait()
    found = {part.topic: part.code for part in flow.partitions}
    return found or {pair.topic: flow.code, pair.new: flow.code}


def test_both_ways_of_the_default_policy_never_loop_and_move_groups_back(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    pair = Renamed(tmp_path, source_cluster, target_cluster, identity=False, ways=2)
    create_topic(pair.a, pair.topic)
    create_topic(pair.b, pair.new)  # B itself already has a topic of this name
    produce(pair.a, pair.topic, numbered(0, 9))
    produce(pair.b, pair.new, numbered(100, 9))
    group = f"{pair.group}-home"
    with Mirror(pair.config) as mirror:
        eventually(
            lambda: pair.remote in topic_names(pair.b) and len(pair.values(pair.remote)) == 9
        )
        commit(pair.b, group, pair.remote, 6)
        eventually(lambda: committed(pair.a, group, pair.topic) == 6)
        mirror.stop()
    names = {name for name in topic_names(pair.a) | topic_names(pair.b) if pair.topic in name}
    back = f"{pair.alias_b}.{pair.new}"
    assert names == {pair.topic, pair.new, pair.remote, back}
    assert end_offsets(pair.a, pair.topic) == {0: 9}
    assert end_offsets(pair.b, pair.new) == {0: 9}


@pytest.mark.parametrize("routes", [False, True], ids=["identity", "router"])
def test_both_ways_are_refused_where_a_new_name_without_an_alias_would_come_back(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path, *, routes: bool
) -> None:
    pair = Renamed(
        tmp_path, source_cluster, target_cluster, identity=not routes, ways=2, routes=routes
    )
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 3))
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        codes = {flow.flow: flow.code for flow in mirror.wait()}
    assert codes[f"{pair.alias_a}->{pair.alias_b}"] == "COPIED_BACK"
    assert pair.new not in topic_names(pair.a) | topic_names(pair.b)

    both, way = pair.lines, f"{pair.alias_b}->{pair.alias_a}.enabled"
    pair.lines = both.replace(f"{way} = true", f"{way} = false")
    pair.name_it()
    assert once(pair)[pair.topic].code == ""
    # each process has only its own flow; the row of the copy shows where the copy came from
    pair.lines = both
    pair.name_it()
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        found = {flow.flow: flow for flow in mirror.wait()}
    assert found[f"{pair.alias_b}->{pair.alias_a}"].code == "COPIED_BACK"
    assert not {pair.new, f"{pair.alias_b}.{pair.new}"} & topic_names(pair.a)
    assert pair.values(pair.new) == [b"0", b"1", b"2"]


@pytest.fixture
def short_lived() -> Iterator[LocalCluster]:
    """A cluster that the test may destroy."""
    with LocalCluster("rename-source", jvm_flags=QUICK_JVM) as cluster:
        yield cluster


def test_a_source_that_is_gone_is_failed_over_under_the_new_name(
    short_lived: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source of a renamed topic is gone, so only the target shows which topic a checkpoint is
    about. The failover uses the new name.
    """
    monkeypatch.setattr("twinlog.control.cutover.scope.SOURCE_TIMEOUT_S", 1.0)
    monkeypatch.setattr("twinlog.client.group_translation.SOURCE_TIMEOUT_S", 1.0)
    pair = Renamed(tmp_path, short_lived, target_cluster, identity=False)
    pair.lines = pair.lines.replace(
        "sync.group.offsets.enabled = true", "sync.group.offsets.enabled = false"
    )
    pair.rules("(orders)-(.*):$2-eu")
    pair.remote = f"{pair.alias_a}.{pair.topic.removeprefix('orders-')}-eu"
    fill(pair)
    group = pair.stop_at(3)
    failover = Commands("failover", pair.config, capsys)
    topic = f"{pair.alias_a}.checkpoints.internal"
    with EmittingMirror(pair.config) as mirror:
        eventually(lambda: topic in topic_names(pair.b) and group in str(read_all(pair.b, topic)))
        eventually(lambda: mirror.snapshots[0].state is FlowState.RUNNING)
        short_lived.kill(1)
        mirror.stop()
    code, plan = failover.show("plan")
    assert plan["plan"]["source_problem"]
    (part,) = plan["plan"]["partitions"]
    assert (part["topic"], part["target_topic"]) == (pair.topic, pair.remote)
    (found,) = [one for one in plan["plan"]["groups"] if one["group"] == group]
    assert (found["from_checkpoints"], found["is_exact"]) == (True, True)
    assert found["places"][0]["topic"] == pair.topic
    code, lines = said(capsys, "offsets", "translate", str(pair.config), "--group", group)
    assert code == 0
    assert pair.remote in json.dumps(lines)
    assert failover.do("run", "--yes")[0] == 0
    assert resume(pair.b, group, pair.remote) == [b"%d" % n for n in range(3, 8)]
