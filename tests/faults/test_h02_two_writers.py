"""H2: a second writer writes to the remote topic: a lane that was given up but still runs, or
another client.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import raw
from tests.support.client import Outgoing, eventually, produce
from tests.support.lanes import ProcessJob
from tests.support.rig import OLD, Rig, freeze, kill, thaw
from tests.support.rounds import REPORT, lane_rounds
from tests.support.topics import create_topic
from twinlog.cluster.logs.producers import init_producer_id

pytestmark = [pytest.mark.faults, pytest.mark.broker]

SILENCE_MS = 2_000

FREEZES_BEFORE_IT_SENDS = """
import os, signal
from twinlog.lane.sides.target_side import TargetSide
send_one = TargetSide._submit_one
def freeze_then_send(*arguments):
    try:
        os.unlink({flag!r})
    except FileNotFoundError:
        pass
    else:
        os.kill(os.getpid(), signal.SIGSTOP)
    return send_one(*arguments)
TargetSide._submit_one = freeze_then_send
"""


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up lanes after 2 s instead of 10 s, and their sockets after 1 s."""
    monkeypatch.setattr("twinlog.lane.late_requests.SILENCE_MS", SILENCE_MS)
    monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", 1_000)


def test_naive_lane_that_comes_back_after_an_expiry_writes_twice_and_makes_the_next_one_repeat(
    rig: Rig,
) -> None:
    create_topic(rig.target, rig.remote)
    us = init_producer_id(rig.target_client).producer_id
    first = second = raw.Writer(rig.target_client, rig.there, us)
    batch = {
        at: [rig.record(n, age_ms=OLD) for n in range(at, at + 15)] for at in (0, 15, 30, 45, 60)
    }

    for at in (0, 15, 30, 45):
        second.send(batch[at], at).expect_ok()
    assert first.send(batch[15], 15).expect_ok() == 15, "while the target knows us: nothing twice"
    rig.forgotten()
    assert first.send(batch[30], 30).expect_ok() == 60, "a stale batch is appended"
    assert second.send(batch[60], 60).error == raw.OUT_OF_ORDER_SEQUENCE
    assert rig.producers()[us].last_sequence == 44, "the position moved back"
    second.send(batch[45], 45).expect_ok()
    assert rig.numbers() == [*range(60), *range(30, 60)]


@pytest.mark.witness("H2: a frozen lane writes nothing after it wakes up", case="anywhere")
@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize("place", ["anywhere", "about-to-send"])
def test_lane_frozen_past_its_deadline_writes_nothing_when_it_wakes(
    rig: Rig, tmp_path: Path, place: str
) -> None:
    flag = tmp_path / "freeze"
    rig.create()
    rig.put(range(10), age_ms=OLD)
    with rig.mirror(prelude=FREEZES_BEFORE_IT_SENDS.format(flag=str(flag))) as mirror:
        rig.copied(10)
        rig.forgotten()
        frozen = mirror.leases.pids()
        with pytest.MonkeyPatch.context() as patch:
            # the executor is unreachable, so its job cannot be cancelled
            patch.setattr(ProcessJob, "cancel", lambda _job: None)
            if place == "anywhere":
                freeze(frozen)
            else:
                flag.touch()
            rig.put(range(10, 15), age_ms=OLD)
            rig.put(range(15, 20), age_ms=OLD)
            rig.copied(20)
            rig.forgotten()
            thaw(frozen)
            eventually(lambda: not {*frozen} & {*mirror.leases.pids()}, what="its end")
            rig.put(range(20, 25), age_ms=OLD)
            rig.copied(25)
        # do not check the state, because HELD_BACK may be shown for a moment after its reason has
        # ended
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    assert rig.numbers() == list(range(25))
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize("victim", ["lane", "broker"])
def test_killed_in_the_midst_of_old_records(rig: Rig, victim: str) -> None:
    rig.create()
    for at in range(1000):
        rig.put([at], age_ms=OLD)
    with rig.mirror(
        prelude="import twinlog.lane.assignments as s, twinlog.lane.loop as l\n"
        "s.USER_TIMEOUT_MS = l.USER_TIMEOUT_MS = 2000\n"
    ) as mirror:
        rig.copied(100)
        if victim == "lane":
            kill(mirror.leases.pids())
        else:
            rig.target.kill(1)
            rig.target.restart(1)
        assert rig.end() < 1000
        rig.copied(1000)
        mirror.stop()
    assert rig.numbers() == list(range(1000))
    rig.same()
    rig.offsets_are_exact()


