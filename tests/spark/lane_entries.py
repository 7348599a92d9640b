"""Lanes for the tests of leases: they talk over the channel, and copy nothing."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.errors import Disconnected, Unreachable
from twinlog.lane.messages import Receipt
from twinlog.spark.channel import ChannelClient
from twinlog.spark.codec import MessageCodec
from twinlog.spark.framing import ChannelAddress, LaneIdentity

MODULE = "tests.spark.lane_entries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The driver wants no more."""


CODEC = MessageCodec((Finish,))


def receipt(lane: int, lease: int, attempt: int) -> Receipt:
    return Receipt(
        lease=lease,
        lane=lane,
        topic="none",
        partition=attempt,
        outcome="DONE",
        records=0,
        bytes=0,
        next_upstream_offset=2**40,
        next_downstream_offset=-1,
    )


def until_told(lane: int, lease: int, attempt: int, address: ChannelAddress) -> Iterator[Receipt]:
    """Stay until the driver says Finish, or is gone."""
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=os.getpid())
    channel = ChannelClient.connect(address, identity, CODEC)
    try:
        while not channel.receive():
            select.select([channel], [], [], 0.25)
    except Disconnected:
        return
    finally:
        channel.close()
    yield receipt(lane, lease, attempt)


def refuse(lane: int, lease: int, attempt: int, address: ChannelAddress) -> Iterator[Receipt]:
    raise Unreachable(f"lane {lane} of {address.host}: no way", code="CHANNEL_UNREACHABLE")


def stumble(lane: int, lease: int, attempt: int, address: ChannelAddress) -> Iterator[Receipt]:
    raise ValueError(f"lane {lane} is broken")
