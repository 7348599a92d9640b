"""All messages between driver and lanes are unchanged by the channel's codec."""

from __future__ import annotations

import pytest

from tests.support.driver import work_of
from twinlog.channel.codec import MessageCodec
from twinlog.lane.messages import MESSAGES
from twinlog.model import Isolation


@pytest.mark.parametrize("isolation", Isolation)
def test_work_arrives_as_it_was_sent(isolation: Isolation) -> None:
    codec = MessageCodec(MESSAGES)
    sent = work_of(isolation=isolation)
    got = codec.decode(codec.encode(sent))
    assert got == sent
    assert got.isolation is isolation, "lanes compare by identity"
