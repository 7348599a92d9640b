"""A process reads the state topic of a cluster once, and again only when its rows may have changed.
Old claims do not accumulate in the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.support.eventually import eventually
from tests.support.rig import Rig
from tests.support.surgery import cut_log
from tests.support.topics import (
    alter_topic_configs,
    apply_topic_configs,
    create_topic,
    delete_records,
    delete_topic,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, ensure_compacted_topic, read_to_end
from twinlog.config.load import load
from twinlog.control.flow.flow_setup import FlowSetup, TargetFacts
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.leading.lead import SetupWaiting
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.generations import has_written_row, producers_of, winning_claims
from twinlog.mirror.state.state_row import read_row
from twinlog.model import TopicPartition
from twinlog.survey import state_reader
from twinlog.survey.state_reader import StateReader, state_rows

pytestmark = [pytest.mark.faults, pytest.mark.broker]

STATE = TopicPartition(STATE_TOPIC, 0)


@pytest.fixture
def state(rig: Rig) -> Rig:
    """A rig whose target has an empty state topic."""
    ensure_compacted_topic(rig.target_client, STATE_TOPIC, partitions=1, replication_factor=1)
    return rig


def write(rig: Rig, numbers: range) -> None:
    """Write one row for each number, with the number as the producer ID."""
    rows = [has_written_row(rig.flow, number) for number in numbers]
    append_rows(rig.target_client, STATE, rows, rig.began_ms)


def known(client: ClusterClient, rig: Rig) -> set[int]:
    return {*producers_of(rig.flow, state_rows(client))}


@pytest.mark.witness("flows of a process share one reader of the state topic")
def test_each_row_is_read_once_for_all_flows_of_a_process(
    state: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(*args: Any, **keys: Any) -> Iterator[Any]:
        for record in read_to_end(*args, **keys):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(state_reader, "read_to_end", counted)
    write(state, range(50))
    settings = state.target_client.settings
    clients = [ClusterClient(replace(settings, client_id=f"flow-{n}")) for n in range(4)]
    try:
        followers = [StateReader(client, state.flow) for client in clients]
        assert all({*range(50)} <= one.read().producers for one in followers)
        write(state, range(50, 52))
        # a reader that makes a decision reads to the end of the topic
        assert all({*range(52)} <= one.read().producers for one in followers)
        assert all(known(client, state) == {*range(52)} for client in clients)
        for _ in range(70):
            followers[0].read()
    finally:
        for client in clients:
            client.close()
    assert len(read) == len({*read}), "rows were read more than once"


def test_a_topic_that_was_recreated_is_another_one(state: Rig) -> None:
    """The state topic was re-created, and the new topic is longer than the old one. The length does
    not show the change, but readers must read the new topic from its first row.
    """
    write(state, range(5))
    assert known(state.target_client, state) == {*range(5)}
    follower = StateReader(state.target_client, state.flow)
    follower.read()
    delete_topic(state.target, STATE_TOPIC)
    with pytest.raises(TwinlogError) as refused:
        state_rows(state.target_client)
    assert refused.value.code == "TOPIC_MISSING"
    create_topic(state.target, STATE_TOPIC, configs={"cleanup.policy": "compact"})
    eventually(lambda: write_again(state, range(100, 400)))
    assert known(state.target_client, state) == {*range(100, 400)}
    assert {*range(5), 100} <= follower.read().producers, "nobody takes an id back"


def test_rows_that_were_deleted_are_gone(state: Rig) -> None:
    write(state, range(5))
    assert known(state.target_client, state) == {*range(5)}
    apply_topic_configs(state.target, STATE_TOPIC, {"cleanup.policy": "delete"})
    delete_records(state.target, STATE_TOPIC, 0)
    alter_topic_configs(state.target, STATE_TOPIC, {"cleanup.policy": "compact"})
    write(state, range(7, 9))
    assert known(state.target_client, state) == {7, 8}


def test_rows_in_the_room_of_lost_ones_are_read(state: Rig) -> None:
    """The state topic loses its last rows and then grows longer than before. Only the leader epoch
    shows the loss, and the readers must read the new rows.
    """
    write(state, range(5))
    last = [row.offset for row in read_to_end(state.target_client, *STATE)][-1]
    write(state, range(5, 8))
    assert known(state.target_client, state) == {*range(8)}
    state.target.kill(1)
    cut_log(state.target, STATE, last + 1)
    state.target.restart(1)
    eventually(lambda: write_again(state, range(20, 60)))
    assert known(state.target_client, state) == {*range(5), *range(20, 60)}


def write_again(rig: Rig, numbers: range) -> bool:
    """Write the rows. Return False if the leader is not ready yet."""
    try:
        write(rig, numbers)
    except TwinlogError:
        return False
    return True


def claims(rig: Rig) -> list[tuple[str, int]]:
    """Return the kind and generation of each of the flow's claims that remain after compaction."""
    newest = {row.key: row.value for row in read_to_end(rig.target_client, *STATE)}
    parts = (read_row(key, value)[0] for key, value in newest.items() if key and value)
    found = ((p[2], p[3]) for p in parts if p[1] == rig.flow and p[2] in ("generation", "closed"))
    return sorted(found)


@pytest.mark.witness("claims of earlier generations are removed")
def test_a_leader_removes_earlier_claims_and_keeps_their_producer_ids(rig: Rig) -> None:
    rig.create()
    for first in range(3):
        rig.put([first])
        rig.copy_once()
    newest = rig.claim()
    assert claims(rig) == [("closed", 2), ("generation", 2)]
    assert winning_claims(state_rows(rig.target_client))[rig.flow].is_closed
    assert newest.generation == 2
    # a claim under another producer ID that was never closed, because its process was killed
    producer_id = newest.producer_id + 1
    killed = structs.replace(newest, generation=3, claimant="killed", producer_id=producer_id)
    append_rows(rig.target_client, STATE, [killed.encode()], rig.began_ms)
    other = structs.replace(newest, generation=4, claimant="other")
    append_rows(rig.target_client, STATE, [other.encode()], rig.began_ms)
    rig.put([3])
    rig.copy_once()
    assert claims(rig) == [("generation", 5)], "it ended before those before it had surely stopped"
    ids = {newest.producer_id, killed.producer_id}
    assert ids <= producers_of(rig.flow, state_rows(rig.target_client))
    assert rig.numbers() == [0, 1, 2, 3]
    rig.offsets_are_exact()


def test_claims_of_set_ups_that_fail_do_not_pile_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.create()
    setup = flow_setup(load(rig.config(), environment={}).flows[0])

    def fails(*_: object) -> None:
        raise SetupWaiting("no capabilities")

    monkeypatch.setattr(TargetFacts, "capabilities", fails)
    newest = -1
    while newest < 3:
        newest = claimed(setup)
    setup.close(None)
    assert claims(rig) == [("closed", newest), ("generation", newest)]


def claimed(setup: FlowSetup) -> int:
    """Return the generation that another failing set-up has claimed, or -1 if it claimed none."""
    with pytest.raises(TwinlogError):
        setup.prepare(once=False)
    return -1 if setup.claims.own_claim is None else setup.claims.own_claim.generation
