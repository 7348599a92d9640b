"""`twinlog doctor` with a real mirror and its brokers. It names the change that slows the flow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import eventually
from tests.support.mirror import Mirror
from tests.support.quotas import quota
from tests.support.rig import Rig
from twinlog.cli.main import run
from twinlog.control.doctor import observing
from twinlog.control.watch.status_file import StatusFile
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

RECORD = 40_000
RECORDS = 100


class Watched:
    """A mirror of a rig's flow that writes its status file as `twinlog mirror` does."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.file = rig, folder / "mm2.properties"
        self.file.write_text(
            f"clusters = {rig.alias}, t\n{rig.alias}.bootstrap.servers = {rig.source.bootstrap}\n"
            f"t.bootstrap.servers = {rig.target.bootstrap}\n{rig.alias}->t.enabled = true\n"
            f"topics = {rig.topic}\nreplication.factor = 1\n"
        )

    def mirror(self) -> Mirror:
        status = StatusFile(self.file)
        return Mirror(self.file, lease_s=3000.0, on_snapshot=status.write)

    def do(self, *words: str) -> int:
        first, second, *rest = words
        return run([first, second, str(self.file), *rest])

    def asked(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["doctor", str(self.file), "--format", "json"])
        (flow,) = json.loads(capsys.readouterr().out)["flows"]
        return code, flow


@pytest.fixture
def watched(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Watched]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # the driver publishes its numbers twice a second, so a short observation is enough
    monkeypatch.setattr(observing, "NEXT_REPORT_WITHIN_S", 1.5)
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.create()
        yield Watched(rig, tmp_path)


def causes(flow: dict[str, Any]) -> list[str]:
    return [one["cause"] for one in flow["findings"]]


def test_paused_and_not_running_and_well(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    watched.rig.put(range(5))
    with watched.mirror() as mirror:
        watched.rig.copied(5)
        eventually(lambda: watched.asked(capsys)[0] == 0, what="no bottleneck found")
        assert watched.do("flow", "pause", "--reason", "brokers are upgraded") == 0
        eventually(lambda: mirror.snapshots[0].state == "PAUSED")
        watched.rig.put(range(5, 9))

        flow: dict[str, Any] = {}

        def is_seen() -> bool:
            code, found = watched.asked(capsys)
            flow.update(found)
            return code == 1 and causes(flow) == ["paused"] and flow["lag"] == 4

        eventually(is_seen, what="the pause, and what waits for it")
        (one,) = flow["findings"]
        assert "brokers are upgraded" in one["what"]
        assert one["todo"].startswith("twinlog flow resume")
        assert set(flow["round_trips_ms"]) == {watched.rig.alias, "t"}
        mirror.stop()
    watched_file = next(watched.file.parent.glob("twinlog/*.json"))
    # the mirror runs in this test's process, which does not end, so its status file would remain
    watched_file.unlink()
    code, flow = watched.asked(capsys)
    assert (code, causes(flow)) == (1, ["not_running", "paused"])
    assert run(["doctor", str(watched.file)]) == 1
    assert "1. certain: no process is known to run it; 4 records wait" in capsys.readouterr().out


@pytest.mark.witness("doctor names the limit or quota that slows a flow down")
def test_limit_with_its_author_and_a_quota(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched.do("flow", "limit", "--bytes-per-second", "200000") == 0
    for first in range(0, RECORDS, 10):
        watched.rig.put(range(first, first + 10), size=RECORD)
    us = f"twinlog-{watched.rig.flow}"
    quota(watched.rig.target_client, us, {"producer_byte_rate": 1e6})
    try:
        with watched.mirror() as mirror:
            eventually(lambda: bool(mirror.snapshots) and mirror.snapshots[0].state == "THROTTLED")
            flow: dict[str, Any] = {}

            def is_seen() -> bool:
                flow.update(watched.asked(capsys)[1])
                is_measured = flow["bytes_per_second"] is not None
                return causes(flow)[:2] == ["limit", "quota"] and is_measured

            eventually(is_seen)
            limit, of_brokers = flow["findings"][:2]
            assert limit["what"].startswith("it is limited to 200 KB/s by ")
            assert "--none" in limit["todo"]
            assert f"t has a quota of 1.0 MB/s for client-id {us}" in of_brokers["what"]
            mirror.stop()
    finally:
        quota(watched.rig.target_client, us, {"producer_byte_rate": None})
