"""The Spark task of a lane: connects to the channel, requests work, and runs the lane's loop."""

from __future__ import annotations

import logging
import os
import select
import time
from typing import Any, Final

from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import MessageCodec
from twinlog.channel.frames import ChannelAddress, LaneIdentity
from twinlog.errors import Disconnected, DriverSilent, TwinlogError
from twinlog.lane.loop import LaneLoop
from twinlog.lane.messages import MESSAGES, Work

log = logging.getLogger(__name__)

WORK_WITHIN_S: Final = 30.0


def run_lane(lane: int, lease: int, attempt: int, address: ChannelAddress) -> None:
    """Run one attempt of the Spark task of a lane. If the driver is lost, the lane ends without an
    error.
    """
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=os.getpid())
    channel = ChannelClient.connect(address, identity, MessageCodec(MESSAGES))
    try:
        first = _await_work(channel)
        if isinstance(first[0], Work):
            loop = LaneLoop(channel, first[0])
            # messages that arrived together with Work (the settings of the lane), perhaps including
            # EndLane
            loop.accept(first[1:])
            loop.run()
    except (Disconnected, DriverSilent) as error:
        # without a driver, positions cannot be handed over; the lane that copies these partitions
        # next finds them in the target's logs
        log.warning("lane %d of lease %d ends: %s", lane, lease, error)
    finally:
        channel.close()


def _await_work(channel: ChannelClient) -> list[Any]:
    """Return the first messages. The first one is Work (the settings of the lane), or EndLane if
    the driver no longer needs this lane.

    If none arrives, the attempt fails, so that Spark starts the next attempt. Possible reasons: the
    driver has dropped the connection because of many unauthenticated ones, or the previous attempt
    is still connected.
    """
    deadline = time.monotonic() + WORK_WITHIN_S
    while time.monotonic() < deadline:
        try:
            messages = channel.receive()
        except Disconnected as error:
            raise TwinlogError(
                f"this lane could not start: {error.message}", code="LANE_WITHOUT_WORK"
            ) from None
        if messages:
            return messages
        select.select([channel], [], [], 0.25)
    raise TwinlogError(
        f"the driver sent this lane no settings within {WORK_WITHIN_S:g} s",
        code="LANE_WITHOUT_WORK",
    )
