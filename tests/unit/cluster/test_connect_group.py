"""Which connectors the workers of Kafka Connect run, according to the workers' group."""

from __future__ import annotations

import pytest

from twinlog.cluster.groups.group_members import group_of

# written by MirrorMaker 2 of Kafka 4.3 in dedicated mode; only the worker's name was shortened
WORKER = b"\x00\x06worker"
METADATA = (
    b"\x00\x02\x00\x07NOTUSED\x00\x00\x00\x00\x00\x00\x00\n\x00\x00\x00\x91"
    b"\x00\x02\x00\x00"
    + WORKER
    + b"\x00\x07NOTUSED\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x03"
    b"\x00\x15MirrorSourceConnector\x00\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00"
    b"\x00\x18MirrorHeartbeatConnector\x00\x00\x00\x01\xff\xff\xff\xff"
    b"\x00\x19MirrorCheckpointConnector\x00\x00\x00\x01\xff\xff\xff\xff"
    b"\x00\x00\x00\x00\x00\x00\x00\x00"
)
NOTHING_NEW = (
    b"\x00\x02\x00\x00" + WORKER + b"\x00\x07NOTUSED\x00\x00\x00\x00\x00\x00\x00\n"
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)
EAGER_METADATA = b"\x00\x00\x00\x07NOTUSED\x00\x00\x00\x00\x00\x00\x00\n"
EAGER = (
    b"\x00\x00\x00\x00" + WORKER + b"\x00\x07NOTUSED\x00\x00\x00\x00\x00\x00\x00\n\x00\x00\x00\x01"
    b"\x00\x04mine\x00\x00\x00\x01\x00\x00\x00\x00"
)
WITH_TASKS = frozenset({"MirrorSourceConnector"})


def test_connectors_that_a_worker_had_when_it_joined() -> None:
    found = group_of([(METADATA, NOTHING_NEW)])
    assert (found.members, found.connectors) == (1, WITH_TASKS)
    assert found.may_run("MirrorSourceConnector")
    assert not found.may_run("A->B.MirrorSourceConnector")


def test_connectors_that_a_worker_was_assigned() -> None:
    found = group_of([(EAGER_METADATA, EAGER), (METADATA, NOTHING_NEW)])
    assert (found.members, found.connectors) == (2, WITH_TASKS | {"mine"})


def test_a_stopped_connector_is_kept_without_tasks() -> None:
    assert not group_of([(METADATA, NOTHING_NEW)]).may_run("MirrorCheckpointConnector")


def test_a_group_without_workers_runs_nothing() -> None:
    assert not group_of([]).may_run("mine")


@pytest.mark.parametrize(
    "member", [(EAGER_METADATA, b""), (b"", EAGER), (METADATA[:90], NOTHING_NEW), (METADATA, b"xx")]
)
def test_a_worker_with_unknown_data_may_run_anything(member: tuple[bytes, bytes]) -> None:
    assert group_of([member]).may_run("mine")
