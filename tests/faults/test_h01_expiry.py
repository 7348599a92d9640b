"""H1: the target expires the flow's producer ID during the copy. It could then accept a batch
although the batch before it was rejected.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import raw
from tests.support.client import eventually
from tests.support.rig import DAY_MS, OLD, Rig
from tests.support.rounds import REPORT, Rounds, lane_rounds
from tests.support.topics import apply_topic_configs, create_topic
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.control.flow.flow_setup import TargetFacts

pytestmark = [pytest.mark.faults, pytest.mark.broker]

LONG_WITHOUT_TROUBLE = "import twinlog.mirror.copy.partition as c; c.TROUBLE_MS = 0\n"
NEVER_ONE_AT_A_TIME = LONG_WITHOUT_TROUBLE + "c.QUIET_MS = 10**15\n"
"""Prelude of a simpler lane, which pipelines requests even if the target may have expired the
producer ID.
"""
PIPELINES_BESIDE_OTHERS = NEVER_ONE_AT_A_TIME + "c.PartitionCopy._window = lambda *_: c.PIPELINE\n"
"""The same simpler lane for a topic to which other clients may write. The real lane has only one
request in flight there.
"""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def test_naive_pipeline_loses_a_refused_batch_and_its_tail_check_passes(rig: Rig) -> None:
    create_topic(rig.target, rig.remote)
    us = init_producer_id(rig.target_client).producer_id
    lane = raw.Writer(rig.target_client, rig.there, us)
    batch = [[rig.record(n, age_ms=OLD) for n in range(at, at + 10)] for at in range(0, 40, 10)]

    assert lane.send(batch[0], 0).expect_ok() == 0
    rig.forgotten()
    assert lane.send(batch[1], 10, spoilt=True).error == 2
    assert lane.send(batch[2], 20).expect_ok() == 10, "the target takes any sequence now"
    assert lane.send(batch[3], 30).expect_ok() == 20
    assert lane.send(batch[1], 10).error == raw.OUT_OF_ORDER_SEQUENCE

    assert rig.numbers() == [*range(10), *range(20, 40)]
    assert rig.on_target()[-1].value == batch[3][-1].value, "the newest record is the right one"


@pytest.mark.witness(
    "H1: a batch that is refused between others is neither lost nor overtaken",
    case="long after-too-old",
)
@pytest.mark.parametrize(
    ("refuses", "takes", "code"),
    [
        ({"max.message.bytes": "3000"}, {}, ""),  # no error, because the lane splits the batch
        (
            {"message.timestamp.before.max.ms": str(DAY_MS)},
            {"message.timestamp.before.max.ms": str(2**63 - 1)},
            "RECORD_REFUSED",
        ),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}, "RECORD_REFUSED"),
    ],
    ids=["too-large", "too-old", "without-key"],
)
@pytest.mark.parametrize("prelude", ["", LONG_WITHOUT_TROUBLE], ids=["at first", "long after"])
def test_batch_refused_between_others_is_neither_lost_nor_overtaken(
    rig: Rig, refuses: dict[str, str], takes: dict[str, str], code: str, prelude: str
) -> None:
    rig.create()
    rig.put(range(10), age_ms=OLD)
    with rig.mirror(prelude=prelude) as mirror:
        rig.copied(10)
        rig.forgotten()
        apply_topic_configs(rig.target, rig.remote, refuses)
        rig.put_at_once(
            [rig.record(n, age_ms=OLD, size=1000)._replace(key=None) for n in range(10, 15)],
            [rig.record(n) for n in range(15, 20)],
            [rig.record(n) for n in range(20, 25)],
        )
        if code:
            mirror.eventually(lambda _: code in mirror.snapshots[0].errors)
        found = rig.numbers()
        assert found == list(range(len(found))), "nothing overtakes the refused batch"
        if takes:
            apply_topic_configs(rig.target, rig.remote, takes)
        rig.copied(25)
        mirror.stop()
    assert rig.numbers() == list(range(25))
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness("H1: a gap in the target's log is reported with its range")
def test_gap_that_was_written_is_reported_with_its_range_immediately_and_at_a_restart(
    rig: Rig,
) -> None:
    rig.create()
    rig.put(range(10), age_ms=OLD)
    with rig.mirror(prelude=NEVER_ONE_AT_A_TIME) as mirror:
        rig.copied(10)
        rig.forgotten()
        apply_topic_configs(rig.target, rig.remote, {"max.message.bytes": "3000"})
        rig.put_at_once(
            [rig.record(n, age_ms=OLD, size=1000) for n in range(10, 15)],
            [rig.record(n) for n in range(15, 20)],
            [rig.record(n) for n in range(20, 25)],
        )
        (part,) = mirror.eventually(lambda parts: parts[0].code == "GAP_WRITTEN")
        assert "upstream records [10, 15)" in part.message
        mirror.stop()
    # nothing was sent after the fresh batch, which was in flight beside the rejected old batch
    assert rig.numbers() == [*range(10), *range(15, 20)], "what the simpler version does"

    code, message = rig.fail_once()
    assert code == "GAP_WRITTEN"
    assert "upstream records [10, 15)" in message
    assert rig.end() == 15


def test_gap_in_a_topic_that_other_clients_write_to_is_reported_again_at_a_restart(
    rig: Rig,
) -> None:
    """Other clients write to the topic, so its offsets do not show that records are missing. The
    lane finds the gap by this flow's sequence numbers, and reports it again after a restart.
    """
    rig.prefixed = False
    rig.create()
    rig.put(range(10), age_ms=OLD)
    with rig.mirror(prelude=PIPELINES_BESIDE_OTHERS) as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        rig.forgotten()
        apply_topic_configs(rig.target, rig.remote, {"max.message.bytes": "3000"})
        rig.put_at_once(
            [rig.record(n, age_ms=OLD, size=1000) for n in range(10, 15)],
            [rig.record(n) for n in range(15, 20)],
            [rig.record(n) for n in range(20, 25)],
        )
        mirror.eventually(lambda parts: parts[0].code == "GAP_WRITTEN")
        mirror.stop()
    assert rig.numbers() == [*range(10), *range(15, 25)]

    code, message = rig.fail_once()
    assert code == "GAP_WRITTEN"
    assert "5 records of this flow are missing before offset 10" in message
    assert rig.end() == 20


def test_compacted_target_that_refuses_a_record_without_key_gets_nothing_behind_it(
    rig: Rig,
) -> None:
    # Even if its last error was long ago, a lane must not assume that the target accepts every
    # batch.
    rig.create()
    create_topic(rig.target, rig.remote, configs={"cleanup.policy": "compact"})
    rig.put(range(10), age_ms=OLD)
    with rig.mirror(prelude=NEVER_ONE_AT_A_TIME) as mirror:
        rig.copied(10)
        rig.forgotten()
        rig.put_at_once(
            [rig.record(n, age_ms=OLD)._replace(key=None) for n in range(10, 15)],
            [rig.record(n, age_ms=OLD) for n in range(15, 20)],
            [rig.record(n, age_ms=OLD) for n in range(20, 25)],
        )
        mirror.eventually(lambda parts: parts[0].code == "RECORD_REFUSED")
        assert rig.numbers() == list(range(10))
        apply_topic_configs(rig.target, rig.remote, {"cleanup.policy": "delete"})
        rig.copied(25)
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()


SENT = """
from twinlog.lane.sides.target_side import TargetSide
submit = TargetSide._submit
def noted(self, connection, batches, ids):
    with open({path!r}, "a") as file:
        file.write("x" * sum(batch.count for _, batch in batches.values()))
    return submit(self, connection, batches, ids)
