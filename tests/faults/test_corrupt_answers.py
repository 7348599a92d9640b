"""An invalid response costs its connection, but no record."""

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
"""A lane that receives one damaged response in twenty."""

CUT = "args[place][:9]"
OTHER = "memoryview(bytes(1) + args[place][1:].tobytes())"
"""The response states a wrong number of topics, so it is discarded as a whole."""


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
    # a map without gaps has one row: the very first
    which = {0} if "map" in module else {7}
    prelude = SPOIL.format(module=module, function=function, damage=damage, which=which)
    with rig.mirror(prelude=prelude) as mirror, Load(rig.source, rig.topic, per_second=400) as load:
        eventually(lambda: rig.end() > 1000, what="a copy that continues")
        count = load.stop()
        rig.copied(count)
        mirror.eventually(lambda parts: [(p.state, p.code) for p in parts] == [("AT_END", "")])
        mirror.stop()
    rig.same()
