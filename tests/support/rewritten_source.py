"""A source that loses its last records and gets other records at the same offsets."""

from __future__ import annotations

from tests.support.eventually import eventually
from tests.support.rig import Rig
from tests.support.surgery import cut_log


def rewrite(rig: Rig) -> None:
    """Remove the source's records from upstream offset 30 on, and restart its broker."""
    cut_log(rig.source, rig.here, 30)
    rig.source.restart(1)


def put_others(rig: Rig, numbers: range) -> None:
    def done() -> bool:
        rig.put([n + 1000 for n in numbers])  # refused until the broker knows that it leads
        return True

    eventually(done)


def fill(rig: Rig) -> None:
    rig.create()
    for start in range(0, 50, 10):
        rig.put(range(start, start + 10))


def expect_diverged(code: str, message: str) -> None:
    assert code == "SOURCE_DIVERGED"
    assert "[30, 50)" in message
