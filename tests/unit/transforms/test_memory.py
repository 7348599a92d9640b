"""The limit for the memory of all processes of the transforms' application."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.eventually import eventually
from twinlog.records import daemon
from twinlog.records.daemon import DATA_BYTES
from twinlog.transforms import memory
from twinlog.transforms.memory import MEBIBYTE

GROWS: Final = """
import sys
print(flush=True)
sys.stdin.readline()
held = b"x" * (200 << 20)
print(flush=True)
sys.stdin.readline()
"""
LIMITED: Final = """
from twinlog.records import daemon
daemon.limit_data()
try:
    bytearray(900 << 20)
except MemoryError:
    print("refused")
bytearray(300 << 20)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", GROWS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_memory_of_descendants_counts(
    child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert child.stdin is not None and child.stdout is not None
    monkeypatch.setattr(memory, "LOOK_S", 0.01)
    child.stdout.readline()
    seen: list[int] = []
    memory.watch(0, seen.append, lambda: True)  # other tests of this process have children, too
    limit = seen.pop() + 120 * MEBIBYTE
    arguments = [limit, seen.append, lambda: True]
    thread = threading.Thread(target=memory.watch, args=arguments, daemon=True)
    thread.start()
    looks = iter(range(3))
    eventually(lambda: not thread.is_alive() or next(looks, None) is None, what="some looks")
    assert not seen
    child.stdin.write("\n")
    child.stdin.flush()
    thread.join(60.0)
    (used,) = seen
    assert limit < used < limit + 200 * MEBIBYTE


def test_memory_is_not_added_up_while_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOOK_S", 0.001)
    looks, seen = iter([False, False, True]), list[int]()
    memory.watch(0, seen.append, lambda: next(looks))
    assert len(seen) == 1 and next(looks, None) is None


def test_a_lower_limit_of_the_system_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_BYTES, str(800 * MEBIBYTE))
    limits: list[tuple[int, int]] = []
    hard = 500 * MEBIBYTE
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    daemon.limit_data()
    assert limits == [(hard, hard)]


def test_a_worker_gets_no_more_than_its_limit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        capture_output=True,
        text=True,
        check=True,
        env={DATA_BYTES: str(800 * MEBIBYTE), "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "refused\n"


@pytest.mark.parametrize("limit", [1024, 2048, 4096])
def test_shares_of_the_limit(limit: int) -> None:
    given = limit * MEBIBYTE
    shares = (memory.heap_bytes(given), memory.payload_bytes(given), memory.bytes_at_once(given))
    assert sum(shares) + 400 * MEBIBYTE < given
    assert 2 * memory.payload_bytes(given) < memory.worker_bytes(given)
    assert f"-Xmx{limit * 5 // 16}m" in memory.jvm_flags(given)
