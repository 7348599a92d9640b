"""Other versions of Kafka on either side: the oldest pair here, every pair in `scripts/matrix`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.load import Load
from tests.faults.rig import Rig
from tests.faults.rig import kill as kill_pids
from tests.support.client import produce_transaction
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("versions")]

SOURCES = ("2.8.2", "3.4.1", "3.9.1", "4.3.0")
TARGETS = ("3.4.1", "3.9.1", "4.3.0")
OLDEST = (SOURCES[0], TARGETS[0])
EVERY = [(source, target) for source in SOURCES for target in TARGETS]


PAIRS = EVERY if os.environ.get("TWINLOG_MATRIX") else [OLDEST]


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=[f"{old}-to-{new}" for old, new in PAIRS])
def test_copy_is_exact_between_these_versions(old: str, new: str, tmp_path: Path) -> None:
    """Batches, transactions and their gaps, a killed lane, and a start from what the target has."""
    with (
        LocalCluster("older", version=old, jvm_flags=QUICK_JVM) as source,
        LocalCluster("newer", version=new, jvm_flags=QUICK_JVM) as target,
        Rig(source, target, tmp_path) as rig,
    ):
        rig.create()
        with rig.mirror() as mirror, Load(source, rig.topic) as load:
            mirror.eventually(lambda parts: all(p.records > 200 for p in parts))
            kill_pids(mirror.leases.pids())
            count = load.stop()
            rig.copied(count)
            assert mirror.snapshots[0].guarantee == "exact"
            mirror.stop()
        for turn, commit in enumerate((True, False, True)):
            first = count + 20 * turn
            more = [rig.outgoing(number) for number in range(first, first + 20)]
            produce_transaction(source, rig.topic, more, commit=commit)
        rig.copy_once()
        rig.same()
        rig.offsets_are_exact()
