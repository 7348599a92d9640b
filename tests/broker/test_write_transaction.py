"""The transaction of a write on a real broker. The topic has each row once if tasks run twice,
responses are lost, processes die at any step, or other clients write with the same ID.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.client import eventually, read_all
from tests.support.topics import admin, apply_topic_configs, create_topic, delete_topic
from tests.support.write_loop import ROWS, Loop, as_batch, options_for, run_batch, run_task
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets
from twinlog.cluster.groups.transactions import Transactions
from twinlog.cluster.logs import raw_log
from twinlog.errors import ClusterError, Disconnected, TwinlogError
from twinlog.model import TopicPartition
from twinlog.records.write import appending, transaction
from twinlog.records.write.options import WriteOptions
from twinlog.records.write.transaction import BegunTransaction, TaskResult, transactions
from twinlog.records.write.writers import BatchWriter, StreamWriter
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

STEPS = "twinlog.cluster.groups.transactions:Transactions"
TASKS = "twinlog.records.write.appending:append_batches"
BATCHES = 4
MORE_THAN_IT_DOES = 1000
"""More micro-batches than a process can complete. It completes some dozens per second."""


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic, 3)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


@pytest.fixture
def options(source_cluster: LocalCluster, topic: str) -> WriteOptions:
    return options_for(source_cluster.bootstrap, topic, f"query-{uuid.uuid4()}")


def committed(cluster: LocalCluster, topic: str) -> list[int]:
    seen = read_all(cluster, topic, isolation="read_committed")
    return sorted(int(one.value or b"-1") for one in seen)


def set_mark(options: WriteOptions, offset: int, metadata: str) -> None:
    """Set the offset that is the mark, as another client would."""
    with ClusterClient(options.cluster()) as client:
        group = transactions(client, options, options.write_id).group
        wanted = {TopicPartition(options.topic, 0): Committed(offset, metadata)}
        (answer,) = commit_offsets(Coordinators(client), {group: wanted}).values()
        assert answer == dict.fromkeys(wanted)


class Died(Exception):
    """Raised by a test to end a run of a task."""


def die() -> None:
    raise Died


@pytest.mark.parametrize("is_packed", [False, True], ids=["rows", "packed"])
@pytest.mark.witness("a repeated task writes each row once, in any order of rows")
def test_a_task_runs_again_with_its_rows_in_another_order(
    source_cluster: LocalCluster, topic: str, options: WriteOptions, is_packed: bool
) -> None:
    begun = transaction.begin(options)
    first, rest = list(range(140)), list(range(140, 200))
    with pytest.raises(Died):
        run_task(options, begun, [as_batch(first, 1, is_packed=is_packed)], die)
    again = first + rest
    random.Random(7).shuffle(again)
    parts = [as_batch(again[at : at + 30], 1, is_packed=is_packed) for at in range(0, 200, 30)]
    written = run_task(options, begun, parts)
    assert committed(source_cluster, topic) == []
    transaction.commit(options, [written], 0)
    assert committed(source_cluster, topic) == list(range(200))


@pytest.mark.parametrize("is_packed", [False, True], ids=["rows", "packed"])
def test_two_runs_of_a_task_write_at_once(
    source_cluster: LocalCluster, topic: str, options: WriteOptions, is_packed: bool
) -> None:
    """Several runs of one task write at the same time, as with speculative execution. One of them
    dies, and another one ends before the run that began first. The rows are in the topic once.
    """
    begun = transaction.begin(options)
    values = list(range(150))
    random.Random(8).shuffle(values)
    parts = [as_batch(values[at : at + 30], 0, is_packed=is_packed) for at in range(0, 150, 30)]
    other = [
        as_batch(sorted(values)[:70], 0, is_packed=is_packed),
        as_batch(sorted(values)[70:], 0, is_packed=is_packed),
    ]
    done: list[int] = []

    def the_other_one() -> None:
        done.append(1)
        if len(done) == 2:
            with pytest.raises(Died):
                run_task(options, begun, other, die)
        if len(done) == 4:
            run_task(options, begun, other)

    written = run_task(options, begun, parts, the_other_one)
    transaction.commit(options, [written], 0)
    assert committed(source_cluster, topic) == list(range(150))


@pytest.mark.parametrize("is_packed", [False, True], ids=["rows", "packed"])
@pytest.mark.witness("a batch whose response is lost is written once")
def test_answers_of_leaders_are_lost(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    monkeypatch: pytest.MonkeyPatch,
    is_packed: bool,
) -> None:
    real = raw_log.append_batches

    def twice(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        # the response to the repeated request, as after a new connection
        return real(*arguments, **named)

    monkeypatch.setattr(appending, "append_batches", twice)
    run_batch(options, 0, is_packed=is_packed)
    assert committed(source_cluster, topic) == list(range(ROWS))


@pytest.mark.parametrize("is_packed", [False, True], ids=["rows", "packed"])
@pytest.mark.witness("a repeated task with different rows is refused")
def test_a_task_runs_again_with_other_rows(
    source_cluster: LocalCluster, topic: str, options: WriteOptions, is_packed: bool
) -> None:
    begun = transaction.begin(options)
    with pytest.raises(Died):
        run_task(options, begun, [as_batch([1, 2, 3], 0, is_packed=is_packed)], die)
    with pytest.raises(ClusterError) as error:
        run_task(options, begun, [as_batch([1, 2, 4, 5], 0, is_packed=is_packed)])
    assert error.value.code == "PARTITION_SHARED"
    # the commit finds that a partition has rows which only the former run wrote
    written = run_task(options, begun, [as_batch([1, 2, 4, 5], 1, is_packed=is_packed)])
    with pytest.raises(
        ClusterError, match=r"-0 has 5 rows of the transaction, but tasks wrote 0"
    ) as error:
        transaction.commit(options, [written], 0)
    assert error.value.code == "PARTITION_SHARED"
    transaction.abort(options, written.identity)
    assert committed(source_cluster, topic) == []
    run_batch(options, 0)
    assert committed(source_cluster, topic) == list(range(ROWS))


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
@pytest.mark.witness("the response to the end of a transaction is lost", case="done")
def test_the_answer_to_the_end_is_lost(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
) -> None:
    real, calls = Transactions.end, []

    def lost(self: Transactions, *, committed: bool) -> None:
        calls.append(1)
        if len(calls) > 1:
            real(self, committed=committed)
            return
        if is_done:
            real(self, committed=committed)
        raise Disconnected("the answer was lost")

    monkeypatch.setattr(Transactions, "end", lost)
    run_batch(options, 0)
    assert len(calls) == (1 if is_done else 2)
    run_batch(options, 1)
    assert committed(source_cluster, topic) == list(range(2 * ROWS))


def test_the_answer_to_the_end_is_lost_and_a_newer_run_has_begun(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The response to a commit is lost, and a newer run has begun, so the coordinator knows only
    the newer run. The commit mark, a group offset that is committed with the transaction, shows
    that the older run was committed. So both writes succeed.
    """
    real, newer = Transactions.end, list[TaskResult]()

    def lost(self: Transactions, *, committed: bool) -> None:
        monkeypatch.undo()
        real(self, committed=committed)
        begun = transaction.begin(options)
        newer.append(run_task(options, begun, [as_batch([ROWS], 0)]))
        raise Disconnected("the answer was lost")

    monkeypatch.setattr(Transactions, "end", lost)
    run_batch(options, 0)
    transaction.commit(options, newer, 1)
    assert committed(source_cluster, topic) == list(range(ROWS + 1))


