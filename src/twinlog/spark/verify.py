"""The Spark task of `twinlog verify`: connect to the channel, compare one section, report the
result.

    task                          driver
     |  <- VerifyWork --------------|   clusters (contains secrets), section of a partition
     |  -- VerifyStep ------------->|   a few times a second: progress
     |  -- VerifyDone ------------->|   the result
     |  <- VerifyTaken -------------|   the driver has stored the result

The task only reads. So if a task dies or its result is lost, it is repeated from the beginning, and
if two attempts report, the driver uses the first result.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any, Final

from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import ChannelAddress, LaneIdentity
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import Disconnected, TwinlogError
from twinlog.mirror.verify.difference import Compared
from twinlog.survey.verify import VerifyTask, verify_partition

ANSWER_WITHIN_S: Final = 60.0
STEPS_EVERY_S: Final = 0.25


class VerifyWork(Message, frozen=True, kw_only=True):
    """The driver's order to compare one section."""

    source: ClusterSettings
    target: ClusterSettings
    wanted: VerifyTask


class VerifyStep(Message, frozen=True, kw_only=True):
    """The number of target offsets that the task has compared since it began."""

    offsets: int


class VerifyDone(Message, frozen=True, kw_only=True):
    """The result of the comparison of a section."""

    compared: Compared
    why_not: str
    """Why the section was not compared completely, with the code, or an empty text."""


class VerifyTaken(Message, frozen=True, kw_only=True):
    """The driver has stored the result, so the task may end."""


VERIFY_MESSAGES: Final = (VerifyWork, VerifyStep, VerifyDone, VerifyTaken)


class _DriverLost(Exception):
    """The driver cannot be reached, or no longer waits for this attempt."""


def verify_section(lane: int, lease: int, attempt: int, address: ChannelAddress) -> None:
    """Run one attempt of one task to its end.

    Raises TwinlogError if the driver cannot be reached, so that Spark starts the task again.
    """
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=os.getpid())
    channel = ChannelClient.connect(address, identity, MessageCodec(VERIFY_MESSAGES))
    try:
        work = _next_message(channel)
        if isinstance(work, VerifyWork):
            channel.send(_compare(work, channel))
            _next_message(channel)
    except _DriverLost as lost:
        raise Disconnected(
            "the driver of this section cannot be reached", code="CHANNEL_LOST"
        ) from lost
    finally:
        channel.close()


def _compare(work: VerifyWork, channel: ChannelClient) -> VerifyDone:
    compared, why_not = Compared(), ""
    done, said_at = 0, time.monotonic()

    def step(offsets: int) -> None:
        nonlocal done, said_at
        done += offsets
        if time.monotonic() < said_at + STEPS_EVERY_S:
            return
        said_at = time.monotonic()
        try:
            channel.send(VerifyStep(offsets=done))
        except Disconnected as error:
            raise _DriverLost from error

    with ClusterClient(work.source) as source, ClusterClient(work.target) as target:
        try:
            verify_partition(work.wanted, source, target, step, compared)
        except TwinlogError as error:
            why_not = str(error)  # the task reports the result up to the error
    return VerifyDone(compared=compared, why_not=why_not)


def _next_message(channel: ChannelClient) -> Any:
    """Return the driver's next message. Raises Disconnected if none arrives in ANSWER_WITHIN_S."""
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        messages = channel.receive()
        if messages:
            return messages[0]
        select.select([channel], [channel] if channel.wants_write else [], [], 0.25)
    raise Disconnected("the driver did not respond in time", code="CHANNEL_LOST")
