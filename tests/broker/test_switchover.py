"""Clients move in a switchover while both clusters run. Every record is read exactly once, whatever
is killed.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.client import (
    Outgoing,
    consumer,
    eventually,
    produce,
    produce_transaction,
    producer,
    read_all,
)
from tests.support.cutover import killed
from tests.support.groups import commit, committed, numbered
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.rights import SecuredPair
from tests.support.switchover_case import CREATE_ACLS, Case
from tests.support.topics import allow, topic_names
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import create_topic_acls, delete_topic_acls
from twinlog.config.load import load
from twinlog.control.cutover import gates, switchover
from twinlog.control.cutover.drain import Drain
from twinlog.control.cutover.fence import fence_acl
from twinlog.control.cutover.promotion import promote
from twinlog.control.flow.wiring import flow_setup

pytestmark = pytest.mark.broker

DRAIN = "twinlog.control.cutover.switchover:Drain.wait"
GROUPS = "twinlog.control.cutover.groups:CutoverGroups.set"
PROMOTE = "twinlog.control.cutover.switchover:promote"


@pytest.fixture
def case(guarded_pair: SecuredPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    return Case(guarded_pair, tmp_path, capsys)


@pytest.mark.witness("every record is read once across a switchover that is killed at each step")
def test_every_record_is_read_once_though_the_command_dies_at_each_step(case: Case) -> None:
    over = threading.Event()
    words = ("switchover", "run", str(case.file), "--yes", "--max-lag", "100000")
    with (
        Mirror(case.file) as mirror,
        case.producer(over, case.orders) as orders,
        case.producer(over, case.sales, **{"transactional.id": f"pay-{case.group}"}) as sales,
        case.consumer(over, case.orders) as shop,
        case.consumer(over, case.sales) as books,
    ):
        eventually(lambda: len(shop.read) > 50 and len(books.read) > 50)
        eventually(lambda: case.copied(case.orders) > 50 and case.copied(case.sales) > 50)
        eventually(lambda: case.commands.show("plan", "--max-lag", "100000")[0] == 0)
        for moment, where in (
            *(("before", CREATE_ACLS), ("behind", CREATE_ACLS), ("behind", DRAIN)),
            *(("behind", GROUPS), ("behind", PROMOTE)),
        ):
            killed(moment, where, *words)
        code, out, err = case.commands.do("run", "--yes")
        assert code == 0, (out, err)
        over.set()
        live = (orders, sales, shop, books)
        eventually(
            lambda: (
                all(one.works() for one in live) and orders.first_there_at and sales.first_there_at
            )
        )
        there = orders.count, sales.count
        eventually(lambda: orders.count > there[0] + 50 and sales.count > there[1] + 50)
        orders.end()
        sales.end()
        eventually(lambda: len(shop.read) >= orders.count and len(books.read) >= sales.count)
        shop.end()
        books.end()
        mirror.stop()
    assert shop.read == list(range(orders.count))
    assert books.read == list(range(sales.count))
    code, _, err = case.commands.do("abort")
    assert (code, "[PROMOTED]" in err) == (1, True)
    assert case.fences() == {case.orders, case.sales}, "producers on the source stay fenced off"


def test_clients_are_interrupted_for_seconds(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """A switchover's hook tells a producer to move, and every record arrives once. The test prints
    the time from the fence to the first record on the target. A failing command in a hook's
    pipeline is reported as HOOK_FAILED.
    """
    over, flag = threading.Event(), case.folder / "over"
    told = "import os,pathlib,sys;pathlib.Path(sys.argv[1]).write_text(os.environ['TWINLOG_FLOW'])"
    hook = f'{sys.executable} -c "{told}" {flag}'

    def follow() -> None:
        eventually(flag.exists)
        over.set()

    with Mirror(case.file) as mirror, case.producer(over, case.orders) as orders:
        eventually(lambda: case.copied(case.orders) > 20)
        eventually(lambda: case.remote(case.sales) in topic_names(case.pair.target))
        eventually(lambda: case.commands.show("plan")[0] == 0, what="open gates")
        threading.Thread(target=follow, daemon=True).start()
        code, out, err = case.commands.do("run", "--yes", "--hook", hook)
        assert code == 0, (out, err)
        eventually(lambda: orders.first_there_at)
        orders.end()
        mirror.stop()
    assert flag.read_text() == f"{case.alias}->B"
    found = [int(one.value or b"") for one in read_all(case.pair.target, case.remote(case.orders))]
    assert found == list(range(orders.count))
    with capsys.disabled():
        sys.stdout.write(f"\nfrom the fence to the first record there: {orders.gap_s:.1f} s\n")
    code, _, err = case.commands.do(
        "run", "--yes", "--hook", f"true && {sys.executable} -c 1/0 | grep ."
    )
    assert (code, "[HOOK_FAILED]" in err) == (1, True)


def test_closed_gates_change_nothing(case: Case) -> None:
    pair = case.pair
    produce(pair.source, case.orders, numbered(0, 10))
    commit(pair.source, f"{case.group}-x", case.orders, 4)
    code, plan = case.commands.show("plan")
    found = {one["gate"]: one for one in plan["plan"]["gates"]}
    assert code == 1
    closed = {name for name, one in found.items() if not one["is_open"]}
    assert {"mirror", "copy", "groups"} <= closed
    assert "no mirror leads the flow" in found["mirror"]["evidence"][0]
    code, out, err = case.commands.do("run", "--yes", *_accepting(*closed))
    assert (code, "[NOT_COPIED]" in err) == (1, True)
    with Mirror(case.file, once=True) as mirror:
        mirror.wait()
    produce(pair.source, case.orders, numbered(10, 5))
    code, out, err = case.commands.do("run", "--yes")
    assert code == 1
    assert "[GATE_CLOSED]" in err
    code, out, err = case.commands.do("run", "--yes", *_accepting(*closed))
    assert (code, "[NOT_DRAINED]" in err) == (1, True)
    assert "no mirror runs" in err
    assert case.fences() == set()
    with Mirror(case.file) as mirror:
        eventually(lambda: case.copied(case.orders) == 15)
        eventually(lambda: case.commands.show("plan")[0] == 0)
        produce(pair.target, case.remote(case.orders), [Outgoing(value=b"stray")])
        code, out, _ = case.commands.do("plan")
        assert code == 1
        assert re.search(r"gate foreign: CLOSED: .*1 record of other clients after the copy", out)
        assert "unknown producer id" in out
        mirror.stop()


def test_open_transaction_is_named_and_waited_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is open when the fence is set. The switchover reports it and waits for its end,
    because otherwise the records from the transaction's first one on would be lost. The switchover
    fails with NOT_DRAINED if the transaction does not end within the time limit.
    """
    pair, ended = case.pair, threading.Event()
    produce(pair.source, case.sales, numbered(0, 10))
    whose = re.compile(rf"{case.sales}-0: a transaction of producer id \d+ from offset 10")

    def meanwhile() -> None:
        with Mirror(case.file) as mirror:
            eventually(lambda: case.copied(case.sales) == 10)
            eventually(lambda: case.commands.show("plan")[0] == 0, what="a young one is no matter")
            monkeypatch.setattr(gates, "HANGING_S", 0.0)
            code, out, _ = case.commands.do("plan")
            assert code == 1
            assert whose.search(out)
            code, _, err = case.commands.do(
                "run", "--yes", "--within", "4", "--accept", "transactions"
            )
            assert (code, "[NOT_DRAINED]" in err) == (1, True)
            assert whose.search(err)
            assert case.fences() == {case.orders, case.sales}
            assert case.commands.do("abort")[0] == 0
            mirror.stop()
        ended.set()

    produce_transaction(pair.source, case.sales, numbered(10, 2), commit=True, before=meanwhile)
    assert ended.is_set()


