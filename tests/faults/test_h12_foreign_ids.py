"""H12: the producer ID at the target's tail may belong to another client. Only the flow's own
records show who its owner is.
"""

from __future__ import annotations

import pytest

from tests.support import raw
from tests.support.client import Outgoing, produce
from tests.support.rig import Rig
from tests.support.topics import create_topic, delete_topic
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.mirror.names.naming import STATE_TOPIC

pytestmark = [pytest.mark.faults, pytest.mark.broker]


def test_naive_mirror_that_adopts_the_id_at_the_tail_loses_foreign_records(
    rig: Rig,
) -> None:
    create_topic(rig.target, rig.remote)
    their_id = init_producer_id(rig.target_client).producer_id
    they = raw.Writer(rig.target_client, rig.there, their_id)
    they.send([rig.record(n) for n in range(900, 905)], 0).expect_ok()

    (last,) = raw.batches(rig.target_client, rig.there)
    we = raw.Writer(rig.target_client, rig.there, last.producer_id)
    we.send([rig.record(n) for n in range(5)], 5).expect_ok()
    theirs = they.send([rig.record(n) for n in range(905, 910)], 5)
    assert theirs[:2] == (0, 5), "they are told that their records were written"
    assert rig.numbers() == [*range(900, 905), *range(5)]


def test_lost_state_and_a_stranger_at_the_tail(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    produce(rig.target, rig.remote, [Outgoing(b"x", b"u900")])
    (*_, last) = raw.batches(rig.target_client, rig.there)
    delete_topic(rig.target, STATE_TOPIC)
    rig.put(range(10, 20))

    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS"
    assert "offset 10" in message
    assert last.producer_id >= 0
    assert rig.claim().producer_id != last.producer_id
    assert rig.numbers() == [*range(10), 900]


@pytest.mark.witness("H12: a lost state topic alone does not stop the copy")
def test_lost_state_alone_is_no_reason_to_stop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # No row reports that the former process has ended, so a start waits for its lanes; shorten
    # these waits.
    monkeypatch.setattr("twinlog.lane.late_requests.SILENCE_MS", 2_000)
    monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", 1_000)
    rig.create()
    for at in range(0, 20, 10):
        rig.put_at_once([rig.record(n) for n in range(at, at + 10)])
        rig.copy_once()
    before = rig.claim()
    delete_topic(rig.target, STATE_TOPIC)
    for at in range(20, 40, 10):
        rig.put_at_once([rig.record(n) for n in range(at, at + 10)])
        rig.copy_once()
    after = rig.claim()
    assert after.generation > before.generation, "or rows of the map would be taken for old ones"
    assert after.producer_id != before.producer_id
    assert rig.numbers() == list(range(40))
    rig.same()
    rig.offsets_are_exact()
