"""A lane closes the connection on which it received an invalid response, but no record is lost."""

from __future__ import annotations

import pytest

from tests.support.client import eventually
from tests.support.load import Load
from tests.support.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.broker]

SPOIL = """
import itertools, {module} as module
from twinlog.errors import CorruptData
calls, right = itertools.count(), {function}
def spoilt(*args, **more):
    args = list(args)
    if next(calls) % 20 in {which}:
        place = next(i for i, one in enumerate(args) if isinstance(one, memoryview))
        args[place] = {damage}
    return right(*args, **more)
{function} = spoilt
"""
"""Prelude of a lane in which one of twenty calls of a function gets a damaged response."""

CUT = "args[place][:9]"
OTHER = "memoryview(bytes(1) + args[place][1:].tobytes())"
"""Replaces the response's number of topics by a wrong one, so the lane discards the whole response.
"""


@pytest.mark.witness(
    "an invalid response closes its connection, and loses no record", case="produce"
)
@pytest.mark.parametrize(
    ("module", "function", "damage"),
    [
        ("twinlog.wire.fetch", "module.FetchSession.parse", CUT),
        ("twinlog.lane.sides.target_side", "module.produce_answer", CUT),
        ("twinlog.lane.sides.target_side", "module.produce_answer", OTHER),
        ("twinlog.lane.map_writer", "module.produce_answer", CUT),
        ("twinlog.lane.map_writer", "module.produce_answer", OTHER),
    ],
    ids=["fetch", "produce", "produce-other", "map", "map-other"],
)
def test_damaged_answers(rig: Rig, module: str, function: str, damage: str) -> None:
    rig.create()
    # a map of a copy without gaps has only one row, so the first call must be damaged
    which = {0} if "map" in module else {7}
    prelude = SPOIL.format(module=module, function=function, damage=damage, which=which)
    with rig.mirror(prelude=prelude) as mirror, Load(rig.source, rig.topic, per_second=400) as load:
        eventually(lambda: rig.end() > 1000, what="a copy that continues")
        count = load.stop()
        rig.copied(count)
        mirror.eventually(lambda parts: [(p.state, p.code) for p in parts] == [("AT_END", "")])
        mirror.stop()
    rig.same()
