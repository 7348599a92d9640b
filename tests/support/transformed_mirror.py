"""A mirror whose topics are transformed by plain Python, over the real ports of its lanes. Such a
configuration would be refused, so the digest of the transform is patched into the plans and the
lanes' work.
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
"""Number of records in a batch of an answer."""


def with_transforms(patch: pytest.MonkeyPatch, dead_letters: str = "") -> None:
    """Set the transform for all topics that are discovered from now on, and make lanes run it. If
    `dead_letters` is given, records on which the transform fails go to this topic.
    """
    patch.setattr(TransformsConfig, "digest_of", lambda *_: DIGEST)

    def work(**given: Any) -> Work:
        topics = (*given["target_topics"], *filter(None, [dead_letters]))
        changed = {"has_transforms": True, "dead_letters": dead_letters, "target_topics": topics}
        return Work(**given | changed)

    patch.setattr(flow_setup, "Work", work)


class TransformedMirror(Mirror):
    """A mirror whose transforms run in one thread per lane instead of in an application."""

    def __init__(self, function: RecordFunction, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._function = function
        self.quarantines = False
        deliver = self.server._deliver
        self.ranges = self.lanes = 0
        """Number of answered ranges, and number of lanes that have requested answers."""

        def hear(event: ChannelEvent) -> None:
            if isinstance(event, LaneMessage) and isinstance(event.message, Ready):
                port = event.message.range_port
                assert port is not None
                self.lanes += 1
                threading.Thread(target=self._answer, args=[port], daemon=True).start()
            deliver(event)

        self.server._deliver = hear

    def _answer(self, port: ChannelAddress) -> None:
        """Answer the ranges of a lane's port until the lane ends."""
        with (
            suppress(TwinlogError),
            LendingClient(port) as application,
            LendingClient(port) as task,
        ):
            application.subscribe()
            while not self._done.is_set():
                for offer in application.offers(0.2):
                    assert offer.transform == DIGEST
                    one = task.request_range(offer.number)
                    if one is not None:
                        self.ranges += 1
                        found = transformed(
                            one,
                            self._function,
                            codec=Codec.LZ4,
                            records=RECORDS,
                            quarantines=self.quarantines,
                        )
                        task.send_answer(found)
