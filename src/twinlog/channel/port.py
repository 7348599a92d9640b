"""The lane's end of its connection to the driver, as the loop uses it. Implemented by
`channel.client`.
"""

from __future__ import annotations

from typing import Protocol


class Channel(Protocol):
    """The lane's end of its connection to the driver."""

    @property
    def last_heard(self) -> float:
        """Time by CLOCK_BOOTTIME, in seconds, up to which the driver provably received data from
        this lane.
        """

    @property
    def wants_write(self) -> bool: ...
    def fileno(self) -> int: ...
    def receive(self) -> list[object]: ...
    def send(self, message: object) -> None: ...
    def flush(self) -> None: ...
