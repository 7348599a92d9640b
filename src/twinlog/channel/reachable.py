"""Finds an address of this machine that other machines can reach."""

from __future__ import annotations

import os
import socket


def address_for_executors(master: str | None) -> str:
    """Return the address at which the channel listens for this master (None: this machine)."""
    if master is None or master.startswith("local"):
        return "127.0.0.1"
    return os.environ.get("SPARK_LOCAL_IP") or _outward_address()


def _outward_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # no packet is sent: connecting a datagram socket only selects the interface
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
