"""Hosts for a test: network namespaces with a host name each. They reach the clusters, and if they
are joined, each other.

A host exists as long as a process that waits for the end of its standard input. However the test
ends, this process ends with it, and the kernel removes the namespaces and their interfaces.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.support.forwarder import accept

__all__ = ["Host", "hosts"]

T = TypeVar("T")

CLONE_NEWNET: Final = 0x40000000
HOLD: Final = 'hostname "$0" && ip link set lo up && echo ready && exec cat'


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a test."""

    name: str
    holder: int
    """ID of the process that keeps the host's namespaces."""
    address: str | None
    """Address at which the other hosts reach this one, or None if the hosts are not joined."""

    @property
    def enter(self) -> tuple[str, ...]:
        """Return the prefix for a command that must run on the host. The prefix starts no further
        process, so the process ID is the command's.
        """
        return ("nsenter", f"--target={self.holder}", "--net", "--uts")

    @property
    def network(self) -> Path:
        """Return the target of `/proc/PID/ns/net`, which is the same for every process on the
        host.
        """
        return Path(f"/proc/{self.holder}/ns/net").readlink()

    def within(self, call: Callable[[], T]) -> T:
        """Return the result of a call that runs in a thread with the host's network."""
        found: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                _join(self.holder)
                found.append(call())
            except BaseException as error:  # noqa: BLE001 (raised below)
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    @contextmanager
    def reaches(self, *bootstraps: str) -> Iterator[None]:
        """Let the host reach these brokers at their advertised addresses, which are on the loopback
        of the test.
        """
        with ExitStack() as stack:
            for address in ",".join(bootstraps).split(","):
                near, _, port = address.rpartition(":")

                def listen(near: str = near, port: str = port) -> socket.socket:
                    return socket.create_server((near, int(port)))

                listener = self.within(listen)
                stack.callback(listener.close)
                stack.callback(listener.shutdown, socket.SHUT_RDWR)
                arguments = (listener, near, int(port))
                threading.Thread(target=accept, args=arguments, daemon=True).start()
            yield


def _join(pid: int) -> None:
    """Move this thread to the network namespace of a process. Python has `os.setns` only from 3.12
    on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


@contextmanager
def hosts(*names: str, joined: bool = False) -> Iterator[list[Host]]:
    """Create a host for each name. If `joined`, each has an address: 10.77.0.1 and so on."""
    _must_be_possible()
    with ExitStack() as stack:
        found = []
        switch = stack.enter_context(_held("switch")) if joined else None
        if switch is not None:
            _run(switch, "ip", "link", "add", "br0", "type", "bridge")
            _run(switch, "ip", "link", "set", "br0", "up")
        for number, name in enumerate(names, start=1):
            holder = stack.enter_context(_held(name))
            address = None
            if switch is not None:
                address, port = f"10.77.0.{number}", f"port{number}"
                pair = ("peer", "name", "eth0", "netns", str(holder))
                _run(switch, "ip", "link", "add", port, "type", "veth", *pair)
                _run(switch, "ip", "link", "set", port, "master", "br0", "up")
                _run(holder, "ip", "address", "add", f"{address}/24", "dev", "eth0")
                _run(holder, "ip", "link", "set", "eth0", "up")
            found.append(Host(name, holder, address))
        yield found


def _must_be_possible() -> None:
    """Skip the test, with the reason, if namespaces cannot be created."""
    for program in ("unshare", "nsenter", "ip", "hostname"):
        if shutil.which(program) is None:
            pytest.skip(f"network namespaces cannot be made: there is no `{program}` here")
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"network namespaces cannot be made: {tried.stderr.strip()}")


@contextmanager
def _held(name: str) -> Iterator[int]:
    """Start a process with its own network and host name namespaces. Yield its ID."""
    command = ["unshare", "--net", "--uts", "sh", "-c", HOLD, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"ready\n"
            yield holder.pid
        finally:
            with suppress(OSError):
                holder.stdin.close()
            holder.wait(20)


def _run(holder: int, *command: str) -> None:
    where: Sequence[str] = ("nsenter", f"--target={holder}", "--net")
    subprocess.run([*where, *command], check=True)
