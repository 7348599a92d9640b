"""The configuration changes while a mirror runs. Changed flows restart, and other flows
continue.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.process.reload import file_watch
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import ConfigError
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


class Reloading:
    """A mirror of A->B and B->A. Tests rewrite its file and reload it."""

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path) -> None:
        self.source, self.target = source, target
        self.mark = secrets.token_hex(3)
        self.there, self.back = f"A{self.mark}->B{self.mark}", f"B{self.mark}->A{self.mark}"
        self.path = folder / "mm2.properties"

    def topic(self, name: str) -> str:
        return f"{name}-{self.mark}"

    def remote(self, name: str) -> str:
        return f"A{self.mark}.{name}-{self.mark}"

    def write(self, flows: Mapping[str, str], **more: str) -> None:
        lines = [f"clusters = A{self.mark}, B{self.mark}"]
        lines += [f"A{self.mark}.bootstrap.servers = {self.source.bootstrap}"]
        lines += [f"B{self.mark}.bootstrap.servers = {self.target.bootstrap}"]
        lines += ["replication.factor = 1", "twinlog.state.topic.replication.factor = 1"]
        lines += ["emit.heartbeats.enabled = false"]
        for flow, topics in flows.items():
            lines += [f"{flow}.enabled = true", f"{flow}.topics = {topics}"]
        lines += [f"{key.replace('_', '.')} = {value}" for key, value in more.items()]
        self.path.write_text("\n".join(lines) + "\n")

    def mirror(self) -> Mirror:
        return Mirror(self.path)

    def flow(self, mirror: Mirror, name: str) -> FlowSnapshot:
        found = [flow for flow in mirror.snapshots if flow.flow == name]
        assert found, f"{name} is not shown yet"
        return found[0]

    def states(self, mirror: Mirror, name: str) -> dict[str, str]:
        parts = self.flow(mirror, name).partitions
        return {p.topic.removesuffix(f"-{self.mark}"): p.state for p in parts}

    def put(self, name: str, *values: bytes) -> None:
        produce(self.source, self.topic(name), [Outgoing(value=value) for value in values])

    def on_target(self, name: str) -> list[bytes | None]:
        return [record.value for record in read_all(self.target, self.remote(name))]


@pytest.fixture
def two_ways(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Reloading]:
    this = Reloading(source_cluster, target_cluster, tmp_path)
    for name in ("orders", "payments"):
        create_topic(source_cluster, this.topic(name), 1)
    create_topic(target_cluster, this.topic("returns"), 1)
    this.write({this.there: this.topic("orders"), this.back: this.topic("returns")})
    yield this


def copies(this: Reloading, mirror: Mirror, name: str, *topics: str) -> None:
    eventually(
        lambda: all(this.states(mirror, name).get(t) in ("COPYING", "AT_END") for t in topics), 20
    )


@pytest.mark.witness("a reload restarts only the changed flow")
def test_only_the_changed_flow_begins_again_and_nothing_is_lost(two_ways: Reloading) -> None:
    this = two_ways
    with (
        this.mirror() as mirror,
        Load(this.source, this.topic("orders")) as load_,
    ):
        copies(this, mirror, this.there, "orders")
        copies(this, mirror, this.back, "returns")
        both = f"{this.topic('orders')}, {this.topic('payments')}"
        this.write({this.there: both, this.back: this.topic("returns")})
        this.put("payments", b"p1")
        topics = this.topic("orders")
        assert mirror.reload() == (f'{this.there}: {this.there}.topics: "{topics}" -> "{both}"',)
        copies(this, mirror, this.there, "orders", "payments")
        assert this.flow(mirror, this.there).generation == 1
        assert this.flow(mirror, this.back).generation == 0
        count = load_.stop()
        eventually(lambda: this.flow(mirror, this.there).records >= count)
        mirror.stop()
    sent = [record.value for record in read_all(this.source, this.topic("orders"))]
    assert this.on_target("orders") == sent
    assert this.on_target("payments") == [b"p1"]


def test_topic_off_the_list_is_released_and_keeps_its_target(two_ways: Reloading) -> None:
    this = two_ways
    both = f"{this.topic('orders')}, {this.topic('payments')}"
    this.write({this.there: both})
    with this.mirror() as mirror:
        this.put("payments", b"p1")
        copies(this, mirror, this.there, "orders", "payments")
        eventually(lambda: this.on_target("payments") == [b"p1"])
        this.write({this.there: this.topic("orders")})
        mirror.reload()
        eventually(lambda: this.states(mirror, this.there).get("payments") == "RELEASED")
        this.put("payments", b"p2")
        this.put("orders", b"o1")
        eventually(lambda: this.on_target("orders") == [b"o1"])
        assert this.on_target("payments") == [b"p1"]
        # with the former file, the copy continues where it was
        this.write({this.there: both})
        mirror.reload()
        eventually(lambda: this.on_target("payments") == [b"p1", b"p2"])


def test_file_that_changes_again_while_the_flow_ends(
    two_ways: Reloading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is changed a second time while a flow ends because of the first change. The flow
    must then start with the second change.
    """
    this = two_ways
    this.write({this.there: this.topic("orders")})
    ends, may_end = threading.Event(), threading.Event()
    rest = PreparedFlow.end_generation

    def slowly(one: PreparedFlow, *, drained: bool, successor: FlowSetup | None) -> None:
        rest(one, drained=drained, successor=successor)
        ends.set()
        may_end.wait(PATIENCE_S)

    monkeypatch.setattr(PreparedFlow, "end_generation", slowly)
    with this.mirror() as mirror:
        copies(this, mirror, this.there, "orders")
        this.write({this.there: "nothing-of-this-name"})
        mirror.reload()
        eventually(ends.is_set)
        this.write({this.there: this.topic("payments")})
        mirror.reload()
        may_end.set()
        this.put("payments", b"p1")
        eventually(lambda: this.on_target("payments") == [b"p1"])
        mirror.stop()


