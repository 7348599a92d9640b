"""Every finding of `twinlog doctor`, each derived from an observation of a flow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from tests.support import snapshots
from tests.support.properties import BASE, loader
from twinlog.cli.commands.doctor import parts
from twinlog.cli.terminal.tables import write_all
from twinlog.cluster.topics.quotas import Quota
from twinlog.codes import FlowState
from twinlog.config.flow.tuning import Tuning
from twinlog.control.doctor import observing
from twinlog.control.doctor.findings import (
    CHECKS,
    ClusterView,
    Finding,
    Likelihood,
    Limit,
    Observation,
    findings,
)
from twinlog.control.doctor.observing import process_report, reported_rate
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.control.watch.status_file import (
    RunningMirror,
    StatusFile,
    running_mirrors,
    status_folder,
)
from twinlog.model import TopicPartition
from twinlog.wire.compression import Recompression
from twinlog.wire.record_batch import Codec

MB = 1_000_000
A = ClusterView(alias="A", round_trips_ms={0: 1.0})
B = ClusterView(alias="B", round_trips_ms={1: 2.0, 2: 2.5})


def lagging(number: int = 0, lag: int = 1000, **changes: Any) -> PartitionSnapshot:
    """Return a partition that has lagged for a minute."""
    return snapshots.partition(
        number=number, **{"state": "COPYING", "lag": lag, "lag_ms": 60_000, **changes}
    )


def seen(*partitions: PartitionSnapshot, state: str = "RUNNING", **changes: Any) -> Observation:
    """Return the observation of a flow with these partitions. `reason`, `lanes` and `code` are
    fields of the flow.
    """
    of_flow = {name: changes.pop(name) for name in ("reason", "lanes", "code") if name in changes}
    base = Observation(
        snapshot=snapshots.flow(*partitions, state=state, **of_flow),
        file="mm2.properties",
        source=A,
        target=B,
    )
    return replace(base, **changes)


def only(observation: Observation, cause: str) -> Finding:
    """Return the first finding, which must have this cause."""
    found = findings(observation)
    assert found, cause
    assert found[0].cause == cause, found
    return found[0]


def test_nothing_is_found_where_a_flow_is_at_its_end_or_runs_close_behind() -> None:
    assert findings(seen(snapshots.partition())) == []
    busy = lagging(lag=50_000, lag_ms=1500)
    assert findings(seen(busy, rates={TopicPartition("orders", 0): 90.0 * MB})) == []


def test_cluster_that_does_not_answer() -> None:
    gone = ClusterView(alias="B", problem="no broker answers [UNREACHABLE]")
    found = only(seen(target=gone, state="FAILED", reason="no broker answers"), "unreachable")
    assert found.what == "B cannot be reached from this host: no broker answers [UNREACHABLE]"
    named = "B (b:9092): connection refused [UNREACHABLE]"
    found = only(seen(target=ClusterView(alias="B", problem=named)), "unreachable")
    assert found.what == f"from this host: {named}", "a cluster is named once"
    assert "B.bootstrap.servers" in found.todo
    assert len(findings(seen(target=gone, state="FAILED"))) == 1


def test_no_process_runs_it() -> None:
    where = "it last ran on east-1 (process 7) and was shut down cleanly"
    found = only(seen(lagging(lag=7), state="NOT_RUNNING", reason=where), "not_running")
    assert found.what == f"no process is known to run it; 7 records wait; {where}"
    assert found.todo.startswith("twinlog mirror mm2.properties")


def test_failed_flow_with_the_remedy_of_its_code() -> None:
    found = only(seen(state="FAILED", reason="it is away", code="MAP_MISSING"), "failed")
    assert "twinlog offsets rebuild" in found.todo


def test_degraded_flow_says_why() -> None:
    reason = "cluster B cannot be reached [UNREACHABLE]"
    found = only(seen(state="DEGRADED", reason=reason, code="UNREACHABLE"), "degraded")
    assert found.what == reason
    assert "addresses and network" in found.todo


def test_a_reason_is_no_place_to_look_for_codes() -> None:
    """The reason of a state may contain text of users, such as a topic name in brackets. It must
    not be treated as a code.
    """
    found = only(seen(state="DEGRADED", reason="it is away since [MAP_MISSING]"), "degraded")
    assert "the flow resumes by itself" in found.todo


def test_process_that_is_silent() -> None:
    found = only(seen(silent_ms=65_000), "silent")
    assert "has not reported for 1 min 5 s" in found.what


def test_flow_that_an_operator_paused() -> None:
    reason = "paused by ann@east-1: brokers are upgraded"
    found = only(seen(lagging(lag=9), state="PAUSED", pause=reason, lanes=0), "paused")
    assert found.what == f"{reason}; 9 records wait"
    assert found.todo == "twinlog flow resume mm2.properties --flow 'A->B'"


def test_flow_that_was_paused_and_does_not_run_either() -> None:
    stopped = seen(
        lagging(), state="NOT_RUNNING", reason="it never ran", pause="paused by ann@east-1"
    )
    first, second, *_ = findings(stopped)
    assert (first.cause, second.cause) == ("not_running", "paused")
    assert second.what == "paused by ann@east-1; 1,000 records wait"


def test_no_reason_is_read_for_a_pause() -> None:
    named = seen(lagging(), state="NOT_RUNNING", reason="paused by ann@east-1; it never ran")
    assert "paused" not in {one.cause for one in findings(named)}


def test_topic_that_an_operator_paused() -> None:
    part = lagging(lag=5, state="PAUSED", message="paused by ann@east-1")
    found = only(seen(part, snapshots.partition("audit")), "topic_paused")
    assert found.what == "orders: paused by ann@east-1; 5 records wait"
    assert found.todo == "twinlog topic resume mm2.properties --flow 'A->B' --topics orders"


def test_no_lane_runs() -> None:
    found = only(seen(lagging(lag=5), lanes=0), "no_lanes")
    assert "5 records wait" in found.what
    assert "free cores" in found.todo


@pytest.mark.parametrize("code", ["NO_LEADER", "TARGET_UNDER_MIN_ISR", "DIVERGED"])
def test_stopped_partitions_with_a_code(code: str) -> None:
    failed = [
        snapshots.partition(
            number=n, state="FAILED", lag=None, code=code, message=f"orders-{n}: no"
        )
        for n in range(2)
    ]
    found = only(seen(*failed, state="PARTLY_FAILED"), code.lower())
    assert f"2 partitions have stopped with {code} (orders-0, orders-1): orders-0: no" in found.what
    assert found.todo
    assert "`" not in found.todo


def test_the_code_of_most_partitions_comes_first() -> None:
    one = snapshots.partition(state="FAILED", code="DIVERGED", message="no")
    many = [
        snapshots.partition(number=n, state="RETRYING", code="NO_LEADER", message="no")
        for n in (1, 2)
    ]
    found = findings(seen(one, *many))
    assert [each.cause for each in found] == ["no_leader", "diverged"]
    assert "are being retried" in found[0].what


def test_leader_and_replicas_that_the_clusters_miss_now() -> None:
    tps = (TopicPartition("orders", 3), TopicPartition("orders", 4))
    found = only(seen(source=replace(A, leaderless=tps)), "no_leader")
    assert found.what == "2 partitions of A have no leader (orders-3, orders-4)"
    found = only(seen(target=replace(B, under_min_isr=tps)), "target_under_min_isr")
    assert "min.insync.replicas" in found.what


def test_retention_that_takes_records_before_they_are_copied() -> None:
    near = lagging(is_near_deletion=True, left_ms=600_000, needs_ms=None)
    found = only(seen(near, state="DEGRADED", reason="soon [RETENTION_NEAR]"), "degraded")
    assert "raise retention.ms" in found.todo
    found = only(seen(near), "retention_near")
    assert "in 10 min the source may delete" in found.what
    assert "retention.ms or retention.bytes of orders on A" in found.todo


@pytest.mark.parametrize("is_key", [True, False])
def test_limit_with_its_author(is_key: bool) -> None:
    who = "twinlog.max.bytes.per.second" if is_key else "ann@east-1: weekend"
    limit = Limit(bytes_per_second=30_000, who=who, is_key=is_key)
    rates = {TopicPartition("orders", 0): 29_000.0}
    found = only(seen(lagging(), state="THROTTLED", limit=limit, rates=rates), "limit")
    assert found.what == f"it is limited to 30.0 KB/s by {who}, and it copies 29.0 KB/s"
    assert ("--none" in found.todo) is not is_key
    # a limit that is far higher does not slow the flow down
    far = replace(limit, bytes_per_second=100 * MB)
    assert "limit" not in [each.cause for each in findings(seen(lagging(), limit=far, rates=rates))]


def test_quota_of_the_brokers() -> None:
    mine = Quota(entity=(("client-id", "twinlog-A->B"),), key="producer_byte_rate", value=30_000.0)
    target = replace(B, quotas=(mine,))
    found = only(seen(lagging(), state="THROTTLED", target=target), "quota")
    assert "B has a quota of 30.0 KB/s for client-id twinlog-A->B" in found.what
    assert "--add-config producer_byte_rate=..." in found.todo
    rates = {TopicPartition("orders", 0): 28_000.0}
    assert only(seen(lagging(), target=target, rates=rates), "quota")
    # the flow runs on another host, so its rate is unknown
    assert only(seen(lagging(), target=target), "quota").likelihood is Likelihood.POSSIBLE
    assert mine.may_apply_to("twinlog-A->B")
    assert not mine.may_apply_to("twinlog-B->A")


def test_quota_that_is_felt_and_not_seen() -> None:
    hidden = seen(lagging(), state="THROTTLED", target=replace(B, quotas=None))
    assert "grant DESCRIBE_CONFIGS on the cluster of B" in only(hidden, "quota").todo


def test_transaction_that_is_open_at_the_source() -> None:
    held = snapshots.partition(lag=0, loss_records=40, loss_ms=60_000)
    found = only(seen(held), "open_transaction")
    assert "blocks 1 partition: 40 offsets after it in orders-0" in found.what
    # everything up to the former end is copied, and one record has arrived since
    assert findings(seen(snapshots.partition(lag=0, loss_records=1, loss_ms=1_300))) == []


@pytest.mark.parametrize(
    ("trip_ms", "bound", "key_of_many"),
    [
        (8.0, "a response of 1.0 MB every 8 ms is at most 125 MB/s", "fetch.max.bytes"),
        (80.0, "16 responses of 1.0 MB every 80 ms are at most 200 MB/s", "max.partition.fetch"),
    ],
)
def test_fetches_that_are_too_small_for_the_way(
    trip_ms: float, bound: str, key_of_many: str
) -> None:
    far = replace(A, round_trips_ms={0: trip_ms})
    tuning = Tuning(partition_fetch_bytes=MB, fetch_bytes=2 * MB)
    one = {TopicPartition("orders", 0): 110.0 * MB}
    found = only(seen(lagging(), source=far, tuning=tuning, rates=one), "small_fetches")
    assert f"{bound} for a partition" in found.what
    assert found.todo == f"raise A.consumer.max.partition.fetch.bytes above {MB}"
    many = {TopicPartition("orders", n): 50.0 * MB for n in range(6)}
    behind = [lagging(n) for n in range(6)]
    found = only(seen(*behind, source=far, tuning=tuning, rates=many), "small_fetches")
    assert f"A.consumer.{key_of_many}" in found.todo


def test_fewer_lanes_than_cores() -> None:
    behind = [lagging(n) for n in range(6)]
    found = only(seen(*behind, cores=8, tasks_max=2), "few_lanes")
    assert found.what == (
        "2 lanes copy 6 partitions that are behind, of 8 cores, because tasks.max = 2"
    )
    assert found.todo == "raise tasks.max to 6"
    assert "--lanes" in only(seen(*behind, cores=8), "few_lanes").todo
    assert "few_lanes" not in [each.cause for each in findings(seen(*behind, cores=2))]


def test_tasks_max_on_another_host() -> None:
    behind = [lagging(n) for n in range(6)]
    found = only(seen(*behind, tasks_max=2), "few_lanes")
    assert found.likelihood is Likelihood.POSSIBLE
    assert found.what == "2 lanes copy 6 partitions that are behind, because tasks.max = 2"
    assert "few_lanes" not in [each.cause for each in findings(seen(*behind, tasks_max=9))]


def test_rate_that_a_leader_on_another_host_reported() -> None:
    first = snapshots.PUBLISHED
    later = structs.replace(first, at_ms=first.at_ms + 10_000, bytes=first.bytes + 5 * MB)
    older = structs.replace(first, generation=3, bytes=0)
    rows = [older.encode(), first.encode(), later.encode()]
    assert reported_rate("A->B", rows) == 500_000.0
    assert reported_rate("A->B", rows[:2]) is None
    assert reported_rate("B->A", rows) is None
    assert "500 KB/s" in only(seen(lagging(), reported_rate=500_000.0), "at_its_limits").what


def test_a_rate_that_cannot_be_read_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of another host has reported the flow, but now the target does not respond."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    elsewhere = SimpleNamespace(status=snapshots.flow(where="east-1 (process 7)").status)
    monkeypatch.setattr(observing, "offline_status", lambda *_: [elsewhere])
    away = [line.replace(":9092", ":1").replace(" a:", " 127.0.0.1:") for line in BASE]
    config = loader(tmp_path)(base=[line.replace(" b:", " 127.0.0.1:") for line in away])
    (observation,) = observing.observe(config, tmp_path / "mm2.properties")
    (note,) = observation.notes
    assert note.startswith("the copy rate is unknown: ")


def test_commands_are_quoted() -> None:
    paused = seen(state="PAUSED", reason="paused by ann", file="my files/mm2.properties")
    assert only(paused, "paused").todo == (
        "twinlog flow resume 'my files/mm2.properties' --flow 'A->B'"
    )


def test_one_partition_has_most_of_the_lag() -> None:
    parts = [lagging(0, 9_000), lagging(1, 1_000), snapshots.partition(number=2)]
    found = only(seen(*parts), "one_partition")
    assert found.what.startswith("orders-0 has 90% of the lag (9,000 of 10,000 records)")
    assert "A.consumer.max.partition.fetch.bytes (2.1 MB now)" in found.todo
    even = [lagging(n) for n in range(3)]
    assert "one_partition" not in [each.cause for each in findings(seen(*even))]


def test_batches_that_do_not_pass_as_they_are() -> None:
    tuning = Tuning(recompression=Recompression(codec=Codec.ZSTD, every=True), join_bytes=16_384)
    slow = seen(lagging(), tuning=tuning, why_decoded={"orders": "cleanup.policy = compact"})
    assert [each.cause for each in findings(slow)] == ["recompressed", "joined", "decoded"]
    assert "every batch may be repacked with zstd" in findings(slow)[0].what
    assert "1 of 1 topic with a lag may have batches" in findings(slow)[2].what


def test_share_of_batches_that_lanes_recoded() -> None:
    part = lagging(batches=200, recoded=150)
    slow = seen(part, why_decoded={"orders": "cleanup.policy = compact leaves gaps"})
    found = only(slow, "recoded")
    assert found.what == (
        "75% of the batches of partitions that are behind were decoded or repacked (150 of "
        "200): orders: cleanup.policy = compact leaves gaps"
    )
    codec = Tuning(recompression=Recompression(codec=Codec.ZSTD, every=True))
    assert "compression.type" in only(seen(part, tuning=codec), "recoded").todo
    few = seen(lagging(batches=200, recoded=2), tuning=codec)
    assert [each.cause for each in findings(few)] == ["at_its_limits"]


def test_distant_clusters_and_remaining_causes() -> None:
    far = replace(B, round_trips_ms={1: 180.0, 2: 20.0})
    found = only(seen(lagging(), target=far), "far_away")
    assert "a round trip to B takes 180 ms from here (broker 1)" in found.what
    left = only(seen(lagging(), rates={TopicPartition("orders", 0): 5.0 * MB}), "at_its_limits")
    assert "1,000 records have waited for 1 min; 2 lanes copy 5.0 MB/s" in left.what
    assert "A 1.0 ms, B 2.5 ms" in left.what


def test_the_surest_comes_first() -> None:
    parts = [lagging(0, 9_000), lagging(1, 10), snapshots.partition(number=2, state="FAILED",
             code="DIVERGED", message="no")]  # fmt: skip
    slow = seen(*parts, tuning=Tuning(join_bytes=9))
    found = findings(slow)
    assert [each.cause for each in found] == ["diverged", "one_partition", "joined"]
    assert [each.likelihood for each in found] == list(Likelihood)
    assert len(CHECKS) == len({check.__name__ for check in CHECKS})


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    slow = seen(lagging(), tuning=Tuning(join_bytes=9), notes=("quotas are unknown: no",))
    write_all(parts(slow, findings(slow)))
    head, note, first, todo = capsys.readouterr().out.splitlines()
    assert head == (
        "A->B: RUNNING, 1,000 records behind (1 min), 2 lanes, round trips: A 1.0 ms, B 2.5 ms"
    )
    assert note == "  note: quotas are unknown: no"
    assert first.startswith("  1. possible: small batches")
    assert todo.startswith("     do: set batch.size = 0")
    write_all(parts(seen(snapshots.partition()), []))
    head, nothing = capsys.readouterr().out.splitlines()
    assert ("at its end" in head, nothing) == (True, "  no bottleneck found")
    gone = ClusterView(alias="B", problem="no broker answers")
    write_all(parts(seen(target=gone, state="UNKNOWN"), []))
    head, *_ = capsys.readouterr().out.splitlines()
    assert "UNKNOWN, lag unknown" in head


def test_a_status_file_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    flow = snapshots.flow(lagging(), state="THROTTLED", reason="slow")
    file = StatusFile(tmp_path / "mm2.properties")
    file.write([flow])
    found = process_report(running_mirrors(tmp_path / "mm2.properties"), "A->B")
    assert found is not None
    assert found.snapshot == structs.replace(flow, rates={"orders": 0.0}).status, "it counts them"
    assert process_report(running_mirrors(), "B->A") is None
    standby = structs.replace(flow, state=FlowState.STANDBY)
    file.write([standby])
    assert process_report(running_mirrors(), "A->B") is None


def test_the_report_of_the_leader_counts_not_that_of_a_process_that_cannot_start() -> None:
    fails = snapshots.flow(state="DEGRADED", generation=None).status
    leads = snapshots.flow(lagging(), generation=3).status
    mirrors = [
        RunningMirror(pid=pid, config="mm2.properties", written_ms=pid, flows=(flow,))
        for pid, flow in enumerate([fails, leads, fails])
    ]
    found = process_report(mirrors, "A->B")
    assert found is not None
    assert (found.snapshot, found.written_ms) == (leads, 1)
    found = process_report(mirrors[2:], "A->B")
    assert found is not None
    assert found.snapshot == fails


def test_a_status_file_of_an_older_release_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status file of an older release has fewer fields, and -1 for unknown numbers. Missing
    fields and -1 must be read as None.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    config = tmp_path / "mm2.properties"
    StatusFile(config).write([snapshots.flow(lagging(), generation=None)])
    (path,) = status_folder().glob("*.json")
    value = json.loads(path.read_text())
    (flow,) = value["flows"]
    del flow["rpo_ms"], flow["partitions"][0]["left_ms"]
    flow |= {"generation": -1}
    flow["partitions"][0] |= {"loss_ms": -1, "lag": 5}
    path.write_text(json.dumps(value))
    found = process_report(running_mirrors(config), "A->B")
    assert found is not None
    (part,) = found.snapshot.partitions
    assert (found.snapshot.generation, found.snapshot.rpo_ms) == (None, None)
    assert (part.left_ms, part.loss_ms, part.lag) == (None, None, 5)
