"""A long link in front of a cluster (`link.c`, which is compiled if necessary), and a cluster
behind it.

Clients of the cluster's listener `FAR` connect through the link, because the brokers advertise the
link's port. The benchmark's own clients use the first listener, without the link.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.copier import CopierFailed
from twinlog.sandbox.brokers import LocalCluster
from twinlog.sandbox.layout import CONTROLLER, HOST, Listeners, free_ports

__all__ = ["FAR", "Link", "far_cluster", "open_link"]

FAR: Final = "FAR"
_NEAR: Final = "PLAINTEXT"
_SOURCE: Final = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link's delay in each direction, and its limits. 0 means no limit."""

    delay_ms: float
    mbit: float = 0
    """Maximum rate of all connections together, in each direction."""
    window_kb: int = 0
    """Maximum unacknowledged bytes of one connection, in KB."""

    def __str__(self) -> str:
        rate = f", {self.mbit:g} Mbit/s" if self.mbit else ""
        window = f", {self.window_kb} KB per connection" if self.window_kb else ""
        return f"{self.delay_ms:g} ms each way{rate}{window}"


@contextmanager
def open_link(link: Link, port: int, to_port: int, folder: Path) -> Iterator[psutil.Process]:
    """Run a link between two ports of this machine until the `with` block ends."""
    program = folder / "link"
    if not program.exists():
        subprocess.run(["cc", "-O2", "-o", str(program), str(_SOURCE)], check=True)
    numbers = (port, to_port, link.delay_ms, link.mbit, link.window_kb)
    process = subprocess.Popen(
        [str(program), *map(str, numbers)], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise CopierFailed("the link did not start")
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def far_cluster(
    name: str, new_cluster: Callable[[str, Mapping[str, str]], LocalCluster]
) -> tuple[LocalCluster, int]:
    """Return a cluster of one broker that is not started, and the port of the link to its listener
    `FAR`.
    """
    near, far, controller, link_port = free_ports(4)
    advertised = f"{_NEAR}://{HOST}:{near},{FAR}://{HOST}:{link_port}"
    cluster = new_cluster(name, {"advertised.listeners": advertised})
    cluster.listeners = Listeners(
        names=(_NEAR, FAR),
        protocols={_NEAR: "PLAINTEXT", FAR: "PLAINTEXT", CONTROLLER: "PLAINTEXT"},
    )
    cluster.ports = {1: {_NEAR: near, FAR: far, CONTROLLER: controller}}
    return cluster, link_port
