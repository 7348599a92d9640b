"""Several threads decode responses at the same time, each for the first time."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from kafka.protocol.metadata import MetadataResponse

from twinlog.cluster.net import protocol

METADATA, VERSION, THREADS, TIMES = 3, 12, 8, 200


@pytest.fixture
def busy_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy_switching")
def test_first_responses_of_a_kind_are_decoded_one_at_a_time() -> None:
    sent = MetadataResponse(
        throttle_time_ms=7, brokers=[], cluster_id="c", controller_id=1, topics=[]
    )
    body = memoryview(sent.encode(version=VERSION))
    together = Barrier(THREADS)

    def decode(_: int) -> int:
        together.wait()
        return int(protocol.decode_response(METADATA, VERSION, body).throttle_time_ms)

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(TIMES):
            # the state of a process that has just started
            MetadataResponse._struct._compiled_encoders.clear()
            MetadataResponse._struct._data_class = weakref.proxy(MetadataResponse)
            protocol._decoded.clear()
            assert set(pool.map(decode, range(THREADS))) == {7}