@pytest.mark.witness("a newer run of a query fences the older one")
def test_a_newer_run_shuts_the_older_one_out(
    source_cluster: LocalCluster, topic: str, options: WriteOptions
) -> None:
    old = transaction.begin(options)
    written = run_task(options, old, [as_batch([1, 2], 0)])
    new = transaction.begin(options)
    for act in (
        lambda: run_task(options, old, [as_batch([3], 0)]),
        lambda: run_task(options, old, [as_batch([3], 1)]),
        lambda: transaction.commit(options, [written], 0),
    ):
        with pytest.raises(TwinlogError) as error:
            act()
        assert error.value.code == "WRITER_FENCED"
    again = run_task(options, new, [as_batch([1, 2], 0)])
    transaction.abort(
        options, written.identity
    )  # an abort of the older run must not affect the newer one
    transaction.commit(options, [again], 0)
    assert committed(source_cluster, topic) == [1, 2]


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.witness("a failing older run does not affect a newer one")
def test_an_older_run_fails_without_any_task(
    source_cluster: LocalCluster, topic: str, options: WriteOptions, kind: str
) -> None:
    """A newer run has fenced the older run's tasks. Spark's `abort` of the older run therefore gets
    no commit messages, and cannot tell to which run it belongs. It must not roll back the newer
    run.
    """
    old = transaction.begin(options)
    with pytest.raises(Died):
        run_task(options, old, [as_batch([1, 2], 0)], die)
    new = transaction.begin(options)
    written = run_task(options, new, [as_batch([1, 2], 0)])
    if kind == "batch":
        BatchWriter(options, old).abort([None, None])
    else:
        StreamWriter(options, None).abort([None, None], 0)
    more = run_task(options, new, [as_batch([3], 1)])
    transaction.commit(options, [written, more], 0)
    assert committed(source_cluster, topic) == [1, 2, 3]


