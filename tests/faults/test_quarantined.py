"""A transform fails on some records, on real brokers. Each of these records is once in the
dead-letter topic, and each other record once on the target. Lanes are killed, and the function
fails on other records each time.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.client import Seen, eventually, read_all
from tests.support.load import Load
from tests.support.rig import Rig, send_signals
from tests.support.transformed_mirror import TransformedMirror, with_transforms
from twinlog.cluster.topics.topic_admin import ensure_permanent_topic
from twinlog.wire.records import Record

pytestmark = [pytest.mark.faults, pytest.mark.broker]

KILLS = 3
LEASES = 4
ALWAYS_FAILS = 40


class Fails:
    """A function that masks records. It fails on every fortieth record always, and on other records
    randomly.
    """

    def __init__(self) -> None:
        self._dice = random.Random(3)

    def __call__(self, record: Record) -> Record:
        if not record.offset % ALWAYS_FAILS or self._dice.random() < 0.02:
            raise ValueError("cannot be masked")
        return record._replace(value=b"m%d" % record.offset)


def letters_of(rig: Rig) -> str:
    return f"__letters-{rig.topic}"


def a_mirror(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, file: Path, lease_s: float = 300.0
) -> TransformedMirror:
    with_transforms(monkeypatch, letters_of(rig))
    ensure_permanent_topic(rig.target_client, letters_of(rig), replication_factor=1)
    mirror = TransformedMirror(Fails(), file, lanes=1, lease_s=lease_s)
    mirror.quarantines = True
    return mirror


def has_read(mirror: TransformedMirror, rig: Rig, count: int) -> bool:
    progress = mirror.partition(rig.here).progress
    return progress is not None and progress.upstream >= count


def header(one: Seen, name: str) -> bytes:
    return dict(one.headers)[name] or b""


def check(rig: Rig, count: int) -> None:
    """Check that each record is either once on the target, or once and unchanged in the dead-letter
    topic.
    """
    copied = [int((one.value or b"")[1:]) for one in read_all(rig.target, rig.remote)]
    assert copied == sorted(set(copied))
    letters = read_all(rig.target, letters_of(rig))
    failed = [int(header(one, "__connect.errors.offset")) for one in letters]
    assert len(failed) == len(set(failed))
    assert sorted(copied + failed) == [*range(count)]
    assert {at for at in range(count) if not at % ALWAYS_FAILS} <= set(failed)
    source = {one.offset: one for one in read_all(rig.source, rig.topic)}
    for one, at in zip(letters, failed, strict=True):
        before = source[at]
        assert (one.key, one.value, one.timestamp) == (before.key, before.value, before.timestamp)
        assert one.headers[: len(before.headers)] == before.headers
        assert header(one, "__connect.errors.topic") == rig.topic.encode()
        assert header(one, "__connect.errors.exception.class.name") == b"ValueError"


def test_lanes_killed_under_a_function_that_fails_for_some_records(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.create()
    dice = random.Random(4)
    mirror = a_mirror(rig, monkeypatch, rig.config())
    with mirror, Load(rig.source, rig.topic, per_second=1_000) as load:
        for _ in range(KILLS):
            before = mirror.ranges
            eventually(lambda: mirror.ranges > before + 5, what="answers")  # noqa: B023
            time.sleep(dice.uniform(0.0, 0.5))  # kill at a random moment of the copy
            send_signals(mirror.leases.pids(), signal.SIGKILL)
            eventually(lambda: mirror.ranges > before + 6, what="a new lane")  # noqa: B023
        count = load.stop()
        eventually(lambda: has_read(mirror, rig, count), what="everything that was produced")
        mirror.stop()
    check(rig, count)


def test_leases_change_under_a_function_that_fails_for_some_records(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.create()
    mirror = a_mirror(rig, monkeypatch, rig.config(), lease_s=3.0)
    with mirror, Load(rig.source, rig.topic, per_second=1_000) as load:
        eventually(lambda: mirror.lanes >= LEASES, what="leases that change")
        count = load.stop()
        eventually(lambda: has_read(mirror, rig, count), what="everything that was produced")
        mirror.stop()
    check(rig, count)