def _accepting(*names: str) -> list[str]:
    return [word for name in names for word in ("--accept", name)]


def test_abort_takes_the_fence_away_and_leaves_that_of_others(case: Case) -> None:
    pair = case.pair
    setup = flow_setup(load(case.file, environment={}).flows[0])
    with Mirror(case.file) as mirror, ClusterClient(setup.source) as client:
        produce(pair.source, case.orders, numbered(0, 10))
        eventually(lambda: case.copied(case.orders) == 10)
        eventually(lambda: case.commands.show("plan")[0] == 0, what="open gates")
        # an operator had the same ACL before the switchover
        create_topic_acls(client, [fence_acl(case.sales)])
        killed("behind", CREATE_ACLS, "switchover", "run", str(case.file), "--yes")
        assert case.fences() == {case.orders, case.sales}
        assert case.is_refused()
        code, out, err = case.commands.do("abort")
        assert (code, "removed from 1 topic" in out) == (0, True), err
        eventually(lambda: case.fences() == {case.sales})
        eventually(lambda: not case.is_refused())
        assert case.commands.do("abort")[0] == 0
        delete_topic_acls(client, [fence_acl(case.sales)])
        eventually(lambda: case.copied(case.orders) > 10, what="the flow continues")
        mirror.stop()


def test_a_producer_that_still_writes_is_named_and_nothing_is_promoted(case: Case) -> None:
    """With `--fence none`, a producer continues to write, so the switchover names its producer ID
    and promotes nothing. The next run fails with GROUPS_LEFT, because a group's member still reads
    the source. After this member has left, the run succeeds.
    """
    pair, stop = case.pair, threading.Event()
    group = f"{case.group}-x"
    produce(pair.source, case.orders, numbered(0, 10))
    commit(pair.source, group, case.orders, 4)

    def write() -> None:
        client = producer(pair.source)
        while not stop.wait(0.05):
            client.produce(case.orders, b"1")
            client.flush()

    writer = threading.Thread(target=write, daemon=True)
    with Mirror(case.file) as mirror:
        eventually(lambda: case.copied(case.orders) == 10)
        eventually(lambda: case.commands.show("plan")[0] == 0)
        writer.start()
        code, out, err = case.commands.do("run", "--yes", "--fence", "none", "--within", "2")
        assert (code, "[FENCE_LEAKS]" in err) == (1, True)
        assert re.search(rf"{case.orders}-0 grew by .*: producer id \d+ \(epoch 0\) is at", err)
        assert case.commands.show("status")[1]["plan"]["promoted"] is None
        stop.set()
        writer.join()
        # a consumer that has not read all records and remains in the group
        idle = consumer(pair.source, config={"group.id": group, "enable.auto.commit": False})
        idle.subscribe([case.orders])
        eventually(lambda: idle.consume(1, 0.2))
        run_one = ("run", "--yes", "--topics", case.orders)
        code, out, err = case.commands.do(*run_one, "--within", "3")
        assert (code, "[GROUPS_LEFT]" in err) == (1, True), (out, err)
        assert f"group {group} still reads {case.orders}-0 on the source, at 4 of" in err
        assert case.fences() == {case.orders}, "it stays until the next run, or abort"
        idle.close()
        with case.consumer(threading.Event(), case.orders) as shop:
            eventually(lambda: shop.read)
            code, out, err = case.commands.do(*run_one)
            assert code == 0, (out, err)
        assert committed(pair.target, group, case.remote(case.orders)) == 4
        code, out, err = case.commands.do("plan", "--topics", case.sales)
        assert code == 0, "only one topic went over"
        mirror.stop()


