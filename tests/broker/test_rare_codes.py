"""Codes that have a single rare cause. Each test creates the cause of one code."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, producer
from tests.support.left_by_mirror_maker import STORAGE_PARTITIONS, Left, outgoing
from tests.support.settings import HURRIED, settings_for
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.client import MirrorClient
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.connection import Connection
from twinlog.config.load import load
from twinlog.control.adopt import adoption
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import (
    BrokerRefused,
    CorruptData,
    FlowError,
    PartitionError,
    TwinlogError,
    Unauthorized,
    Unreachable,
)
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.open_transactions import held_back
from twinlog.wire.error_codes import error_for
from twinlog.wire.mm2_records import Checkpoint

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("kind", "code"),
    [(FlowError, "FLOW"), (PartitionError, "PARTITION"), (BrokerRefused, "BROKER_REFUSED")],
)
def test_an_error_without_its_own_code_has_the_code_of_its_kind(
    kind: type[TwinlogError], code: str
) -> None:
    assert str(kind("what happened")) == f"what happened [{code}]"


@pytest.mark.parametrize(
    ("number", "code"), [(53, "TRANSACTIONAL_ID_UNAUTHORIZED"), (65, "UNAUTHORIZED")]
)
def test_rights_that_no_request_of_twinlog_needs_today(number: int, code: str) -> None:
    error = error_for(number, cluster="A", doing="asking")
    assert (type(error), error.code) == (Unauthorized, code)


def test_wrong_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["offsets", "translate", str(tmp_path / "mm2.properties")]) == 2
    assert capsys.readouterr().err.rstrip().endswith("[USAGE]")


def test_broker_that_is_not_alive(source_cluster: LocalCluster) -> None:
    settings = settings_for(source_cluster.bootstrap)
    with ClusterClient(settings, patience=HURRIED, api_timeout_s=1.0) as client:
        client.metadata([])
        with pytest.raises(Unreachable) as caught:
            client.connection_to(77)
    assert caught.value.code == "BROKER_NOT_AVAILABLE"


@contextmanager
def nonsense() -> Iterator[int]:
    """The port of a server that sends truncated responses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with sock:
                        sock.recv(1 << 16)
                        sock.sendall(struct.pack(">ii", 4, 1))

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]


def test_answer_that_makes_no_sense() -> None:
    with nonsense() as port, pytest.raises(CorruptData) as caught:
        Connection.open("127.0.0.1", port, settings_for(f"127.0.0.1:{port}"))
    assert caught.value.code == "CORRUPT_ANSWER"


def test_record_of_mirror_maker_2_that_cannot_be_read() -> None:
    with pytest.raises(CorruptData) as caught:
        Checkpoint.decode(b"\x00\x00", b"")
    assert caught.value.code == "MM2_RECORD"


def test_open_transaction_is_named_by_its_code(
    tmp_path: Path, source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    client = producer(source_cluster, config={"transactional.id": f"test-{uuid.uuid4()}"})
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(fresh_topic, value=b"open", partition=0)
    client.flush(30)
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = A, B\nA.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = 127.0.0.1:9\nA->B.enabled = true\ntopics = {fresh_topic}\n"
    )
    (flow,) = load(path, environment={}).flows
    with ClusterClient(flow_setup(flow).source) as source:
        (found,) = held_back(flow, source)
    assert str(found).endswith("[OPEN_TRANSACTION]")
    client.abort_transaction(30)


def test_checkpoints_that_are_not_read_in_time(target_cluster: LocalCluster) -> None:
    alias = f"A{uuid.uuid4().hex[:6]}"
    topic = create_topic(target_cluster, f"{alias}.checkpoints.internal")
    one = Checkpoint(
        group="g",
        topic_partition=TopicPartition(f"{alias}.t", 0),
        upstream_offset=1,
        downstream_offset=1,
    )
    produce(target_cluster, topic, [Outgoing(key=one.key(), value=one.value())] * 20_000)
    with MirrorClient({"bootstrap.servers": target_cluster.bootstrap}) as client:

        def is_not_read_in_time() -> bool:
            with pytest.raises(TwinlogError) as caught:
                client.remote_consumer_offsets("g", alias, timeout_s=0.05)
            return caught.value.code == "TIMED_OUT"  # or the first response itself was too late

        eventually(is_not_read_in_time)


@pytest.mark.witness("a foreign record in MirrorMaker 2's remote topic prevents its take-over")
def test_topic_of_mirror_maker_2_that_another_client_wrote_to(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(adoption, "QUIET_S", 0.2)
    alias = f"A{uuid.uuid4().hex[:6]}"
    left = Left(source_cluster, target_cluster, fresh_topic, tmp_path / "mm2.properties", alias)
    left.write_file()
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, outgoing(range(30)))
    create_topic(target_cluster, left.storage, STORAGE_PARTITIONS)
    create_topic(target_cluster, left.remote)
    produce(target_cluster, left.remote, [*outgoing(range(10)), Outgoing(b"x", b"a stranger's")])
    left.note(9)
    found = left.adopt()
    assert (found.state, found.records) == ("FAILED", 0)
    (said,) = [line for line in caplog.messages if "not taken over" in line]
    assert "MM2_PLACE_UNKNOWN" in said
    assert f"{left.remote}-0" in said
    assert "offset 10" in said
