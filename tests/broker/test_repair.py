"""`twinlog repair` on real clusters. Records of another producer are accepted, and the copy
resumes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.cutover import killed
from tests.support.groups import commit, committed
from tests.support.mirror import EmittingMirror
from tests.support.rig import Rig
from twinlog.cli.main import run
from twinlog.client.repair import TopicRepair
from twinlog.config.load import load
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError
from twinlog.mirror.map.translation import upstream_of
from twinlog.sandbox import LocalCluster
from twinlog.survey.replica import Witness, copied_below

pytestmark = [pytest.mark.broker]

WRITE = "twinlog.client.steering:append_rows"
KEYS = {
    "twinlog.status.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
}


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


@pytest.fixture
def rig(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as made:
        yield made


def stray(rig: Rig, count: int) -> None:
    """Write `count` records to the remote topic as another client."""
    produce(rig.target, rig.remote, [Outgoing(value=b"stray") for _ in range(count)])


def on_target(rig: Rig) -> list[int]:
    """Return the numbers of the target's records in order, with -1 for each record of the other
    client.
    """
    values = [(one.value or b"") for one in read_all(rig.target, rig.remote)]
    return [-1 if value == b"stray" else int(value[1:]) for value in values]


def map_is_exact(rig: Rig) -> None:
    """Check that every target offset translates to the upstream offset of this flow's next
    record.
    """
    known, there = rig.map(), on_target(rig)
    reach = copied_below(known, len(there), Witness.LOG_END).reach
    assert reach is not None
    assert (reach.upstream, reach.downstream) == (max(there) + 1, len(there))
    for at in range(len(there)):
        following = next((n for n in there[at:] if n >= 0), reach.upstream)
        assert upstream_of(known.runs, reach, at) == (following, True), at


def stands_still(mirror: EmittingMirror, rig: Rig, capsys: pytest.CaptureFixture[str]) -> Any:
    """Wait until the published status shows the stopped partition. Return the partition in the
    repair's plan.
    """
    mirror.eventually(lambda parts: [p.code for p in parts] == ["EXTRA_RECORDS"])
    found: dict[str, Any] = {}

    def is_told() -> bool:
        capsys.readouterr()
        code = run(["repair", "plan", str(rig.config(KEYS)), "--format", "json"])
        said = capsys.readouterr()
        if not said.out:
            return False
        found.update(json.loads(said.out))
        return code == 0 and len(found["partitions"]) == 1

    eventually(is_told, what="its status row")
    (line,) = found["partitions"]
    return line


def is_mended(mirror: EmittingMirror) -> None:
    mirror.eventually(lambda parts: [(p.code, p.lag) for p in parts] == [("", 0)])


def test_stray_records_before_the_flows_own_are_accepted_after_any_crash(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another client wrote while the copy ran, so a batch of this flow follows the other client's
    records. The repair is killed before and after it writes its rows, and then repeated. The copy
    must resume exactly.
    """
    rig.create()
    rig.put(range(10))
    places = {9: 9, 10: 13, 12: 15}
    groups = {at: f"g{at}-{rig.topic}" for at in places}
    file = str(rig.config(KEYS))
    with EmittingMirror(rig.config(KEYS), lanes=1) as mirror:
        rig.copied(10)
        stray(rig, 3)
        rig.put(range(10, 15))
        line = stands_still(mirror, rig, capsys)
        assert line["ranges"] == [[10, 13]]
        assert line["records"] == 3
        assert (line["resumes_upstream"], line["resumes_downstream"]) == (15, 18)
        for moment in ("before", "behind"):
            killed(moment, WRITE, "repair", "run", file, "--reason", "a test", "--yes")
        is_mended(mirror)
        eventually(lambda: run(["repair", "run", file, "--yes"]) == 0, what="its status row")
        assert "no partition has stopped" in capsys.readouterr().out
        rig.put(range(15, 18))
        rig.copied(21)
        for at, group in groups.items():
            commit(rig.source, group, rig.topic, at)
        eventually(
            lambda: {at: committed(rig.target, groups[at], rig.remote) for at in groups} == places
        )
        mirror.stop()
    wanted = [*range(10), -1, -1, -1, *range(10, 18)]
    assert on_target(rig) == wanted
    map_is_exact(rig)
    rig.put([18])
    rig.copy_once()
    assert on_target(rig) == [*wanted, 18]
    map_is_exact(rig)


@pytest.mark.witness("foreign records are accepted by an exact range")
def test_stray_records_at_the_end_are_accepted_and_new_ones_are_not(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.create()
    rig.put(range(5))
    rig.copy_once()
    stray(rig, 2)
    file = rig.config(KEYS)
    config = load(file, environment={})
    setup = flow_setup(config.flows[0])
    with EmittingMirror(file, lanes=1) as mirror:
        line = stands_still(mirror, rig, capsys)
        assert line["ranges"] == [[5, 7]]
        repair = TopicRepair(config.flows[0], setup.source, setup.target, "")
        try:
            shown = repair.plan(None)
            stray(rig, 1)
            with pytest.raises(TwinlogError, match="have changed since they were shown") as refused:
                repair.accept(shown)
            assert refused.value.code == "REPAIR_REFUSED"
            assert stands_still(mirror, rig, capsys)["ranges"] == [[5, 8]]
            repair.accept(repair.plan(None))
        finally:
            repair.close()
        is_mended(mirror)
        mirror.stop()
    # no record of this flow follows the accepted records, so only the map shows them to the next
    # start
    map_is_exact(rig)
    rig.copy_once()
    rig.put(range(5, 8))
    with EmittingMirror(file, lanes=1) as mirror:
        rig.copied(11)
        is_mended(mirror)
        stray(rig, 1)
        rig.put([8])
        assert stands_still(mirror, rig, capsys)["ranges"] == [[11, 12]]
        assert run(["repair", "run", str(file), "--yes"]) == 0
        is_mended(mirror)
        mirror.stop()
    rig.copy_once()
    assert on_target(rig) == [*range(5), -1, -1, -1, *range(5, 8), -1, 8]
    map_is_exact(rig)
    with EmittingMirror(file, lanes=1) as mirror:
        mirror.stop()
    assert run(["repair", "plan", str(file)]) == 1
    assert "[REPAIR_REFUSED]" in capsys.readouterr().err