class Hooked:
    """An application that stops when one file appears, and starts on the target when another file
    appears.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.count = case, 0
        self.calm, self.over = case.folder / "calm", case.folder / "over"
        script = case.folder / "hook.py"
        script.write_text(
            "import os, pathlib, sys\n"
            "calm, over = map(pathlib.Path, sys.argv[1:])\n"
            "step = os.environ['TWINLOG_STEP']\n"
            "if step == 'fence': calm.touch()\n"
            "if step == 'unfence': calm.unlink()\n"
            "if step == 'switch': over.touch()\n"
        )
        self.hook = f"{sys.executable} {script} {self.calm} {self.over}"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        pair, topic = self.case.pair, self.case.orders
        places = ((pair.source, topic), (pair.target, self.case.remote(topic)))
        clients = [producer(cluster) for cluster, _ in places]
        while not self._end.wait(0.02):
            is_over = self.over.exists()
            if is_over or not self.calm.exists():
                clients[is_over].produce(places[is_over][1], b"%d" % self.count)
                clients[is_over].flush()
                self.count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.parametrize("fence", ["hook", "none"])
def test_producers_are_stopped_by_their_owner(case: Case, fence: str) -> None:
    """The producers' owner stops them, either by a hook or before the switchover. The switchover
    creates no ACL, and no record is lost.
    """
    with Mirror(case.file) as mirror, Hooked(case) as shop:
        eventually(lambda: case.copied(case.orders) > 20)
        eventually(lambda: case.remote(case.sales) in topic_names(case.pair.target))
        words = ["--fence", fence]
        if fence == "hook":
            words += ["--fence-hook", shop.hook]
            shop.calm.touch()
            code, out, err = case.commands.do("abort", *words)
            assert (code, "fence: removed by the hook" in out) == (0, True), err
            count = shop.count
            eventually(lambda: shop.count > count + 10, what="abort lets it write")
        else:
            shop.calm.touch()
        eventually(lambda: case.commands.show("plan")[0] == 0)
        code, out, err = case.commands.do("run", "--yes", *words, "--hook", shop.hook)
        assert code == 0, (out, err)
        count = shop.count
        eventually(lambda: shop.count > count + 10, what="records of the new owner")
        assert case.fences() == set()
        mirror.stop()
    found = [int(one.value or b"") for one in read_all(case.pair.target, case.remote(case.orders))]
    assert found == list(range(shop.count))


def test_mirror_killed_in_the_midst(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror is killed before the drain, and a second process takes over. That process is
    killed after the promotion. The command then waits until no late request can arrive, and
    consumers read each record once.
    """
    over, drivers = threading.Event(), [Driver(case.file)]
    wait = Drain.wait

    def killed_before(self: Drain, *words: Any, **more: Any) -> Any:
        drivers[0].kill()
        drivers.append(Driver(case.file))
        return wait(self, *words, **more)

    def killed_behind(*words: Any) -> None:
        drivers[1].signal(signal.SIGSTOP)  # the second process must not read the promotion's row
        promote(*words)
        drivers[1].kill()

    monkeypatch.setattr(Drain, "wait", killed_before)
    monkeypatch.setattr(switchover, "promote", killed_behind)
    with (
        drivers[0],
        case.producer(over, case.orders) as orders,
        case.consumer(over, case.orders) as shop,
    ):
        eventually(lambda: case.copied(case.orders) > 50 and len(shop.read) > 50)
        eventually(lambda: case.remote(case.sales) in topic_names(case.pair.target))
        eventually(lambda: case.commands.show("plan", "--max-lag", "100000")[0] == 0)
        try:
            code, out, err = case.commands.do("run", "--yes", "--max-lag", "100000")
            assert code == 0, (out, err)
            assert "none of its requests can arrive" in out
            over.set()
            eventually(lambda: orders.works() and orders.first_there_at)
            with Driver(case.file) as late:
                late.until("FENCED")
                there = orders.count
                eventually(lambda: orders.count > there + 50)
            orders.end()
            eventually(lambda: shop.works() and len(shop.read) >= orders.count)
            shop.end()
        finally:
            for one in drivers:
                one.kill()
    assert shop.read == list(range(orders.count))


def test_acls_that_are_not_in_sync_close_their_gate(case: Case) -> None:
    text = case.file.read_text().replace("acls.interval.seconds = 1", "acls.interval.seconds = 900")
    case.file.write_text(text)

    def gate() -> dict[str, Any]:
        _, found = case.commands.show("plan")
        (one,) = (one for one in found["plan"]["gates"] if one["gate"] == "acls")
        return dict(one)

    produce(case.pair.source, case.orders, numbered(0, 10))
    allow(case.pair.source, case.user, ["describe_configs"], topic=case.orders)
    with Mirror(case.file) as mirror:
        eventually(lambda: case.copied(case.orders) == 10)
        eventually(lambda: gate()["is_open"], what="the only round of ACLs")
        allow(case.pair.source, case.user, ["read"], topic=case.orders)
        eventually(lambda: not gate()["is_open"])
        assert case.user in " ".join(gate()["evidence"])
        allow(case.pair.target, case.user, ["read"], topic=case.remote(case.orders))
        eventually(lambda: gate()["is_open"])
        mirror.stop()
