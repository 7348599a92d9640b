"""A mirror whose topics are transformed by plain Python, over the real ports of its lanes.

Files with transforms are refused, so the plans and the lanes' work are given the digest here.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.support.mirror import Mirror
from tests.support.python_transformer import RecordFunction, transformed
from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lending import LendingClient
from twinlog.channel.server import ChannelEvent, LaneMessage
from twinlog.config.flow.transforms import TransformsConfig
from twinlog.control.flow import flow_setup
from twinlog.errors import TwinlogError
from twinlog.lane.messages import Ready, Work
from twinlog.wire.record_batch import Codec

__all__ = ["DIGEST", "TransformedMirror", "with_transforms"]

DIGEST: Final = "ab"
RECORDS: Final = 400
"""Records of a batch in an answer."""


def with_transforms(patch: pytest.MonkeyPatch) -> None:
    """All topics that are discovered from now on have this transform, and lanes run it."""
    patch.setattr(TransformsConfig, "digest_of", lambda *_: DIGEST)
    patch.setattr(flow_setup, "Work", lambda **given: Work(**{**given, "has_transforms": True}))


class TransformedMirror(Mirror):
    """The application of its transforms is a thread for each lane."""

    def __init__(self, function: RecordFunction, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._function = function
        deliver = self.server._deliver
        self.ranges = self.lanes = 0
        """How many were answered, and how many lanes have asked for answers."""

        def hear(event: ChannelEvent) -> None:
            if isinstance(event, LaneMessage) and isinstance(event.message, Ready):
                port = event.message.range_port
                assert port is not None
                self.lanes += 1
                threading.Thread(target=self._answer, args=[port], daemon=True).start()
            deliver(event)

        self.server._deliver = hear

    def _answer(self, port: ChannelAddress) -> None:
        """Until the lane ends."""
        with (
            suppress(TwinlogError),
            LendingClient(port) as application,
            LendingClient(port) as task,
        ):
            application.subscribe()
            while not self._done.is_set():
                for offer in application.offers(0.2):
                    assert offer.transform == DIGEST
                    one = task.take(offer.number)
                    if one is not None:
                        self.ranges += 1
                        found = transformed(one, self._function, codec=Codec.LZ4, records=RECORDS)
                        task.give(found)
