"""Timeouts of `MirrorClient` for a cluster that is down."""

from __future__ import annotations

import pytest

from twinlog.client.mirror_client import MirrorClient
from twinlog.cluster.client import API_TIMEOUT_S
from twinlog.errors import Refused


def test_a_short_timeout_does_not_apply_to_later_calls() -> None:
    """Methods without a timeout use the same client, and need the usual time."""
    with MirrorClient({"bootstrap.servers": "127.0.0.1:1"}) as client:
        for read in (client.remote_consumer_offsets, client.exact_consumer_offsets):
            with pytest.raises(Refused):
                read("shop", "A", timeout_s=0.2)
            assert client._consumer.api_timeout_s == API_TIMEOUT_S
