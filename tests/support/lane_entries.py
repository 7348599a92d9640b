"""Entry points of lanes for the tests of leases. These lanes use the channel, but copy nothing."""

from __future__ import annotations

import os
import pickle
import select
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from pyspark import accumulators
from pyspark.serializers import BatchedSerializer

from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import ChannelAddress, LaneIdentity
from twinlog.errors import Disconnected, Unreachable

MODULE = "tests.support.lane_entries"


class Finish(Message, frozen=True, kw_only=True):
    """Tells a lane to end."""


class Finished(Message, frozen=True, kw_only=True):
    """The last message of a lane that has completed its work."""

    lease: int
    lane: int
    attempt: int


CODEC = MessageCodec((Finish, Finished))


def until_told(lane: int, lease: int, attempt: int, address: ChannelAddress) -> None:
    """Run until the driver sends Finish or closes the connection."""
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=os.getpid())
    channel = ChannelClient.connect(address, identity, CODEC)
    try:
        while not channel.receive():
            select.select([channel], [], [], 0.25)
        channel.send(Finished(lease=lease, lane=lane, attempt=attempt))
        while channel.wants_write:
            select.select([], [channel], [], 0.25)
            channel.flush()
    except Disconnected:
        return
    finally:
        channel.close()


def refuse(lane: int, lease: int, attempt: int, address: ChannelAddress) -> None:
    raise Unreachable(f"lane {lane} of {address.host}: no way", code="CHANNEL_UNREACHABLE")


def stumble(lane: int, lease: int, attempt: int, address: ChannelAddress) -> None:
    raise ValueError(f"lane {lane} is broken")


class Bomb:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self._path),)


def hostile(lane: int, lease: int, attempt: int, address: ChannelAddress) -> Any:
    """Act as an executor that sends its own pickles at every point where PySpark reads a pickle.
    The address's host is misused as the folder for the files that these pickles create.
    """

    def result(_self: object, _items: object, stream: BinaryIO) -> None:
        data = pickle.dumps([Bomb(f"{address.host}/result")])
        stream.write(struct.pack("!i", len(data)) + data)

    BatchedSerializer.dump_stream = result  # type: ignore[method-assign]
    bomb: Any = SimpleNamespace(_value=Bomb(f"{address.host}/accumulator"))
    accumulators._accumulatorRegistry[7] = bomb
    return iter(())