TargetSide._submit = noted
"""
"""Prelude of a lane that appends one byte to a file for each record that it sends."""


REFUSED = """
from twinlog.errors import Unauthorized
import twinlog.lane.watches.expiry_watch as watch
def refused(_client):
    raise Unauthorized("DESCRIBE_CONFIGS on a broker")
watch.producer_expiry = refused
"""


def in_flight_while_the_target_hangs(
    rig: Rig, folder: Path, rounds: Rounds, *, age_ms: int, least: int, prelude: str = ""
) -> int:
    """Return the number of unanswered records that a lane has sent to a frozen target, after
    waiting for at least `least` records.
    """
    rig.create()
    rig.put(range(10), age_ms=age_ms)
    sent = folder / "sent"
    with rig.mirror(prelude=SENT.format(path=str(sent)) + prelude) as mirror:
        rig.copied(10)
        before = sent.stat().st_size
        batches = [[rig.record(n, age_ms=age_ms)] for n in range(10, 18)]
        try:
            # freeze it only briefly, because a broker that is silent for 6 s loses its partitions
            rig.put_at_once(*batches, before=lambda: rig.target.freeze(1))
            eventually(lambda: sent.stat().st_size - before >= least)
            rounds.pass_by(REPORT, 1)
            found = sent.stat().st_size - before
        finally:
            rig.target.thaw(1)
        rig.copied(18)
        mirror.stop()
    rig.same()
    return found


@pytest.mark.parametrize(("age_ms", "batches"), [(0, 8), (OLD, 1)], ids=["fresh", "old"])
def test_only_records_that_keep_the_producer_id_remembered_are_pipelined(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_ms: int, batches: int
) -> None:
    rounds = lane_rounds(monkeypatch)
    found = in_flight_while_the_target_hangs(rig, tmp_path, rounds, age_ms=age_ms, least=batches)
    assert found == batches


@pytest.mark.parametrize(
    ("told_ms", "batches"),
    [(DAY_MS, 8), (60_000, 1), (None, 1)],
    ids=["default-believed", "configured", "not-configured"],
)
def test_user_who_may_not_read_the_expiry_of_a_target_that_forgets_after_a_minute(
    rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told_ms: int | None,
    batches: int,
) -> None:
    # Brokers deny DescribeConfigs to ordinary users, so a lane may know only this value.
    monkeypatch.setattr(TargetFacts, "expiry_ms", lambda _self, _target: told_ms)
    rounds = lane_rounds(monkeypatch)
    with rig.target_forgets_after(60_000):
        found = in_flight_while_the_target_hangs(
            rig, tmp_path, rounds, age_ms=120_000, least=batches, prelude=REFUSED
        )
    assert found == batches
