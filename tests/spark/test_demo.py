"""The demo as users run it. Both clusters are identical in the end, and no process, port or folder
remains.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.support.command import Command, all_gone
from tests.support.eventually import eventually
from tests.support.monitor import ask
from twinlog.control.web.address import parse_listen

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the demo's processes. It is set as TMPDIR."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return folder


class Traces:
    """The processes and ports that a demo has started, including its brokers, which are not its
    children.
    """

    def __init__(self, demo: Command, scratch: Path) -> None:
        mine = str(scratch)
        brokers = [one for one in psutil.process_iter() if mine in " ".join(_command_line(one))]
        self.processes = [*demo.children(), *brokers]
        self.ports = sorted({port for one in self.processes for port in _listens(one)})

    def are_gone(self) -> bool:
        return all_gone(self.processes) and not any(_answers(port) for port in self.ports)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _listens(process: psutil.Process) -> list[int]:
    try:
        found = process.net_connections(kind="tcp")
    except psutil.Error:
        return []
    return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Page:
    """The page of a demo, or of a mirror of the demo's clusters, at the address that it has
    printed.
    """

    def __init__(self, command: Command) -> None:
        eventually(lambda: "http://" in command.stdout)
        found = re.search(r"http://(\S+?:\d+)", command.stdout)
        address = None if found is None else parse_listen(found[1])
        assert address is not None
        self.address = address

    @property
    def flow(self) -> Any:
        (flow,) = ask(self.address, "/api/v1/flows").json["flows"]
        return flow

    def wish(self, what: str) -> None:
        path = f"/api/v1/flows/eu-%3Eus/{what}"
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request("POST", path, "{}", {"Content-Type": "application/json"})
            assert connection.getresponse().status == 200
        finally:
            connection.close()


def left_in(folder: Path) -> list[str]:
    """Return the remaining files. Files of JVMs and the empty folder of status files do not
    count.
    """
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in found if "hsperfdata" not in str(path)]


def test_ends_identical_after_its_time(tmp_path: Path, scratch: Path) -> None:
    with Command(tmp_path / "run", "demo", "--seconds", "8", "--rate", "300") as demo:
        eventually(lambda: "Mirroring" in demo.stdout)
        traces = Traces(demo, scratch)
        assert demo.wait() == 0
    lines = demo.stdout.splitlines()
    assert lines[-1] == "source and target are identical"
    assert "compared in key, value, headers, timestamp and order" in lines[-2]
    for topic in ("orders", "payments", "shipments"):
        assert any(line.startswith(f"  {topic}: ") for line in lines)
    assert demo.stderr == ""
    assert len(traces.ports) >= 4
    assert traces.are_gone()
    assert left_in(scratch) == []


class End(NamedTuple):
    """An event that ends a demo early, and the expected messages."""

    begins: Callable[[Command, Path], object]
    """Waits until the event is to happen."""
    comes: Callable[[Command], None]
    code: int = 0
    says: str = "source and target are identical"
    """Text that the last line on stdout must contain."""
    error: str = ""
    """Pattern of the last line on stderr, or empty if stderr must be empty."""
    disk: str = ""
    """Size of a separate disk for temporary files, or empty if there is none."""


def to_its_group(number: signal.Signals) -> Callable[[Command], None]:
    """Return a function that signals the demo's process group, as a terminal and `timeout` do."""
    return lambda demo: os.killpg(demo.pid, number)


def clusters_start(_: Command, scratch: Path) -> None:
    eventually(lambda: any("kafka.Kafka" in _command_line(p) for p in _all(scratch)))


def mirror_starts(demo: Command, _: Path) -> None:
    eventually(lambda: mirror_of(demo))


def copies(demo: Command, _: Path) -> None:
    eventually(lambda: "identical: " in demo.stdout)


def is_paused_and_resumed(demo: Command, scratch: Path) -> None:
    copies(demo, scratch)
    pause_and_resume(Page(demo))


def hears_nothing_of_its_mirror(demo: Command, scratch: Path) -> None:
    copies(demo, scratch)
    psutil.Process(demo.pid).suspend()
    time.sleep(3)  # the mirror reports once a second, but the suspended demo reads nothing


def has_no_mirror_any_more(demo: Command, scratch: Path) -> None:
    copies(demo, scratch)
    mirror = mirror_of(demo)
    assert mirror is not None
    mirror.kill()
    eventually(lambda: "the demo's mirror was killed" in demo.stdout)


