"""`twinlog topic skip` on real clusters leaves out exactly one record, and the copy stays exact."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import raw, surgery
from tests.support.client import eventually, read_all
from tests.support.cutover import killed
from tests.support.groups import commit, committed, resume
from tests.support.mirror import EmittingMirror
from tests.support.rig import Rig
from tests.support.topics import (
    apply_topic_configs,
    delete_topic,
    end_offsets,
    offset_map_topic,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.mirror.names.naming import STATE_TOPIC, quarantine_topic
from twinlog.mirror.skips import Poison, Skip
from twinlog.mirror.state.intents import WantedSkip, flow_intents
from twinlog.model import Flow
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

pytestmark = [pytest.mark.broker]

PUT = "twinlog.client.skipping:produce_batch"
WRITE = "twinlog.client.steering:append_rows"
KEYS = {
    "twinlog.status.interval.seconds": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
}
LIMIT = "max.message.bytes"
MORE = ("--quarantine", "--reason", "a picture")


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


@pytest.fixture
def rig(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as made:
        yield made


def put(rig: Rig, *records: Record) -> None:
    """Write the records to the source as one batch."""
    raw.send(rig.source_client, rig.here, encode_batch(records, codec=Codec.NONE)).expect_ok()


def words(rig: Rig, offset: int, *more: str) -> list[str]:
    file = str(rig.config(KEYS))
    return ["topic", "skip", file, rig.topic, "--partition", "0", "--offset", str(offset), *more]


def refused(rig: Rig, offset: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the reason why the record is not skipped. Check that nothing changed."""
    before = skips(rig)
    capsys.readouterr()
    assert run(words(rig, offset, "--format", "json")) == 1
    out, said = capsys.readouterr()
    assert "nothing was changed [SKIP_REFUSED]" in said
    answer = json.loads(out)
    (error,) = answer["errors"]
    assert (answer["ok"], error["code"]) == (False, "SKIP_REFUSED")
    assert error["message"] in said
    assert skips(rig) == before
    return said


def skips(rig: Rig) -> tuple[WantedSkip, ...]:
    if STATE_TOPIC not in topic_names(rig.target):
        return ()
    rows = read_to_end(rig.target_client, STATE_TOPIC, 0)
    return flow_intents(rig.flow, ((row.key, row.value) for row in rows)).skips


def stands_at(mirror: EmittingMirror, rig: Rig, skip: Skip, code: str) -> None:
    """Wait until the mirror and the published status report the record at which the partition has
    stopped.
    """
    topic_id = rig.source_client.metadata([rig.topic]).topics[rig.topic].topic_id
    wanted = Poison(skip=skip, topic_id=topic_id)
    mirror.eventually(lambda parts: [(p.poison, p.code) for p in parts] == [(wanted, code)])
    eventually(lambda: run(words(rig, skip.first, "--dry-run")) == 0, what="its status row")


def goes_on_at(rig: Rig, group: str) -> int:
    """Return the group's offset on the target, or -1 if it is not set yet."""
    return committed(rig.target, group, rig.remote)


