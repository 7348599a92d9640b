"""A start sends several queries, between which the logs may change. Its result is the same as if
all answers were of one moment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import raw
from tests.support.client import eventually
from tests.support.rewritten_source import expect_diverged, fill, put_others, rewrite
from tests.support.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.broker]

STOPS_BEFORE = """
import os, time
import twinlog.lane.sides.log_view as v
asked = v.ClusterLogView.{question}
calls = 0
def ask(self, tps, *rest):
    global calls
    # only the target knows producers; the source's ends are asked as well
    calls += any(tp.topic == {topic!r} for tp in tps)
    if calls == {turn} and not os.path.exists({flag!r} + "-done"):
        open({flag!r}, "w").close()
        while os.path.exists({flag!r}):
            time.sleep(0.02)
        open({flag!r} + "-done", "w").close()
    return asked(self, tps, *rest)
v.ClusterLogView.{question} = ask
"""
"""Prelude of a lane whose first start stops directly before a query, until a flag file is removed.
"""


@pytest.mark.witness("a batch is appended between two requests of a start", case="ends-1")
@pytest.mark.parametrize(
    ("question", "turn"), [("ends", 1), ("producers", 1), ("producers", 2), ("read", 1)]
)
def test_late_batch_between_two_questions(
    rig: Rig, tmp_path: Path, question: str, turn: int
) -> None:
    flag = tmp_path / "look"
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    rig.put(range(10, 20))
    prelude = STOPS_BEFORE.format(question=question, turn=turn, topic=rig.remote, flag=str(flag))
    with rig.mirror(prelude=prelude) as mirror:
        eventually(flag.exists, what="the look at the target")
        late = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        late.send([rig.record(n) for n in (10, 11, 12)], 10).expect_ok()
        flag.unlink()
        rig.copied(20)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        told = set(mirror.snapshots[0].errors)
        assert told <= {"OTHER_WRITER", "SEQUENCE_REFUSED"}, told
        mirror.stop()
    assert rig.numbers() == list(range(20))
    rig.same()
    rig.offsets_are_exact()


def test_log_that_is_refilled_after_its_end_was_queried(rig: Rig, tmp_path: Path) -> None:
    """The source's log ended at 30 when its end was queried, and ends at 80 when it is read. The
    start must still detect that the log was truncated.
    """
    flag = tmp_path / "look"
    fill(rig)
    rig.copy_once()
    rig.source.kill(1)
    rewrite(rig)
    prelude = STOPS_BEFORE.format(question="read", turn=1, topic=rig.topic, flag=str(flag))
    with rig.mirror(prelude=prelude) as mirror:
        eventually(flag.exists, what="the look at the source")
        put_others(rig, range(30, 80))
        flag.unlink()
        (part,) = mirror.eventually(lambda parts: parts[0].state == "FAILED")
        expect_diverged(part.code, part.message)
        assert set(mirror.snapshots[0].errors) == {"SOURCE_DIVERGED"}
        mirror.stop()
    assert rig.numbers() == list(range(50))
