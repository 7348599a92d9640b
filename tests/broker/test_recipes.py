"""The files of docs/recipes run unchanged, except for addresses, replication factors and this
test's names.
"""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.groups import commit, committed
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
ARRIVES = {
    "disaster-recovery": [("primary", "orders", "standby", "primary.orders")],
    "migration": [("old", "orders-eu", "new", "orders-eu"), ("old", "payments", "new", "payments")],
    "analytics": [
        ("live", "orders-eu", "analytics", "live.orders-eu"),
        ("live", "clicks", "analytics", "live.clicks"),
    ],
    "aggregation": [
        ("east", "orders", "central", "east.orders"),
        ("west", "orders", "central", "west.orders"),
    ],
}
"""The copies that each file makes, as (source, topic, target, remote topic)."""

MOVES = {"migration": "payments"}
"""Topic of each file whose groups the mirror sets on the target."""

STAYS = {"analytics": [("live", "orders-eu.retry")]}


def test_every_recipe_is_tried() -> None:
    files = {file.stem for file in RECIPES.glob("*.properties")}
    assert files == set(ARRIVES)
    pages = (RECIPES / "README.md").read_text()
    for name in files:
        assert f"({name}.md)" in pages
        assert f"({name}.properties)" in (RECIPES / f"{name}.md").read_text()


@pytest.mark.parametrize("name", ARRIVES)
def test_recipe_copies_the_topics_of_its_page(
    name: str,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    cleanup = ExitStack()
    request.addfinalizer(cleanup.close)
    mark = uuid.uuid4().hex[:6]
    text = (RECIPES / f"{name}.properties").read_text()
    senders = {source for source, *_ in ARRIVES[name]}
    aliases = [alias.strip() for alias in text.split("clusters = ")[1].splitlines()[0].split(",")]
    clusters = {a: source_cluster if a in senders else target_cluster for a in aliases}
    # each source needs its own cluster, because two aliases of one cluster would be one source
    more = sorted(senders)[1:]
    clusters |= {alias: cleanup.enter_context(LocalCluster(alias)) for alias in more}
    text = re.sub(r"(replication\.factor) = 3", r"\1 = 1", text)
    for alias, cluster in clusters.items():
        address = f"{alias}.bootstrap.servers = {cluster.bootstrap}"
        text = re.sub(rf"(?m)^{alias}\.bootstrap\.servers = .*$", address, text)
        # unique aliases and topics, because other tests mirror on the same clusters
        text = re.sub(rf"\b{alias}(?=[.,>\n-])(?!-1)", f"{alias}{mark}", text)
    topics = {topic for _, topic, *_ in ARRIVES[name]} | {t for _, t in STAYS.get(name, ())}
    selected = r"(?m)^(.*\.topics) = .*$"
    text = re.sub(selected, rf"\1 = {mark}\\.(?:{'|'.join(map(re.escape, topics))})", text)
    for cluster in (clusters[sender] for sender in senders):
        for topic in topics:
            create_topic(cluster, f"{mark}.{topic}", 1)
            produce(cluster, f"{mark}.{topic}", [Outgoing(value=b"1"), Outgoing(value=b"2")])
    group, moved = f"group-{mark}", f"{mark}.{MOVES.get(name, '')}"
    if name in MOVES:
        commit(source_cluster, group, moved, 1)
    file = tmp_path / f"{name}.properties"
    file.write_text(text)
    with Mirror(file, once=True) as mirror:
        flows = mirror.wait()
    assert {p.state for flow in flows for p in flow.partitions} <= {"DONE", "TAKEN_OVER"}
    for source, topic, target, remote in ARRIVES[name]:
        there = remote.replace(source, f"{source}{mark}", 1) if remote != topic else remote
        there = there.replace(topic, f"{mark}.{topic}")
        assert [r.value for r in read_all(clusters[target], there)] == [b"1", b"2"]
    if name in MOVES:
        assert committed(target_cluster, group, moved) == 1
        assert run(["groups", "ready", str(file), "--group", group]) == 0
        file.write_text(f"{text}\ntwinlog.status.interval.seconds = 1\n")
        with Mirror(file, lanes=1) as mirror:
            eventually(lambda: run(["switchover", "plan", str(file)]) == 0)
            assert run(["switchover", "run", str(file), "--fence", "none", "--yes"]) == 0
            eventually(lambda: mirror.snapshots[0].state == "FENCED")
            mirror.stop()
    for _, topic in STAYS.get(name, ()):
        copied = {p.topic for flow in flows for p in flow.partitions}
        assert f"{mark}.{topic}" not in copied
