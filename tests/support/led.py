"""A led flow without a leader: what a duty is given, for rounds that a test makes itself."""

from __future__ import annotations

from pathlib import Path

from tests.support import snapshots
from twinlog.config.load import load
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.flow.setups import flow_setup
from twinlog.survey.map_reader import Maps

__all__ = ["led_flow"]


def led_flow(config: Path) -> tuple[LedFlow, list[str]]:
    """The file's only flow, and the lines that it was told to say once."""
    (flow,) = load(config, environment={}).flows
    setup = flow_setup(flow)
    told: list[str] = []
    led = LedFlow(
        config=flow,
        policy=setup.policy,
        generation=0,
        source=setup.source,
        target=setup.target,
        partitions=lambda: (),
        read_map=lambda: Maps({}, {}, 8),
        snapshot=snapshots.flow,
        tell_once=lambda line: None if line in told else told.append(line),
    )
    return led, told
