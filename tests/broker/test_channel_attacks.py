"""The channel of a mirror is attacked. The mirror either continues to copy, or ends with an
error.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.mirror import Mirror
from tests.support.rounds import Rounds
from tests.support.topics import create_topic
from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import MessageCodec
from twinlog.channel.frames import LaneIdentity
from twinlog.control.duties.own_topics import OwnTopics
from twinlog.control.watch.monitor import Monitor
from twinlog.errors import Disconnected
from twinlog.lane.messages import MESSAGES
from twinlog.sandbox import LocalCluster
from twinlog.threads import ThreadDied

pytestmark = [pytest.mark.broker]

RESET = struct.pack("ii", 1, 0)


class Copying:
    """A mirror of one topic that has started to copy."""

    def __init__(
        self, source: LocalCluster, target: LocalCluster, topic: str, folder: Path, *, tls: bool
    ) -> None:
        self.source, self.target, self.topic = source, target, topic
        self.produced = 0
        self.there = f"B{topic.replace('-', '')}"
        create_topic(source, topic)
        path = folder / "mm2.properties"
        path.write_text(
            f"clusters = A, {self.there}\n"
            f"A.bootstrap.servers = {source.bootstrap}\n"
            f"{self.there}.bootstrap.servers = {target.bootstrap}\n"
            f"A->{self.there}.enabled = true\n"
            f"topics = {topic}\nreplication.factor = 1\n"
            "emit.checkpoints.enabled = false\n"
        )
        self.mirror = Mirror(path, lanes=1, tls=tls)

    def more(self) -> None:
        """Write 100 more records, and check that all records arrive once and in order."""
        values = [b"%d" % number for number in range(self.produced, self.produced + 100)]
        produce(self.source, self.topic, [Outgoing(value=value) for value in values])
        self.produced += len(values)
        eventually(lambda: len(self.arrived()) >= self.produced)
        assert self.arrived() == [b"%d" % number for number in range(self.produced)]

    def arrived(self) -> list[bytes]:
        return [bytes(one.value or b"") for one in read_all(self.target, f"A.{self.topic}")]

    def hello(self, attempt: int) -> ChannelClient:
        """Connect to the channel as a client that knows the lane's secret, and send the given
        attempt number.
        """
        (job,) = self.mirror.leases.jobs
        address = replace(self.mirror.server.address, token=job.secrets[0])
        identity = LaneIdentity(lease=job.lease, lane=0, attempt=attempt, pid=os.getpid())
        return ChannelClient.connect(address, identity, MessageCodec(MESSAGES))


def heard(client: ChannelClient, within: float) -> list[Any]:
    until = time.monotonic() + within
    while time.monotonic() < until:
        select.select([client], [], [], 0.2)
        if messages := client.receive():
            return messages
    return []


def test_resets_before_any_word_do_not_end_a_mirror(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    one = Copying(source_cluster, target_cluster, fresh_topic, tmp_path, tls=True)
    with one.mirror:
        one.more()
        for number in range(600):
            address = one.mirror.server.address
            sock = socket.create_connection((address.host, address.port), timeout=PATIENCE_S)
            if number % 2:
                sock.sendall(b"\x16\x03\x01\x02\x00")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.close()
        one.more()
        (pid,) = one.mirror.leases.pids()
        os.kill(pid, signal.SIGKILL)  # the replacement lane needs the channel's listener
        one.more()


@pytest.mark.witness("a stolen lane secret gives no access to work")
def test_a_client_with_a_lanes_secret_gets_nothing_while_the_lane_runs(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    one = Copying(source_cluster, target_cluster, fresh_topic, tmp_path, tls=False)
    with one.mirror:
        one.more()
        before = one.mirror.leases.pids()
        repeated = one.hello(0)  # the running lane has already used this attempt number
        with pytest.raises(Disconnected):
            heard(repeated, 20)
        waiting = one.hello(2)
        assert heard(waiting, 3) == []
        newer = one.hello(3)
        with pytest.raises(Disconnected):  # only one client may wait at a time
            heard(waiting, 20)
        assert heard(newer, 1) == []
        one.more()
        assert one.mirror.leases.pids() == before, "the lane was displaced"
        newer.close()
        # attempts up to 3 are used up, so Spark starts further attempts until one is accepted
        os.kill(before[0], signal.SIGKILL)
        one.more()


def test_the_next_attempt_of_a_lane_gets_work_after_the_previous_one_has_ended(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """Spark starts a lane's next attempt while the previous attempt is frozen and still connected.
    The driver sends nothing to the next attempt until it has given up the previous one.
    """
    one = Copying(source_cluster, target_cluster, fresh_topic, tmp_path, tls=False)
    with one.mirror:
        one.more()
        (pid,) = one.mirror.leases.pids()
        os.kill(pid, signal.SIGSTOP)  # the connection stays open, but the lane sends nothing
        heir = one.hello(1)
        assert heard(heir, 2) == []
        (first, *_) = heard(heir, 30)
        assert type(first).__name__ == "Work"
        heir.close()
        os.kill(pid, signal.SIGKILL)
        one.more()


@pytest.mark.witness("a mirror whose channel fails ends with a code")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mirror_whose_channel_dies_ends_with_a_code(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = set(threading.enumerate())
    duties = Rounds(monkeypatch, OwnTopics, "round", lambda _: "own topics")

    def busy() -> list[str]:
        """Return the names of the mirror's threads, except idle threads of the process's pool."""
        names = {each.name for each in set(threading.enumerate()) - before}
        named = {name for name in names if name.startswith("twinlog-")}
        return sorted(named - {"twinlog-idle", "twinlog-timer"})

    one = Copying(source_cluster, target_cluster, fresh_topic, tmp_path, tls=False)
    with one.mirror:
        one.more()
        eventually(lambda: duties.ended["own topics"])
        assert busy()
        monitor = Monitor(thread_watch=one.mirror.thread_watch)
        healthy = monitor.answer("/healthz")
        assert healthy is not None
        assert healthy.status == 200
        # the channel's thread dies when it next uses its selector
        one.mirror.server._selector.close()
        with pytest.raises(ThreadDied, match="twinlog-channel"):
            one.mirror.wait()
        sick = monitor.answer("/healthz")
        assert sick is not None
        assert sick.status == 503
        assert b"twinlog-channel" in sick.body
        eventually(lambda: not one.mirror.server._thread.is_alive())
        eventually(lambda: not busy())
