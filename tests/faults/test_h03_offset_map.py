"""H3: the offset map is wrong because rows were written ahead, come from dead lanes, or were
lost.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import raw
from tests.support.client import eventually, produce_transaction
from tests.support.map_rows import HOLDS_ITS_DATA, rows, write_row
from tests.support.rig import COMPACTED, Rig, kill, thaw
from tests.support.topics import create_topic, delete_records
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.control.flow.flow_setup import PreparedFlow
from twinlog.control.leading.claims import FlowClaims
from twinlog.mirror.map.offset_map import ChunkRow, Run, Term, run_at
from twinlog.mirror.state.generations import FlowHistory

pytestmark = [pytest.mark.faults, pytest.mark.broker]

MAP_PARTITIONS = 8

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


def naive_upstream(rig: Rig, ordinal: int) -> int:
    """Return the upstream offset at which a naive reader would resume. It uses the newest map row
    of each ordinal (count of this flow's records), whichever lane wrote the row.
    """
    newest: dict[int, Run] = {}
    for row in rows(rig):
        newest |= {run.ordinal: run for run in row.runs}
    run = run_at([newest[at] for at in sorted(newest)], ordinal)
    assert run is not None
    return run.upstream_of(ordinal)


def test_naive_writer_takes_the_answer_to_another_batch_for_its_own(rig: Rig) -> None:
    create_topic(rig.target, rig.remote)
    us = init_producer_id(rig.target_client).producer_id
    lane = raw.Writer(rig.target_client, rig.there, us)
    before = lane.send([rig.record(n) for n in (100, 101, 102)], 1000)
    after = lane.send([rig.record(n) for n in (100, 105, 110)], 1000)
    lane.send([rig.record(n) for n in (111, 112)], 1003).expect_ok()

    assert after[:2] == before[:2] == (0, 0)
    assert rig.numbers() == [100, 101, 102, 111, 112], "105 and 110 are nowhere"
    assert before.log_append_time_ms == -1
    assert after.log_append_time_ms == rig.record(102).timestamp, "but it can be seen"


@pytest.mark.witness(
    "H3: an earlier lane wrote records that the source has lost since", case="compacted"
)
@pytest.mark.parametrize("cause", ["compacted", "deleted"])
def test_other_lane_was_first_with_records_that_the_source_has_no_more(
    rig: Rig, tmp_path: Path, cause: str
) -> None:
    flag = tmp_path / "freeze"
    if cause == "compacted":
        rig.create(**COMPACTED)
        create_topic(rig.target, rig.remote)
    else:
        rig.create()
    rig.put(range(10))
    rig.copy_once()
    rig.put(range(10, 13))
    rig.put(range(13, 16), keys={13: 10, 14: 11, 15: 12} if cause == "compacted" else {})
    rig.put(range(16, 19))
    if cause == "compacted":
        rig.compacted([*range(10), *range(13, 19)])
    else:
        delete_records(rig.source, rig.topic, before=13)

    flag.touch()
    with rig.mirror(
        prelude=FREEZES_BEFORE_IT_SENDS.format(flag=str(flag)),
        keys={"twinlog.source.loss": "accept"},
    ) as mirror:
        eventually(lambda: not flag.exists())
        assert naive_upstream(rig, 13) == 16, "naively 13, 14 and 15 are skipped"
        zombie = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        zombie.send([rig.record(n) for n in (10, 11, 12)], 10).expect_ok()
        thaw(mirror.leases.pids())
        rig.copied(19)
        (part,) = mirror.eventually(lambda parts: parts[0].lag == 0)
        assert part.code == ""
        mirror.stop()
    assert rig.numbers() == list(range(19)), "what the other one wrote, then all that follows it"
    known = rig.map().runs
    assert [run.upstream_of(at) for at in range(19) if (run := run_at(known, at))] == [*range(19)]


def test_other_lane_was_first_with_records_whose_timestamps_are_newer(
    rig: Rig, tmp_path: Path
) -> None:
    """An earlier lane has already written these records, so this lane's batch is a repeat. The
    target answers a repeated batch with the newest timestamp in the log, which is later than the
    batch's own. The lane must report OTHER_WRITER, and the records and the map must be right in the
    end.
    """
    flag, late = tmp_path / "freeze", -1_000_000
    rig.create(**COMPACTED)
    create_topic(rig.target, rig.remote)
    rig.put(range(10))
    rig.copy_once()
    rig.put(range(10, 13), age_ms=late)
    rig.put(range(13, 16), keys={13: 10, 14: 11, 15: 12})
    rig.put(range(16, 19), age_ms=late * 2)
    rig.put(range(19, 22), age_ms=late * 2 - 5000)
    rig.compacted([*range(10), *range(13, 22)])

    flag.touch()
    with rig.mirror(prelude=FREEZES_BEFORE_IT_SENDS.format(flag=str(flag))) as mirror:
        eventually(lambda: not flag.exists())
        zombie = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        zombie.send([rig.record(n, age_ms=late) for n in (10, 11, 12)], 10).expect_ok()
        thaw(mirror.leases.pids())
        rig.copied(22)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        eventually(lambda: mirror.snapshots[0].errors.get("OTHER_WRITER", 0) >= 1)
        mirror.stop()
    assert rig.numbers() == list(range(22)), "13 to 15, the newest of their keys, are there"
    known = rig.map().runs
    assert [run.upstream_of(at) for at in range(22) if (run := run_at(known, at))] == [*range(22)]


@pytest.mark.witness("H3: map rows that a killed lane wrote ahead are ignored")
def test_rows_that_a_killed_lane_wrote_ahead_are_void(rig: Rig, tmp_path: Path) -> None:
    flag = tmp_path / "hold"
    rig.create(**COMPACTED)
    create_topic(rig.target, rig.remote)
    rig.put(range(10))
    rig.copy_once()
    for at in range(10, 22, 3):
        rig.put(range(at, at + 3), keys={at + 1: 901, at + 2: 902})
    rig.put(range(22, 25))
    rig.compacted([*range(10), 10, 13, 16, *range(19, 25)])

    flag.touch()
    with rig.mirror(prelude=HOLDS_ITS_DATA.format(flag=str(flag))) as mirror:
        eventually(lambda: rows(rig)[-1].runs[-1] == Run(13, 19, 13))
        assert rig.end() == 10, "the rows are there, their records are not"
        kill(mirror.leases.pids())
    rig.put(range(25, 28), keys={25: 10, 26: 13, 27: 16})
    rig.put(range(28, 31))
    rig.compacted([*range(10), *range(19, 31)])
    flag.unlink()
    rig.copy_once()

    assert rig.numbers() == [*range(10), *range(19, 31)]
    assert naive_upstream(rig, 22) == 28, "naively three records would come twice"
    rig.put(range(31, 34))
    rig.copy_once()
    assert rig.numbers() == [*range(10), *range(19, 34)]
    rig.offsets_are_exact()


@pytest.mark.witness("H3: late map rows of dead lanes have no effect")
def test_late_rows_of_dead_lanes_change_nothing(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    rig.put(range(10, 20))
    rig.copy_once()
    last = rows(rig)[-1]
    assert last.term > Term(0, 0)
    for term, chunk in ((Term(0, 0), 7), (last.term, last.chunk - 1)):
        late = ChunkRow(
            key=last.key,
            term=term,
            chunk=chunk,
            topic=rig.topic,
            runs=(Run(5, 5, 5), Run(15, 17, 15)),
        )
        write_row(rig, late)
    assert naive_upstream(rig, 20) == 22, "naively 20 and 21 would be skipped"

    rig.put(range(20, 30))
    rig.copy_once()
    assert rig.numbers() == list(range(30))
    rig.same()
    rig.offsets_are_exact()


def test_map_that_lost_its_newest_row_is_put_right_by_comparing_the_records(rig: Rig) -> None:
    rig.create()
    for at in range(0, 40, 10):
        # a transaction, so that a marker follows the batch
        rig.put_at_once([rig.record(n) for n in range(at, at + 10)])
    rig.copy_once()
    last = rows(rig)[-1]
    written = (Run(0, 0, 0), Run(10, 11, 10), Run(20, 22, 20), Run(30, 33, 30))
    assert last.runs == (*written, Run(40, 44, 40)), "and how far the source was read"
    # restore the row as it was before the last run
    write_row(rig, replace(last, runs=written[:-1]))
    left = run_at(written[:-1], 40)
    assert left is not None
    assert left.upstream_of(40) == 42, "naively the last records are copied again"
    rig.put(range(40, 50))
    rig.copy_once()
    assert rig.numbers() == list(range(50))
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness("H3: a changed isolation level applies from the current position")
def test_changed_isolation_takes_effect_from_the_position_on(rig: Rig) -> None:
    rig.create()
    transactions(rig, 0)
    rig.copy_once()
    assert rig.numbers() == [0, 1, 4, 5]
    transactions(rig, 10)
    rig.copy_once({f"{rig.alias}.consumer.isolation.level": "read_uncommitted"})
    assert rig.numbers() == [0, 1, 4, 5, *range(10, 16)]
    rig.offsets_are_exact()
    transactions(rig, 20)
    rig.copy_once()
    assert rig.numbers() == [0, 1, 4, 5, *range(10, 16), 20, 21, 24, 25]
    rig.offsets_are_exact()


def transactions(rig: Rig, at: int) -> None:
    """Write two committed, two aborted, and two committed records."""
    for first, commit in ((at, True), (at + 2, False), (at + 4, True)):
        produce_transaction(
            rig.source,
            rig.topic,
            [rig.outgoing(n) for n in (first, first + 1)],
            commit=commit,
        )


def test_changed_isolation_waits_for_the_lanes_of_a_process_that_did_not_say_goodbye(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", -7_000)
    monkeypatch.setattr(PreparedFlow, "close", lambda self, *, drained: self.setup.close(None))
    rig.create()
    transactions(rig, 0)
    rig.copy_once()
    transactions(rig, 10)
    waited: list[str] = []
    check = FlowClaims._check_meaning

    def noted(claims: FlowClaims, history: FlowHistory | None, *, fresh_id: bool) -> None:
        try:
            check(claims, history, fresh_id=fresh_id)
        except Exception as error:
            waited.append(str(error))
            raise

    monkeypatch.setattr(FlowClaims, "_check_meaning", noted)
    rig.copy_once({f"{rig.alias}.consumer.isolation.level": "read_uncommitted"})
    assert "isolation" in waited[0]
    assert rig.numbers() == [0, 1, 4, 5, *range(10, 16)]
    rig.offsets_are_exact()
