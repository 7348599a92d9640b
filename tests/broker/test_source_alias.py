"""Flows whose `source.cluster.alias`, which is used in topic names, differs from the source's
name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.client import eventually, produce
from tests.support.clusters import private_cluster
from tests.support.config_examples import EXAMPLES
from tests.support.cutover import Commands
from tests.support.groups import IDENTITY, Pair, commit, committed, numbered, resume
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.rights import SecuredPair
from tests.support.switchover_case import Case
from tests.support.topics import create_topic, delete_topic, offset_map_topic, topic_names
from twinlog.cli.main import run
from twinlog.client import MirrorClient, TopicPartition, Translation
from twinlog.errors import FlowError
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

COPIED = 20
AT = 7


class Copied:
    """A flow that has copied twenty records, and a group at offset seven with a checkpoint on the
    target.
    """

    def __init__(
        self,
        folder: Path,
        source: LocalCluster,
        target: LocalCluster,
        capsys: pytest.CaptureFixture[str],
        *,
        identity: bool = False,
    ) -> None:
        self.pair = Pair(
            folder, source, target, both_ways=False, sync=False, identity=identity, has_alias=True
        )
        self.here = TopicPartition(self.pair.topic, 0)
        self.there = TopicPartition(self.pair.remote, 0)
        self.failover = Commands("failover", self.pair.config, capsys)
        self.failback = Commands("failback", self.pair.config, capsys)
        create_topic(source, self.pair.topic)
        produce(source, self.pair.topic, numbered(0, COPIED))
        self.group = self.pair.stop_at(AT)
        with EmittingMirror(self.pair.config, lanes=1) as mirror:
            eventually(self._has_checkpoint)
            mirror.stop()

    def _has_checkpoint(self) -> bool:
        topic = f"{self.pair.site}.checkpoints.internal"
        if topic not in topic_names(self.pair.b):
            return False
        with MirrorClient({"bootstrap.servers": self.pair.b.bootstrap}) as client:
            found = client.remote_consumer_offsets(self.group, self.pair.site)
        return {one.upstream_offset for one in found.values()} == {AT}

    @property
    def names(self) -> tuple[str, str]:
        """Return the source's alias in topic names, and its name in the file."""
        return self.pair.site, self.pair.alias_a


