"""Brokers die while DataFrames are written: leaders of partitions, coordinators of the transaction
and of its mark.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.client import eventually, read_all
from tests.support.topics import create_topic
from tests.support.write_loop import ROWS, Loop, options_for, run_batch
from twinlog.cluster.groups.transactions import Transactions
from twinlog.errors import Disconnected
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.faults, pytest.mark.long]

BATCHES = 60


def test_brokers_die_one_after_the_other(
    source3: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source3, fresh_topic, 3, replication_factor=3)
    loop = Loop(source3, fresh_topic, tmp_path, BATCHES)
    running = loop.start()

    def goes_on(behind: int) -> bool:
        nonlocal running
        if running.poll() not in (None, 0):
            running = loop.start()  # as whoever supervises a query
        return loop.noted() >= min(behind, BATCHES - 1)

    for node in sorted(source3.broker_pids):
        before = loop.noted()
        eventually(lambda before=before: goes_on(before + 2), what="two more")  # type: ignore[misc]
        source3.kill(node)
        before = loop.noted()
        eventually(lambda before=before: goes_on(before + 3), what="three more")  # type: ignore[misc]
        source3.restart(node)
    eventually(lambda: goes_on(BATCHES), what="the end")
    running.wait()
    seen = read_all(source3, fresh_topic, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == list(range(BATCHES * ROWS))


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_the_coordinator_dies_in_the_end_of_a_transaction(
    source3: LocalCluster, fresh_topic: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its answer is lost; its successor has the transaction open, or ends it as was decided."""
    create_topic(source3, fresh_topic, 3, replication_factor=3)
    options = options_for(source3.bootstrap, fresh_topic, f"query-{uuid.uuid4()}")
    real, killed = Transactions.end, list[int]()

    def dying(self: Transactions, *, committed: bool) -> None:
        if killed:
            real(self, committed=committed)
            return
        coordinator = self._coordinator()
        killed.append(coordinator)
        if moment == "behind":
            real(self, committed=committed)
        source3.kill(coordinator)
        if moment == "behind":
            raise Disconnected("the answer was lost")
        real(self, committed=committed)

    run_batch(options, 0)
    monkeypatch.setattr(Transactions, "end", dying)
    run_batch(options, 1)
    source3.restart(*killed)
    run_batch(options, 2)
    assert len(killed) == 1
    seen = read_all(source3, fresh_topic, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == list(range(3 * ROWS))