def test_late_request_of_old_records_after_a_start_that_found_the_producer_id(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recent record keeps the producer ID alive at the target, so no lane waits at its start. The
    next records are old. After they are written, the target expires the ID, and would accept the
    dead lane's late request. So the new lane must wait before it writes them.
    """
    rounds = lane_rounds(monkeypatch)
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        dead = mirror.leases.pids()
        kill(dead)
        rig.put(range(10, 20), age_ms=OLD)
        eventually(lambda: mirror.leases.pids() and mirror.leases.pids() != dead, what="a new lane")
        mirror.eventually(lambda parts: parts[0].lag == 10)
        # a lane that did not wait would have copied the records by the next report
        rounds.pass_by(REPORT)
        late = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        late.send([rig.record(n, age_ms=OLD) for n in range(10, 20)], 10).expect_ok()
        rig.put(range(20, 30))
        rig.copied(30)
        mirror.eventually(lambda parts: (parts[0].lag, parts[0].code) == (0, ""))
        mirror.stop()
    assert rig.numbers() == list(range(30))
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness(
    "H2: a fresh record does not wait for late requests of old records", case="ours"
)
@pytest.mark.parametrize("first", ["ours", "late"])
def test_fresh_record_waits_for_no_late_request_although_the_producer_id_expired(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """A late request of the killed lane begins with the same record as the new lane's request, so
    the target accepts only one of them. A fresh record (younger than the producer ID's expiry) is
    therefore written without waiting. An old record is held back.
    """
    monkeypatch.setattr("twinlog.lane.late_requests.SILENCE_MS", SILENCE_MS)
    monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", 600_000)
    rounds = lane_rounds(monkeypatch)
    rig.create()
    rig.put(range(10), age_ms=OLD)
    with rig.mirror(
        prelude="import twinlog.lane.cold_starts as c\nc.USER_TIMEOUT_MS = 600_000\n"
    ) as mirror:
        rig.copied(10)
        rig.forgotten()
        kill(mirror.leases.pids())
        mirror.eventually(lambda parts: parts[0].state != "AT_END")
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        late = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        if first == "late":
            late.send([rig.record(10)], 10).expect_ok()
        rig.put([10])
        rig.copied(11)
        assert late.send([rig.record(10)], 10).expect_ok() == 10, "known as a repeat"
        rig.put([11])
        rig.copied(12)
        rig.put([12], age_ms=OLD)
        mirror.eventually(lambda parts: parts[0].state == "STARTING")
        rounds.pass_by(REPORT)
        (part,) = mirror.eventually(lambda parts: parts[0].lag == 1)
        assert part.code == ""
        mirror.stop()
    assert rig.numbers() == list(range(12))
    rig.offsets_are_exact()


def test_leases_change_while_the_target_expires_the_producer_id_again_and_again(rig: Rig) -> None:
    rig.create()
    with rig.mirror(lease_s=1.0) as mirror:
        count = 0
        while count < 400 or len(mirror.leases.jobs) <= 4:
            rig.put(range(count, count + 5), age_ms=OLD)
            count += 5
            time.sleep(0.02)
        rig.copied(count)
        mirror.stop()
    assert rig.numbers() == list(range(count))
    rig.same()
    rig.offsets_are_exact()


def test_stale_batch_that_got_in_is_a_stop_and_never_a_second_copy(rig: Rig) -> None:
    rig.create()
    for at in range(0, 40, 10):
        rig.put(range(at, at + 10), age_ms=OLD)
    rig.copy_once()
    rig.forgotten()
    zombie = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
    stale = [rig.record(n, age_ms=OLD) for n in range(10, 20)]
    assert zombie.send(stale, 10).expect_ok() == 40
    assert rig.producers()[zombie.producer_id].last_sequence == 19, "naively: continue at 20"
    rig.put(range(40, 50), age_ms=OLD)

    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS"
    assert "30 records from offset 40 on" in message
    assert rig.numbers() == [*range(40), *range(10, 20)]


@pytest.mark.witness("H2: another producer during a copy is reported with the range of its records")
def test_foreign_writer_during_a_copy_is_detected_with_the_range(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        produce(rig.target, rig.remote, [Outgoing(b"x", b"u900"), Outgoing(b"x", b"u901")])
        rig.put(range(10, 20))
        (part,) = mirror.eventually(lambda parts: parts[0].code == "EXTRA_RECORDS")
        assert "[10, 12)" in part.message
        rig.put(range(20, 30))
        mirror.stop()
    assert rig.numbers() == [*range(10), 900, 901, *range(10, 20)]
    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS"
    assert "offset 10" in message


def test_foreign_writer_while_no_mirror_ran_is_detected_at_the_start(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    produce(rig.target, rig.remote, [Outgoing(b"x", b"u900"), Outgoing(b"x", b"u901")])
    rig.put(range(10, 20))
    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS"
    assert "offset 10" in message
    assert rig.numbers() == [*range(10), 900, 901]


@pytest.mark.witness("H2: a topic with foreign records is not written to")
def test_topic_that_was_there_with_foreign_records_is_not_written_to(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    create_topic(rig.target, rig.remote)
    produce(rig.target, rig.remote, [Outgoing(b"x", b"u900")])
    code, message = rig.fail_once()
    assert code == "FOREIGN_DATA"
    assert "[0, 1)" in message
    assert rig.numbers() == [900]


def test_acknowledged_records_that_vanish_under_the_same_leader_stop_the_partition(
    rig: Rig,
) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        (part,) = mirror.eventually(lambda parts: parts[0].records == 10)
        known = mirror.partition(rig.here)
        # simulates a broker that acknowledged 7 more records and then lost them
        known.acked_ordinal += 7
        kill(mirror.leases.pids())
        rig.put(range(10, 20))
        (part,) = mirror.eventually(lambda parts: parts[0].code == "POSITION_REGRESSED")
        assert part.message.count("7 records") == 1
        assert rig.end() == 10
        mirror.stop()


def test_records_that_a_new_leader_does_not_have_are_copied_again(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].records == 10)
        known = mirror.partition(rig.here)
        known.acked_ordinal, known.acked_epoch = known.acked_ordinal + 7, known.acked_epoch - 1
        kill(mirror.leases.pids())
        rig.put(range(10, 20))
        rig.copied(20)
        mirror.stop()
    rig.same()
    eventually(lambda: rig.numbers() == list(range(20)))