def has_another_mirror(demo: Command, scratch: Path) -> None:
    """Kill the demo's mirror before it serves its page. Then run the mirror command that the demo
    prints instead.
    """
    mirror = eventually(lambda: mirror_of(demo))
    assert mirror is not None
    mirror.kill()
    eventually(lambda: "the demo's mirror was killed before it served its page" in demo.stdout)
    eventually(lambda: "A shop's orders wait in eu to be mirrored to us" in demo.stdout)
    (command,) = re.findall(r"^twinlog (mirror .*)$", demo.stdout, re.MULTILINE)
    with Command(scratch.parent / "mirror", *command.split(), "--listen", "off") as other:
        copies(demo, scratch)
        other.terminate()
        assert other.wait() == 0, other.stderr


def kill(demo: Command) -> None:
    demo.process.kill()


def kill_a_broker(demo: Command) -> None:
    """Kill the target's broker."""
    line = re.compile(rf"kafka.Kafka {os.environ['TMPDIR']}/twinlog-us-")
    (broker,) = (one for one in psutil.process_iter() if line.search(" ".join(_command_line(one))))
    broker.kill()


def fill_its_disk(demo: Command) -> None:
    """Fill the disk completely. The demo's own mounts are visible only below its root in /proc."""
    file = Path(f"/proc/{demo.pid}/root{os.environ['TMPDIR']}/filled")
    with file.open("wb", buffering=0) as opened, pytest.raises(OSError, match="No space left"):
        while True:
            opened.write(bytes(65_536))


NOTHING = "all files are removed"
IN_THE_GATE = {
    "Ctrl-C": End(is_paused_and_resumed, to_its_group(signal.SIGINT)),
    "SIGTERM while its clusters start": End(clusters_start, Command.terminate, says=NOTHING),
}
BEYOND = {
    "Ctrl-C while its mirror starts": End(mirror_starts, to_its_group(signal.SIGINT), says=NOTHING),
    "timeout": End(copies, to_its_group(signal.SIGTERM)),
    "its terminal closes": End(copies, to_its_group(signal.SIGHUP)),
    "it is killed": End(copies, kill, -signal.SIGKILL, ""),
    "it is killed with reports unread": End(hears_nothing_of_its_mirror, kill, -signal.SIGKILL, ""),
    "SIGTERM behind its mirror's kill": End(
        has_no_mirror_any_more, Command.terminate, 1, "source and target are NOT identical"
    ),
    "another mirror is gone before it": End(
        has_another_mirror, Command.terminate, 1, "source and target are NOT identical"
    ),
    "one of its brokers is killed": End(
        copies,
        kill_a_broker,
        1,
        "",
        "the demo's broker of us ended: its log has no reason, so it was probably killed, .* "
        r"and start it again \[ENVIRONMENT\]$",
    ),
    "its disk is full": End(
        copies,
        fill_its_disk,
        1,
        "",
        "the demo's broker of (eu|us) ended: (No space left on device|its disk has .* left); make "
        "room on the disk of .*, or set TMPDIR to a folder with room, and start it again",
        disk="400m",
    ),
}


@pytest.mark.parametrize(
    "end",
    [
        *IN_THE_GATE.values(),
        *(pytest.param(one, marks=pytest.mark.long) for one in BEYOND.values()),
    ],
    ids=[*IN_THE_GATE, *BEYOND],
)
def test_however_it_ends_it_leaves_nothing(tmp_path: Path, scratch: Path, end: End) -> None:
    mounts = [f"mount -t tmpfs -o size={end.disk} tmpfs {scratch}"] if end.disk else []
    with Command(tmp_path / "run", "demo", mounts=mounts) as demo:
        end.begins(demo, scratch)
        traces = Traces(demo, scratch)
        end.comes(demo)
        assert demo.wait() == end.code
        assert end.says in demo.stdout.splitlines()[-1]
        if end.error:
            assert re.search(end.error, demo.stderr.splitlines()[-1])
        else:
            assert demo.stderr.strip() in ("", "shutting down; a second signal stops immediately")
        assert traces.are_gone()
        if end.code < 0:  # after a SIGKILL, other processes clean up
            eventually(lambda: left_in(scratch) == [])
        assert left_in(scratch) == []


def pause_and_resume(page: Page) -> None:
    assert ask(page.address, "/page/").status == 200
    page.wish("pause")
    eventually(lambda: page.flow["state"] == "PAUSED")
    eventually(lambda: page.flow["loss"]["records"] > 0, what="what would be lost grows")
    page.wish("resume")
    eventually(lambda: page.flow["state"] == "RUNNING")


def _all(scratch: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter() if str(scratch) in " ".join(_command_line(one))]


def mirror_of(demo: Command) -> psutil.Process | None:
    """Return the process of the demo's mirror, or None if it has not been started yet."""
    below = psutil.Process(demo.pid).children()
    return next((one for one in below if "spawn_main" in " ".join(_command_line(one))), None)
