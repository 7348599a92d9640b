"""The lane's end of its connection to the driver, as the loop uses it (`channel.client` is the one
there is).
"""

from __future__ import annotations

from typing import Protocol


class Channel(Protocol):
    """The lane's end of its connection to the driver."""

    @property
    def last_heard(self) -> float:
        """CLOCK_BOOTTIME up to which the driver provably heard us, in seconds."""

    @property
    def wants_write(self) -> bool: ...
    def fileno(self) -> int: ...
    def receive(self) -> list[object]: ...
    def send(self, message: object) -> None: ...
    def flush(self) -> None: ...