@pytest.fixture
def copied(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Copied:
    return Copied(tmp_path, source_cluster, target_cluster, capsys)


@pytest.mark.witness(
    "a switchover finds the offset map if the remote topics use another source alias"
)
def test_switchover(
    guarded_pair: SecuredPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(guarded_pair, tmp_path, capsys, has_alias=True)
    for topic in (case.orders, case.sales):
        produce(case.pair.source, topic, numbered(0, COPIED))
    group = f"{case.group}-shop"
    commit(case.pair.source, group, case.orders, AT)
    with Mirror(case.file) as mirror:
        eventually(lambda: case.copied(case.orders) == case.copied(case.sales) == COPIED)
        eventually(lambda: case.commands.show("plan")[0] == 0)
        code, shown = case.commands.show("plan")
        parts = {one["topic"]: one for one in shown["plan"]["partitions"]}
        assert {one["copied_to"] for one in parts.values()} == {COPIED}
        code, out, err = case.commands.do("run", "--yes")
        assert code == 0, (out, err)
        mirror.stop()
    assert committed(case.pair.target, group, case.remote(case.orders)) == AT


@pytest.mark.witness(
    "failover and failback find the offset map if the remote topics use another source alias",
    case="default",
)
@pytest.mark.parametrize("identity", [False, True], ids=["default", "identity"])
def test_failover_and_the_way_back(
    identity: bool,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copied = Copied(tmp_path, source_cluster, target_cluster, capsys, identity=identity)
    pair = copied.pair
    code, shown = copied.failover.show("plan")
    (part,) = shown["plan"]["partitions"]
    assert (code, part["copied_to"], part["problem"]) == (0, COPIED, None)
    code, out, err = copied.failover.do("run", "--yes")
    assert code == 0, (out, err)
    assert committed(pair.b, copied.group, pair.remote) == AT
    produce(pair.b, pair.remote, numbered(1000, 5))
    produce(pair.a, pair.topic, numbered(COPIED, 3))
    code, shown = copied.failback.show("plan")
    (part,) = shown["plan"]["partitions"]
    assert (code, part["tail"], part["records"]) == (0, [COPIED, COPIED + 3], 3)


@pytest.mark.witness(
    "clients of the target may use the alias or the name of a source", case="default"
)
@pytest.mark.parametrize("identity", [False, True], ids=["default", "identity"])
def test_clients_of_the_target(
    identity: bool,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copied = Copied(tmp_path, source_cluster, target_cluster, capsys, identity=identity)
    here, there = copied.here, copied.there
    key, _, value = IDENTITY.partition(" = ")
    policy = {key: value.strip()} if identity else {}
    with MirrorClient({"bootstrap.servers": copied.pair.b.bootstrap, **policy}) as client:
        for name in copied.names:
            found = client.exact_consumer_offsets(copied.group, name)
            assert {tp: one.offset for tp, one in found.items()} == {there: AT}
            assert client.to_downstream(name, {here: AT}) == {there: Translation(AT, True)}
            assert client.to_upstream(name, {there: AT}) == {here: Translation(AT, True)}
        assert client.to_downstream("nobody", {here: AT}) == {}
    words = ["offsets", "translate", str(copied.pair.config), "--group", copied.group]
    capsys.readouterr()
    assert run([*words, "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["offsets"]
    assert (line["to_topic"], line["to_offset"], line["is_exact"]) == (there.topic, AT, True)


@pytest.mark.parametrize("identity", [False, True], ids=["default", "identity"])
def test_commands_that_only_look(
    identity: bool,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copied = Copied(tmp_path, source_cluster, target_cluster, capsys, identity=identity)
    file = str(copied.pair.config)
    capsys.readouterr()
    assert run(["check", file]) == 0
    assert copied.pair.remote in capsys.readouterr().out
    assert run(["verify", file, "--deep"]) == 0
    assert "identical" in capsys.readouterr().out
    assert run(["diff", file]) == 0, capsys.readouterr().out
    assert run(["groups", "ready", file, "--group", copied.group]) == 0
    capsys.readouterr()
    assert run(["status", file]) == 0
    assert f"{copied.pair.alias_a}->{copied.pair.alias_b}" in capsys.readouterr().out
    words = ["offsets", "translate", file, "--topic", copied.there.topic, "--partition", "0"]
    assert run([*words, "--offset", str(AT), "--reverse", "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["offsets"]
    assert (line["to_topic"], line["to_offset"]) == (copied.here.topic, AT)


class Pasted:
    """A typical configuration file, with or without a line for the source's alias."""

    def __init__(
        self,
        folder: Path,
        source: LocalCluster,
        target: LocalCluster,
        capsys: pytest.CaptureFixture[str],
        *,
        has_line: bool,
    ) -> None:
        self.target, self.capsys = target, capsys
        self.remote = "site1.orders" if has_line else "source.orders"
        self.file = folder / f"{target.name}.properties"
        text = (EXAMPLES / "source-alias.properties").read_text()
        text = text.replace("127.0.0.1:9092", source.bootstrap)
        text = text.replace("127.0.0.1:9093", target.bootstrap)
        if not has_line:
            text = text.replace("source.cluster.alias = site1\n", "")
        # synchronize offsets every second, instead of every minute
        self.file.write_text(f"{text}sync.group.offsets.interval.seconds = 1\n")

    def says(self, *words: str) -> tuple[int, Any]:
        """Return the exit code and the JSON output of a command. The alias in names is replaced by
        the source's name, so that outputs can be compared.
        """
        self.capsys.readouterr()
        code = run([words[0], *words[1:2], str(self.file), *words[2:], "--format", "json"])
        return code, json.loads(self.capsys.readouterr().out.replace("site1.", "source."))

    def answers(self) -> Iterator[object]:
        """Yield the output of commands while the copy runs, and after a failover."""
        with EmittingMirror(self.file, lanes=1) as mirror:
            eventually(lambda: committed(self.target, "shop", self.remote) == AT)
            yield self.says("groups", "ready", "--group", "shop")
            mirror.stop()
        yield self.says("offsets", "translate", "--group", "shop")
        code, shown = self.says("failover", "plan")
        yield code, shown["plan"]["partitions"], shown["plan"]["groups"]
        with MirrorClient({"bootstrap.servers": self.target.bootstrap}) as client:
            found = client.exact_consumer_offsets("shop", "source")
            yield [(one.topic == self.remote, at.offset) for one, at in found.items()]
        code, shown = self.says("failover", "run", "--yes")
        yield code
        yield resume(self.target, "shop", self.remote)


def test_a_pasted_file_answers_as_without_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        # the flow selects every topic and group of its clusters
        made = [
            private_cluster(name, 1) for name in ("alias-source", "alias-with", "alias-without")
        ]
        source, one, other = pool.map(stack.enter_context, made)
        create_topic(source, "orders")
        produce(source, "orders", numbered(0, COPIED))
        commit(source, "shop", "orders", AT)
        with_line = Pasted(tmp_path, source, one, capsys, has_line=True)
        without = Pasted(tmp_path, source, other, capsys, has_line=False)
        found = [*with_line.answers()]
        assert found == [*without.answers()]
    assert found[-1] == [b"%d" % n for n in range(AT, COPIED)]


def test_data_frames(spark: SparkSession, copied: Copied) -> None:
    for name in copied.names:
        rows = spark.read.format("twinlog").option("subscribe", copied.there.topic)
        rows = rows.option("kafka.bootstrap.servers", copied.pair.b.bootstrap)
        found = rows.option("upstream", name).load().collect()
        assert [one._upstream.offset for one in found] == [one.offset for one in found]
        assert {one._upstream.cluster for one in found} == {name}
        assert len(found) == COPIED


def test_a_missing_map_is_no_empty_map(copied: Copied) -> None:
    pair = copied.pair
    delete_topic(pair.b, offset_map_topic(pair.alias_a))
    with MirrorClient({"bootstrap.servers": pair.b.bootstrap}) as client:
        for name in copied.names:
            with pytest.raises(FlowError) as caught:
                client.to_downstream(name, {copied.here: AT})
            assert caught.value.code == "MAP_MISSING"
    code, out, _ = copied.failover.do("plan")
    assert (code, "was deleted on the target" in out) == (1, True), out
    assert "nothing of it was copied" not in out