@pytest.mark.witness("one record is skipped by its exact offset")
def test_record_that_is_too_large_is_left_out_whatever_dies(
    rig: Rig, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    events = logging.getLogger("twinlog.control.lanes.partitions")
    # the handler must be added again, because commands in this process configure logging anew
    events.addHandler(caplog.handler)
    rig.create()
    rig.put(range(10))
    large = rig.record(11, size=4000)
    groups = {offset: f"g{offset}-{rig.topic}" for offset in (10, 11, 12)}
    with EmittingMirror(rig.config(KEYS), lanes=1) as mirror:
        rig.copied(10)
        assert "is not stopped" in refused_once_told(rig, capsys)
        apply_topic_configs(rig.target, rig.remote, {LIMIT: "3000"})
        put(rig, rig.record(10), large, rig.record(12), rig.record(13))
        for offset, group in groups.items():
            commit(rig.source, group, rig.topic, offset)
        skip = Skip(first=11, next=12)
        stands_at(mirror, rig, skip, "RECORD_TOO_LARGE")
        assert "has stopped at offset 11, not 10" in refused(rig, 10, capsys)
        assert skips(rig) == ()
        quarantine = quarantine_topic(Flow.of(rig.flow))
        assert quarantine not in topic_names(rig.target)
        killed_at_each_step(rig, 11, *MORE)
        rig.copied(13)
        capsys.readouterr()
        assert run(words(rig, 11, *MORE, "--format", "json")) == 0
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert said["change"]["is_needed"] is False
        assert said["quarantine"]["offsets"] == [0]
        mirror.eventually(lambda parts: [(p.code, p.lag) for p in parts] == [("", 0)])
        # a group at the record before it keeps this offset, and a group at the record itself is
        # moved to the next one
        places = {10: 10, 11: 11, 12: 11}
        eventually(lambda: {at: goes_on_at(rig, groups[at]) for at in groups} == places)
        assert resume(rig.target, groups[11], rig.remote)[0].startswith(b"u12")
        (flow,) = mirror.snapshots
        assert flow.errors["RECORD_SKIPPED"] == 1
        mirror.stop()
    (event,) = [line for line in caplog.messages if "[RECORD_SKIPPED]" in line]
    assert "record 11 left out" in event
    assert "(RECORD_TOO_LARGE): a picture" in event
    is_in_quarantine(rig, large)
    left = [n for n in range(14) if n != 11]
    assert rig.numbers() == left
    rig.offsets_are_exact()

    # even after the topic's limit was raised, later starts and a rebuilt map leave the record out
    apply_topic_configs(rig.target, rig.remote, {LIMIT: "1000000"})
    delete_topic(rig.target, offset_map_topic(rig.alias))
    assert run(["offsets", "rebuild", str(rig.config()), "--yes"]) == 0
    assert [(r.ordinal, r.upstream) for r in rig.map().runs] == [(0, 0), (11, 12)]
    rig.put([14])
    rig.copy_once()
    assert rig.numbers() == [*left, 14]
    rig.offsets_are_exact()
    delete_topic(rig.target, rig.remote)
    rig.copy_once()
    assert rig.numbers() == [*left, 14]


def killed_at_each_step(rig: Rig, offset: int, *more: str) -> None:
    """Kill the command at each of its steps. Check that the intent is set only after the last
    one.
    """
    for moment, where in (("before", PUT), ("behind", PUT), ("before", WRITE), ("behind", WRITE)):
        killed(moment, where, *words(rig, offset, *more))
        assert bool(skips(rig)) is ((moment, where) == ("behind", WRITE)), (moment, where)


def is_in_quarantine(rig: Rig, record: Record) -> None:
    """Check that the quarantine topic has the record once, with its origin in the headers."""
    (kept,) = read_all(rig.target, quarantine_topic(Flow.of(rig.flow)))
    assert (kept.key, kept.value, kept.headers[:2]) == (record.key, record.value, record.headers)
    place = {name: (value or b"").decode() for name, value in kept.headers[2:]}
    assert place["twinlog.topic"] == rig.topic
    assert (place["twinlog.partition"], place["twinlog.offset"]) == ("0", str(record.offset))
    assert (place["twinlog.code"], place["twinlog.reason"]) == ("RECORD_TOO_LARGE", "a picture")
    assert place["twinlog.timestamp"] == str(record.timestamp)


def refused_once_told(rig: Rig, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the reason why the skip is refused, after the mirror has published a status."""
    said = ""

    def is_told() -> bool:
        nonlocal said
        said = refused(rig, 5, capsys)
        return "no mirror has reported its state" not in said

    eventually(is_told, what="a status row")
    return said


def test_record_that_the_target_refuses_is_left_out_under_the_same_name(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the identity policy, the target topic is compacted. So it rejects one of the three
    records of a batch, because this record has no key. The operator skips the record, and the other
    two are copied.
    """
    rig.prefixed = False
    rig.create()
    rig.put(range(3))
    with EmittingMirror(rig.config(KEYS), lanes=1) as mirror:
        rig.copied(3)
        apply_topic_configs(rig.target, rig.remote, {"cleanup.policy": "compact"})
        put(rig, rig.record(3), rig.record(4)._replace(key=None), rig.record(5))
        stands_at(mirror, rig, Skip(first=4, next=5), "RECORD_REFUSED")
        assert end_offsets(rig.target, rig.remote) == {0: 3}
        capsys.readouterr()
        assert run(words(rig, 4, "--reason", "no key")) == 0
        assert f"{rig.topic}-0: record 4 is skipped [RECORD_REFUSED]" in capsys.readouterr().out
        rig.copied(5)
        mirror.eventually(lambda parts: [(p.code, p.lag) for p in parts] == [("", 0)])
        mirror.stop()
    assert rig.numbers() == [0, 1, 2, 3, 5]
    rig.offsets_are_exact()
    rig.put([6])
    rig.copy_once()
    assert rig.numbers() == [0, 1, 2, 3, 5, 6]
    assert quarantine_topic(Flow.of(rig.flow)) not in topic_names(rig.target)
    assert "has reported nothing since" in refused(rig, 6, capsys)


def test_corrupt_batch_is_left_out_as_a_whole(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.create()
    for start in range(0, 30, 10):
        rig.put(range(start, start + 10))
    surgery.flip_byte(rig.source, rig.here, 10)
    bytes_of = surgery.log_file(rig.source, rig.here).read_bytes()
    with EmittingMirror(rig.config(KEYS), lanes=1) as mirror:
        stands_at(mirror, rig, Skip(first=10, next=20, is_batch=True), "CORRUPT_BATCH")
        capsys.readouterr()
        assert run(words(rig, 10, "--quarantine")) == 0
        assert "batch [10, 20) is skipped [CORRUPT_BATCH]" in capsys.readouterr().out
        rig.copied(20)
        mirror.eventually(lambda parts: [(p.code, p.lag) for p in parts] == [("", 0)])
        mirror.stop()
    left = [*range(10), *range(20, 30)]
    assert rig.numbers() == left
    (kept,) = read_all(rig.target, quarantine_topic(Flow.of(rig.flow)))
    assert kept.key is None
    assert kept.value is not None
    assert kept.value[61:] in bytes_of
    assert dict(kept.headers)["twinlog.content"] == b"batch"
    # later starts compare the log at this offset, and a rebuilt map has the same gap
    delete_topic(rig.target, offset_map_topic(rig.alias))
    assert run(["offsets", "rebuild", str(rig.config()), "--yes"]) == 0
    assert [(r.ordinal, r.upstream) for r in rig.map().runs] == [(0, 0), (10, 20)]
    rig.put([30])
    rig.copy_once()
    assert rig.numbers() == [*left, 30]
