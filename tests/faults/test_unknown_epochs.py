"""A source is truncated and refilled under an idle copy. The copy's start compared no record, so it
knows no leader epoch. Its first fetch sends the epoch of the source's own record before the
position, so the truncation is detected.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.rewritten_source import put_others, rewrite
from tests.support.rig import Rig, freeze, thaw
from tests.support.topics import create_topic, delete_records

pytestmark = [pytest.mark.faults, pytest.mark.broker]

KEYED = {"twinlog.target.partitions": "keyed"}
LATEST = {"twinlog.start": "latest"}


def fill(rig: Rig) -> None:
    rig.create()
    for start in range(0, 50, 10):
        rig.put(range(start, start + 10))


def refill(rig: Rig) -> None:
    """Replace records 30 to 49 by different ones, and write thirty more."""
    put_others(rig, range(30, 50))
    put_others(rig, range(50, 80))


def cut_is_found(rig: Rig, mirror: Mirror) -> None:
    mirror.eventually(lambda parts: parts[0].state == "AT_END")
    before = rig.numbers()
    pids = mirror.leases.pids()
    freeze(pids)
    rig.source.kill(1)
    rewrite(rig)
    refill(rig)
    thaw(pids)
    mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
    mirror.stop()
    assert rig.numbers() == before, "nothing of the new life follows the old one"


@pytest.mark.usefixtures("patient_driver")
@pytest.mark.parametrize("keys", [{}, LATEST], ids=["emptied", "latest"])
def test_idle_copy_without_a_compared_record(rig: Rig, keys: Mapping[str, str]) -> None:
    fill(rig)
    rig.copy_once(keys)
    if not keys:
        delete_records(rig.target, rig.remote)
    with rig.mirror(keys=keys) as mirror:
        cut_is_found(rig, mirror)


@pytest.mark.witness("a source log is truncated under an idle copy without a known epoch")
@pytest.mark.usefixtures("patient_driver")
def test_idle_copy_by_key(rig: Rig) -> None:
    create_topic(rig.target, rig.remote, partitions=3)
    fill(rig)
    rig.copy_once(KEYED)
    with rig.mirror(keys=KEYED) as mirror:
        cut_is_found(rig, mirror)


def test_finding_of_the_first_seconds_after_a_takeover_is_kept(rig: Rig) -> None:
    """The source is truncated directly after a takeover. Lanes of the killed process may still
    write, so SOURCE_DIVERGED may not be reported yet, but the finding is kept and reported later.
    """
    fill(rig)
    with Driver(rig.config(), lanes=1) as first:
        rig.copied(50)
        delete_records(rig.target, rig.remote)
        first.kill()
    rig.source.kill(1)
    rewrite(rig)
    assert rig.source_end() == 30
    with rig.mirror() as mirror:
        mirror.eventually(lambda parts: parts[0].code in {"OTHER_WRITER", "SOURCE_DIVERGED"})
        refill(rig)
        mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        mirror.stop()
    assert rig.numbers() == []