def test_flows_come_and_go(two_ways: Reloading) -> None:
    this = two_ways
    this.write({this.back: this.topic("returns")})
    with this.mirror() as mirror:
        copies(this, mirror, this.back, "returns")
        this.write({this.there: this.topic("orders")})
        this.put("orders", b"o1")
        assert mirror.reload() == (f"{this.there}: added", f"{this.back}: removed")
        assert mirror.reload() == (), "the same again changes nothing"
        eventually(lambda: [flow.flow for flow in mirror.snapshots] == [this.there])
        eventually(lambda: this.on_target("orders") == [b"o1"])


@pytest.mark.parametrize(
    ("broken", "said"),
    [("orders-(", "topics"), ("orders\ntwinlog.no.such.key = 1", "twinlog.no.such.key")],
)
def test_invalid_file_changes_nothing(
    two_ways: Reloading, caplog: pytest.LogCaptureFixture, broken: str, said: str
) -> None:
    this = two_ways
    with this.mirror() as mirror:
        copies(this, mirror, this.there, "orders")
        this.write({this.there: broken})
        with pytest.raises(ConfigError, match=re.escape(said)):
            mirror.reload()
        kept = "the configuration was not reloaded, everything stays as it is"
        (line,) = [r.getMessage() for r in caplog.records if kept in r.getMessage()]
        assert said in line
        this.put("orders", b"o1")
        eventually(lambda: this.on_target("orders") == [b"o1"])
        assert this.flow(mirror, this.there).generation == 0


def test_transforms_that_do_not_run_change_nothing(two_ways: Reloading) -> None:
    """The new file has transforms that cannot run in this process. It is refused and the old flow
    continues, because a mirror without these transforms would copy the records unchanged.
    """
    this = two_ways
    with this.mirror() as mirror:
        copies(this, mirror, this.there, "orders")
        cut = f"{this.there}.twinlog.transforms"
        lines = {cut: "cut", f"{cut}.cut.topics": ".*", f"{cut}.cut.sql": "SELECT * FROM records"}
        lines[f"{this.there}.twinlog.target.partitions"] = "all-keyed"
        both = f"{this.topic('orders')}, {this.topic('payments')}"
        this.write({this.there: both}, **lines)
        with pytest.raises(ConfigError, match="TRANSFORMS_NOT_RUN"):
            mirror.reload()
        assert this.flow(mirror, this.there).generation == 0
        assert set(this.states(mirror, this.there)) == {"orders"}


def test_changed_file_is_noticed_by_itself(
    two_ways: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    this = two_ways
    caplog.set_level(logging.WARNING)
    flows = {this.there: this.topic("orders")}
    this.write(flows, twinlog_config_reload_interval_seconds="1")
    with this.mirror() as mirror, file_watch(mirror.reloader, mirror.commands):
        copies(this, mirror, this.there, "orders")
        flows[this.there] = this.topic("payments")
        this.write(flows, twinlog_config_reload_interval_seconds="1")
        copies(this, mirror, this.there, "payments")


@pytest.mark.witness("a reload prints no secret")
def test_secrets_are_not_shown(two_ways: Reloading, caplog: pytest.LogCaptureFixture) -> None:
    this = two_ways
    caplog.set_level(logging.INFO)
    flows = {this.there: this.topic("orders")}
    with this.mirror() as mirror:
        copies(this, mirror, this.there, "orders")
        this.write(flows, ssl_truststore_password="hunter2")
        changes = mirror.reload()
        assert any("ssl.truststore.password: not set -> <hidden>" in line for line in changes)
        assert all(line in caplog.text for line in changes)
    assert "hunter2" not in caplog.text