def test_a_newer_run_begins_while_an_older_one_is_rolled_back(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An older run is rolled back. A newer run begins after the rollback has checked for newer
    runs. The newer run must not be rolled back with the older one.
    """
    old = transaction.begin(options)
    run_task(options, old, [as_batch([1, 2], 0)])
    real, begun = Transactions.end, list[BegunTransaction]()

    def then_begins(self: Transactions, *, committed: bool) -> None:
        real(self, committed=committed)
        if not begun:
            begun.append(transaction.begin(options))

    monkeypatch.setattr(Transactions, "end", then_begins)
    BatchWriter(options, old).abort([None])
    monkeypatch.undo()
    (new,) = begun
    transaction.commit(options, [run_task(options, new, [as_batch([3], 0)])], 0)
    assert committed(source_cluster, topic) == [3]


@pytest.mark.parametrize("is_open", [True, False], ids=["with rows", "without rows"])
def test_the_newest_run_fails_without_any_task(
    source_cluster: LocalCluster, topic: str, options: WriteOptions, is_open: bool
) -> None:
    """The newest run fails before a task has ended. Its rows are rolled back immediately, and its
    late tasks cannot begin a transaction.
    """
    begun = transaction.begin(options)
    if is_open:
        with pytest.raises(Died):
            run_task(options, begun, [as_batch([1, 2], 0)], die)
    BatchWriter(options, begun).abort([None])
    with ClusterClient(options.cluster()) as client:
        assert not transactions(client, options).describe().is_open
    for partition in (0, 1):
        with pytest.raises(TwinlogError) as error:
            run_task(options, begun, [as_batch([3], partition)])
        assert error.value.code == "WRITER_FENCED"
    BatchWriter(options, begun).abort([None])  # a repeated abort does nothing
    run_batch(options, 0)
    assert committed(source_cluster, topic) == list(range(ROWS))


@pytest.mark.parametrize("moment", ["repeated", "committed"])
def test_a_newer_run_begins_while_an_older_one_commits(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    """A run ends its producer epoch in the last step of its commit. Before this step a newer run
    has begun, and the newer run's epoch must not be ended.
    """
    if moment == "repeated":
        run_batch(options, 0)
    old = transaction.begin(options)
    halves = [list(range(task, ROWS, 2)) for task in range(2)]
    written = [run_task(options, old, [as_batch(one, task)]) for task, one in enumerate(halves)]
    real, newer = Transactions.end_epoch, list[TaskResult]()

    def late(self: Transactions) -> None:
        monkeypatch.undo()
        begun = transaction.begin(options)
        newer.append(run_task(options, begun, [as_batch([ROWS], 0)]))
        real(self)

    monkeypatch.setattr(Transactions, "end_epoch", late)
    transaction.commit(options, written, 0)
    transaction.commit(options, newer, 1)
    assert committed(source_cluster, topic) == list(range(ROWS + 1))


def test_a_transaction_that_takes_too_long(
    source_cluster: LocalCluster, topic: str, options: WriteOptions
) -> None:
    short = replace(options, timeout_ms=1000)
    begun = transaction.begin(short)
    written = run_task(short, begun, [as_batch([1, 2], 0)])
    with ClusterClient(short.cluster()) as client:
        eventually(lambda: not transactions(client, short).describe().is_open, what="its end")
    with pytest.raises(TwinlogError) as error:
        transaction.commit(short, [written], 0)
    assert error.value.code == "WRITER_FENCED"
    run_batch(short, 0)
    assert committed(source_cluster, topic) == list(range(ROWS))


@pytest.mark.witness("a repeated micro-batch is recognised, one out of order is refused")
def test_content_of_the_mark(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_batch(options, 0)
    run_batch(options, 1)
    assert caplog.messages == []
    run_batch(options, 1)
    (said,) = caplog.messages
    assert said.startswith(f"{topic}: {ROWS} rows were left out, because micro-batch 1 of ")
    everything = list(range(2 * ROWS))
    assert committed(source_cluster, topic) == everything
    for number, says in (
        (0, "micro-batch 1 is committed, but micro-batch 0 should be written"),
        (3, "but the last committed micro-batch is 1"),
    ):
        with pytest.raises(ClusterError, match=says) as error:
            run_batch(options, number)
        assert error.value.code == "MARK_DIFFERS"
    with ClusterClient(options.cluster()) as client:
        group = transactions(client, options, options.write_id).group
    transaction.begin(options)  # ends the transaction of the refused write
    admin(source_cluster).delete_consumer_groups([group])[group].result()
    with pytest.raises(ClusterError, match="no earlier micro-batch is committed") as error:
        run_batch(options, 2)
    assert error.value.code == "MARK_DIFFERS"
    assert committed(source_cluster, topic) == everything
    run_batch(replace(options, needs_mark=False), 2)
    run_batch(options, 3)
    assert committed(source_cluster, topic) == list(range(4 * ROWS))


@pytest.mark.parametrize(
    ("offset", "metadata"),
    [
        (2, f'{{"batch": 1, "rows": {ROWS}}}'),
        (2, f'{{"batch": 2, "rows": {ROWS}, "cluster": "another"}}'),
        (2, ""),
        (0, "[2]"),
    ],
    ids=["translated", "another cluster's", "another client's", "no mark"],
)
@pytest.mark.witness("a mark with offsets of the other cluster is refused", case="translated")
def test_a_mark_that_no_writer_set_here(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    offset: int,
    metadata: str,
) -> None:
    """The group of the commit mark (`cluster.groups.commit_mark`) has an offset that no writer set:
    the number of the next micro-batch, or an older number. The next write stops with MARK_DIFFERS
    and appends nothing. A write that does not need a mark continues.
    """
    run_batch(options, 0)
    run_batch(options, 1)
    set_mark(options, offset, metadata)
    with pytest.raises(ClusterError, match=f"has offset {offset} of {topic}-0") as error:
        run_batch(options, 2)
    assert error.value.code == "MARK_DIFFERS"
    assert committed(source_cluster, topic) == list(range(2 * ROWS))
    run_batch(replace(options, needs_mark=False), 2)
    run_batch(options, 3)
    assert committed(source_cluster, topic) == list(range(4 * ROWS))


def test_rows_that_are_older_than_the_topic_keeps_them(
    source_cluster: LocalCluster,
    topic: str,
    options: WriteOptions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    apply_topic_configs(source_cluster, topic, {"retention.ms": "3600000"})
    for number, hours in enumerate((0, 5)):
        begun = transaction.begin(options)
        rows = as_batch([1, 2], 0)
        times = pa.array([(begun.now_ms - 3_600_000 * hours) * 1000] * 2, pa.int64())
        rows = rows.append_column("timestamp", times.cast(pa.timestamp("us", tz="UTC")))
        assert caplog.messages == []
        transaction.commit(options, [run_task(options, begun, [rows])], number)
    (said,) = caplog.messages
    assert said.startswith(f"{topic}: rows are up to 5 hours old by their timestamps")
    assert "retains 1 hours" in said


def test_a_micro_batch_without_rows_is_marked(
    source_cluster: LocalCluster, topic: str, options: WriteOptions
) -> None:
    begun = transaction.begin(options)
    transaction.commit(options, [run_task(options, begun, [as_batch([], 0)])], 0)
    run_batch(options, 1)
    assert committed(source_cluster, topic) == list(range(ROWS, 2 * ROWS))


@pytest.mark.parametrize(
    ("moment", "where"),
    [
        ("behind", f"{STEPS}.begin_epoch"),
        ("behind", f"{STEPS}.add_partitions"),
        ("behind", TASKS),
        ("before", f"{STEPS}.commit_offsets"),
        ("behind", f"{STEPS}.commit_offsets"),
        ("before", f"{STEPS}.end"),
        ("behind", f"{STEPS}.end"),
    ],
    ids=["begun", "added", "behind rows", "before mark", "marked", "before end", "behind end"],
)
@pytest.mark.witness("a writer is killed after its transaction has ended", case="behind end")
def test_killed_at_a_step(
    source_cluster: LocalCluster, topic: str, tmp_path: Path, moment: str, where: str
) -> None:
    loop = Loop(source_cluster, topic, tmp_path, BATCHES)
    assert loop.start(moment, where).wait() == -9
    loop.finish()
    assert committed(source_cluster, topic) == list(range(BATCHES * ROWS))


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.witness("a writer is killed at random moments", case="4")
def test_killed_at_any_moment(
    source_cluster: LocalCluster, topic: str, tmp_path: Path, kills: int
) -> None:
    """Processes that write micro-batches are killed at random moments. Each row is in the topic
    once.
    """
    loop, chance = Loop(source_cluster, topic, tmp_path, 0), random.Random(9)
    at_work = with_rows = 0  # numbers of kills
    with ClusterClient(loop.options.cluster()) as client:
        opened = transactions(client, loop.options)
        transaction.begin(loop.options)  # creates the transactional ID, so that it can be described
        while at_work < kills:
            before = opened.describe().identity
            loop.batches = loop.noted() + 1 + MORE_THAN_IT_DOES
            running = loop.start()
            eventually(lambda was=before: opened.describe().identity != was, what="a begin")  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.5))  # a random moment of a micro-batch
            if at_work % 2:
                eventually(lambda: opened.describe().is_open, what="rows in a transaction")
            is_at_work = running.poll() is None
            running.kill()
            assert running.wait() == -9, "it came to its end, or failed"
            at_work += is_at_work
            with_rows += opened.describe().is_open
    assert with_rows > 0
    loop.batches = loop.noted() + 3
    loop.finish()
    assert committed(source_cluster, topic) == list(range(loop.batches * ROWS))
