"""A topic is deleted and re-created at every step of a start: the source, the target, the map or
the state topic.

No record of the new topic is mixed into a copy of the old one, and no record is duplicated. A
partition that cannot continue has a code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.client import eventually
from tests.support.mirror import Mirror
from tests.support.rig import MAP_PARTITIONS, Rig
from tests.support.topics import create_topic, delete_topic, offset_map_topic
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.survey.map_reader import MapReader

pytestmark = [pytest.mark.faults, pytest.mark.broker]

OLD, NEW = range(15), range(100, 107)
IN_DRIVER: Final = {
    "leads": (FlowSetup, "_lead"),
    "claimed": (FlowClaims, "claim"),
    "discovered": (FlowSetup, "_discover"),
    "map-read": (MapReader, "read"),
}
IN_LANE: Final = {
    "ids-checked": "twinlog.mirror.start.cold_start.check_ids",
    "looked": "twinlog.lane.cold_starts.ColdStarts._say_compared",
    "row-written": "twinlog.lane.map_writer.MapWriter.on_answer",
}

WAITS: Final = """
import importlib, pathlib, time
here, there = pathlib.Path({reached!r}), pathlib.Path({done!r})
*path, last = {name!r}.split(".")
owner = importlib.import_module(".".join(path[:2]))
for at, part in enumerate(path[2:], 3):
    if not hasattr(owner, part):
        importlib.import_module(".".join(path[:at]))
    owner = getattr(owner, part)
before = getattr(owner, last)
def and_wait(*args, **more):
    answer = before(*args, **more)
    here.touch()
    while not there.exists():
        time.sleep(0.01)
    return answer
setattr(owner, last, and_wait)
"""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


@pytest.fixture
def flow(rig: Rig) -> Rig:
    """A flow that has copied ten records; five more are on the source."""
    rig.create()
    rig.put(OLD[:10])
    rig.copy_once()
    rig.put(OLD[10:])
    return rig


def recreate(rig: Rig, what: str) -> None:
    compacted = {"cleanup.policy": "compact"}
    if what == "source":
        delete_topic(rig.source, rig.topic)
        rig.create()
        rig.put(NEW)
    elif what == "target":
        delete_topic(rig.target, rig.remote)
        create_topic(rig.target, rig.remote)
    elif what == "map":
        name = offset_map_topic(rig.alias)
        delete_topic(rig.target, name)
        create_topic(rig.target, name, MAP_PARTITIONS, configs=compacted)
    else:
        delete_topic(rig.target, STATE_TOPIC)
        create_topic(rig.target, STATE_TOPIC, configs=compacted)


@contextmanager
def started(rig: Rig, what: str, step: str, folder: Path) -> Iterator[Mirror]:
    """Start a mirror, and re-create the topic directly after a step of its start."""
    if step in IN_LANE:
        reached, done = folder / "reached", folder / "done"
        prelude = WAITS.format(reached=str(reached), done=str(done), name=IN_LANE[step])
        with rig.mirror(prelude=prelude) as mirror:
            eventually(reached.exists, what=step)
            recreate(rig, what)
            done.touch()
            yield mirror
            mirror.stop()
        return
    owner, name = IN_DRIVER[step]
    happened = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, _then(getattr(owner, name), rig, what, happened))
        with rig.mirror() as mirror:
            eventually(happened.is_set, what=step)
            yield mirror
            mirror.stop()


def _then(
    before: Callable[..., Any], rig: Rig, what: str, happened: threading.Event
) -> Callable[..., Any]:
    def step(*args: Any, **more: Any) -> Any:
        answer = before(*args, **more)
        if not happened.is_set():
            recreate(rig, what)
            happened.set()
        return answer

    return step


def is_settled(flow: FlowSnapshot, code: str = "") -> bool:
    """Return True if all records are copied, or, with `code`, if the partition has stopped with
    it.
    """
    states = [(part.state, part.code) for part in flow.partitions]
    if code:
        return states == [("FAILED", code)]
    return states == [("AT_END", "")]


SOME_STEPS: Final = {"claimed", "looked", "row-written"}
every_step = pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=() if step in SOME_STEPS else pytest.mark.long)
        for step in (*IN_DRIVER, *IN_LANE)
    ],
)


@pytest.mark.witness("a source topic is created again during each step of a start", case="looked")
@every_step
def test_source(flow: Rig, step: str, tmp_path: Path) -> None:
    with started(flow, "source", step, tmp_path) as mirror:

        def is_written() -> bool:
            """Return True if the code is reported after a discovery. The message then names the
            target's records.
            """
            (snapshot,) = mirror.snapshots
            is_code = is_settled(snapshot, "SOURCE_RECREATED")
            return is_code and f"{flow.remote}-0" in snapshot.partitions[0].message

        eventually(is_written, what="SOURCE_RECREATED")
    found = flow.numbers()
    assert found == [*OLD[: len(found)]], "nothing of the new life is in the old copy"
    assert len(found) >= 10


@pytest.mark.witness("a target topic is created again during each step of a start", case="claimed")
@every_step
def test_target(flow: Rig, step: str, tmp_path: Path) -> None:
    with started(flow, "target", step, tmp_path) as mirror:
        eventually(lambda: flow.numbers() == [*OLD], what="the copy again")
        eventually(lambda: is_settled(mirror.snapshots[0]))
        if step == "discovered":
            eventually(lambda: mirror.snapshots[0].errors.get("TARGET_RECREATED", 0) > 0)
    flow.same()
    flow.offsets_are_exact()


@every_step
@pytest.mark.parametrize("what", ["map", "state"])
def test_own_topic(flow: Rig, what: str, step: str, tmp_path: Path) -> None:
    """One of Twinlog's own topics is re-created during a start. The mirror must copy every record
    once, or stop with a code. The same applies to the next process.
    """

    def is_exact(mirror: Mirror) -> bool:
        found = flow.numbers()
        assert found == [*OLD[: len(found)]], "twice, or in another order"
        (snapshot,) = mirror.snapshots
        if is_settled(snapshot):
            return len(found) == len(OLD)
        codes = [snapshot.code, *(part.code for part in snapshot.partitions)]
        return any(codes) and snapshot.state != "STARTING"

    with started(flow, what, step, tmp_path) as mirror:
        eventually(lambda: bool(mirror.snapshots) and is_exact(mirror))
    with flow.mirror() as mirror:
        eventually(lambda: bool(mirror.snapshots) and is_exact(mirror))
        mirror.stop()
    found = flow.numbers()
    assert found == [*OLD[: len(found)]]
