"""What a lane's Spark task runs: join the channel, ask for work, turn the loop, leave a receipt."""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Iterator
from typing import Any, Final

from twinlog.errors import Disconnected, DriverSilent, TwinlogError
from twinlog.lane.loop import LaneLoop
from twinlog.lane.messages import MESSAGES, Receipt, Work
from twinlog.spark.channel import ChannelClient
from twinlog.spark.codec import MessageCodec
from twinlog.spark.framing import ChannelAddress, LaneIdentity

log = logging.getLogger(__name__)

WORK_WITHIN_S: Final = 30.0


def run_lane(lane: int, lease: int, attempt: int, address: ChannelAddress) -> Iterator[Receipt]:
    """One attempt of one lane, to its end; a lane whose driver is gone ends quietly."""
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=os.getpid())
    channel = ChannelClient.connect(address, identity, MessageCodec(MESSAGES))
    try:
        first = _await_work(channel)
        if isinstance(first[0], Work):
            loop = LaneLoop(channel, first[0])
            loop.accept(first[1:])  # what came with it, perhaps already the end
            loop.run()
            yield from loop.receipts(lane=lane, lease=lease)
    except (Disconnected, DriverSilent) as error:
        # nobody is left to hand over to: what is on the target is the truth, and the next lane
        # looks there
        log.warning("lane %d of lease %d ends: %s", lane, lease, error)
    finally:
        channel.close()


def _await_work(channel: ChannelClient) -> list[Any]:
    """The first messages: Work, or Stop when the driver wants nothing of us any more."""
    deadline = time.monotonic() + WORK_WITHIN_S
    while time.monotonic() < deadline:
        messages = channel.receive()
        if messages:
            return messages
        select.select([channel], [], [], 0.25)
    raise TwinlogError("the driver gave this lane no work in time", code="LANE_WITHOUT_WORK")
