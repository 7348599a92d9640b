"""The byte budget of a flow is shared by demand and weight, and balanced over some seconds."""

import math
from dataclasses import dataclass, field

import pytest

from twinlog.config.flow.start import Priorities
from twinlog.control.lanes import pacing
from twinlog.control.lanes.pacing import Pacer, shares


def test_topics_with_a_small_demand_are_served_and_the_rest_is_shared_by_weight() -> None:
    demands = {"quiet": 10.0, "payments": math.inf, "logs": math.inf}
    weights = {"quiet": 1.0, "payments": 4.0, "logs": 1.0}
    assert shares(110.0, demands, weights) == {"quiet": 10.0, "payments": 80.0, "logs": 20.0}


@dataclass(kw_only=True)
class World:
    """A flow of one busy topic and many idle ones. It copies as much as its shares permit."""

    limit: int
    clock: float = 100.0
    copied: float = 0.0
    rate: float = 0.0
    history: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Total bytes in the lanes' reports, which are two seconds old when they are used."""

    def run(self, pacer: Pacer, seconds: int, efficiency: float = 1.0) -> None:
        for _ in range(seconds):
            pacer._balance_copied(self.clock, int(self.seen[-2]))
            room = pacer.limit + pacing.SETTLED_A_SECOND * pacer._balance
            self.rate = max(room, pacing.LEAST_SHARE * pacer.limit) * efficiency
            self.copied += self.rate
            self.clock += 1.0
            self.seen.append(self.copied)
            self.history.append(self.rate)


def test_unused_budget_of_a_busy_machine_is_made_up_within_bounds() -> None:
    pacer = Pacer(limit=1000, priorities=Priorities(()))
    world = World(limit=1000)
    world.run(pacer, 20)
    for _ in range(10):
        world.run(pacer, 1, efficiency=0.8)
        world.run(pacer, 2)
    world.run(pacer, 20)
    windows = [sum(world.history[at : at + 10]) / 10 for at in range(5, len(world.history) - 10)]
    assert max(windows) < 1050
    assert min(windows) > 900
    assert world.history[-1] == pytest.approx(1000, rel=0.01), "it does not swing"
