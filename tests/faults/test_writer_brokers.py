"""Brokers die while DataFrames are written: leaders of partitions, the coordinator of the
transaction, and the coordinator of the group whose offset is the commit mark.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import eventually, read_all
from tests.support.topics import create_topic, leader
from tests.support.write_loop import ROWS, Loop, as_batch, options_for, run_batch, run_task
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.transactions import Transactions
from twinlog.errors import Disconnected
from twinlog.records.write import transaction
from twinlog.sandbox import QUICK_JVM, LocalCluster

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
            running = loop.start()  # the supervisor of a query would also restart the writer
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
    """The transaction's coordinator dies while it ends the transaction, so its response is lost.
    The next coordinator completes the end, or still has the transaction open. The write must
    succeed in both cases.
    """
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


PATIENT: Final = {
    "broker.session.timeout.ms": "600000",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
}
"""Config of brokers that do not replace a frozen broker as leader. With default settings they do so
after some seconds.
"""


def test_a_leader_is_unreachable_while_a_write_is_committed(
    fresh_topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator has committed the transaction, but cannot write the marker at an unreachable
    leader. The write must not fail, because a write without `writeId` would then be repeated.
    """
    with LocalCluster("two", brokers=2, config=PATIENT, jvm_flags=QUICK_JVM) as cluster:
        create_topic(cluster, fresh_topic, 2)
        options = options_for(cluster.bootstrap, fresh_topic, f"query-{uuid.uuid4()}")
        begun = transaction.begin(options)
        with ClusterClient(options.cluster()) as client:
            coordinator = transaction.transactions(client, options)._coordinator()
        nodes = {leader(cluster, fresh_topic, at): at for at in range(2)}
        ((away, partition),) = [one for one in nodes.items() if one[0] != coordinator]
        written = run_task(options, begun, [as_batch([1, 2], partition)])
        real = Transactions.end

        def freezes_before(self: Transactions, *, committed: bool) -> None:
            self._client.api_timeout_s = 5.0
            cluster.freeze(away)
            real(self, committed=committed)

        monkeypatch.setattr(Transactions, "end", freezes_before)
        transaction.commit(options, [written], 0)
        monkeypatch.undo()
        (said,) = [one for one in caplog.messages if "is committed" in one]
        assert "The producer's epoch could not be ended yet" in said
        cluster.thaw(away)
        again = transaction.begin(options)
        transaction.commit(options, [run_task(options, again, [as_batch([3], partition)])], 1)
        seen = read_all(cluster, fresh_topic, isolation="read_committed")
        assert sorted(int(one.value or b"-1") for one in seen) == [1, 2, 3]
