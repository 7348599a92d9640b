"""A replay appends only to copies of its own flow. A topic of the same name may belong to another
client, or be the original from which the old source was copied.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.circle_of_flows import IDENTITY, Circle, copied, once
from tests.support.client import Outgoing, produce
from tests.support.cutover import Commands
from tests.support.topics import create_topic, delete_topic
from twinlog.cli.main import run
from twinlog.control.failback.saved import SavedTail
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]


@pytest.fixture
def circle(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Circle:
    return Circle(tmp_path, [source_cluster, target_cluster])


def brought_home(
    circle: Circle, config: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    """Fail over, then replay all records that never arrived on the target. Return the exit code and
    the output.
    """
    assert run(["failover", "run", str(config), "--yes", "--reason", "A is lost"]) == 0
    folder = config.parent / "tail"
    replay = ["--tail", "replay", "--save", str(folder), "--yes", *words]
    code, out, err = Commands("failback", config, capsys).do("run", *replay)
    return code, out + err


@pytest.mark.witness("a replay appends nothing to another client's topic")
def test_a_topic_of_another_client_under_the_remote_name(
    circle: Circle, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = circle.clusters
    config = circle.file({"A": 0, "B": 1}, ["A->B"])
    circle.put(0, "orders")
    circle.put(0, "pay")
    remote = f"{circle.name('A')}.{circle.topic('pay')}"
    create_topic(b, remote)
    produce(b, remote, [Outgoing(value=b"theirs")] * 10)
    (flow,) = once(config)
    assert sorted(one.code for one in flow.partitions) == ["", "FOREIGN_DATA"]
    code, said = brought_home(circle, config, capsys)
    assert circle.values(1, remote) == [b"theirs"] * 10, said
    assert (code, "[TAIL_UNKNOWN]" in said, remote in said) == (1, True, True), said
    produce(a, circle.topic("orders"), [Outgoing(value=b"late")])
    code, said = brought_home(circle, config, capsys, "--topics", circle.topic("orders"))
    assert (code, "1 record appended by this run" in said) == (0, True), said
    assert len(circle.values(1, remote)) == 10


@pytest.mark.witness("a replay does not append a topic's records to the topic that they came from")
def test_a_topic_that_came_from_the_target_under_its_own_name(
    circle: Circle, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"replication_policy_class": IDENTITY}
    circle.put(1, "pay")
    copied(circle.file({"W": 1, "A": 0}, ["W->A"], "there", **policy))
    circle.put(0, "orders")
    config = circle.file({"A": 0, "B": 1}, ["A->B"], **policy)
    (flow,) = once(config)
    assert sorted(one.code for one in flow.partitions) == ["", "COPIED_BACK"]
    code, said = brought_home(circle, config, capsys)
    assert len(circle.values(1, circle.topic("pay"))) == 20, said
    assert (code, "[COPIED_BACK]" in said, circle.flow("W->A") in said) == (1, True, True), said
    code, said = brought_home(circle, config, capsys, "--topics", circle.topic("orders"))
    assert code == 0, said


def test_a_remote_topic_that_another_client_recreated_while_the_tail_was_saved(
    circle: Circle, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = circle.clusters[1]
    config = circle.file({"A": 0, "B": 1}, ["A->B"])
    circle.put(0, "orders")
    copied(config)
    circle.put(0, "orders", begin=20)
    remote = f"{circle.name('A')}.{circle.topic('orders')}"
    write = SavedTail.write_manifest

    def made_anew(self: SavedTail, *args: object) -> None:
        write(self, *args)  # type: ignore[arg-type]
        delete_topic(b, remote)
        create_topic(b, remote)
        produce(b, remote, [Outgoing(value=b"theirs")] * 10)

    monkeypatch.setattr(SavedTail, "write_manifest", made_anew)
    code, said = brought_home(circle, config, capsys)
    assert circle.values(1, remote) == [b"theirs"] * 10, said
    assert (code, "[TARGET_RECREATED]" in said) == (1, True), said
