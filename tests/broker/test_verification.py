"""A mirror verifies its own copy while it runs, with `twinlog.verify`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.mirror import Mirror
from tests.support.rig import Rig
from tests.support.topics import create_topic
from tests.support.verified import NOW, ByHand
from twinlog.cluster.topics.internal_log import append
from twinlog.control.duties import verification
from twinlog.control.watch.verified import Verified
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.intents import WantedSkip
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.records import Record

pytestmark = [pytest.mark.broker]

OURS = 7_000_007
MANY = 300
"""Number of records, which is far more than a start compares."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "ROUND_S", 0.1)
    # With rounds this frequent, an idle mirror would need more than its budget, so the budget is
    # unlimited here. `unit/control/test_verification_duty.py` tests the budget.
    monkeypatch.setattr(verification, "SHARE", 1.0)


@pytest.fixture
def by_hand(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[ByHand]:
    made = ByHand(source_cluster, target_cluster, tmp_path)
    with made.file.open("a") as file:
        file.write("twinlog.verify = full\nsync.topic.configs.enabled = false\n")
    yield made
    made.close()


def verified(mirror: Mirror) -> Verified:
    """Return the verification in the flow's snapshot, or an empty one if the snapshot has none
    yet.
    """
    found = [flow.verified for flow in mirror.snapshots if flow.verified is not None]
    return found[0] if found else Verified(mode="")


@pytest.mark.witness("a mirror reports a record that differs in its copy, and continues")
def test_a_mirror_finds_that_its_copy_differs(by_hand: ByHand) -> None:
    records = by_hand.records(MANY)
    records[17] = records[17]._replace(value=b"valuf 17")
    by_hand.put("flipped", records, count=MANY, producer_id=OURS)
    with Mirror(by_hand.file) as mirror:
        eventually(lambda: verified(mirror).is_complete, what="all is compared")
        found = verified(mirror)
        topic = f"{by_hand.mark}-flipped"
        place = f"{topic}-0 [17, 18) / {by_hand.alias}.{topic}-0 [17, 18)"
        assert found.first_differences == (f"different: {place}",)
        assert (found.differences, found.records) == (1, MANY - 1)
        (flow,) = mirror.snapshots
        assert flow.errors["COPY_DIFFERS"] == 1
        # the difference does not affect the copy
        produce(by_hand.source, topic, [Outgoing(key=b"one", value=b"more")])
        mirror.eventually(lambda parts: parts[0].records == 1)
        eventually(lambda: verified(mirror).records == MANY, what="the new record is compared")
        assert [(part.state, part.code) for part in mirror.snapshots[0].partitions] == [
            ("AT_END", "")
        ]


def test_records_that_an_operator_skipped_are_no_difference(by_hand: ByHand) -> None:
    records = by_hand.records(MANY)
    runs = (Run(0, 0, 0), Run(17, 18, 17))
    by_hand.put("skipped", records[:17] + records[18:], runs, count=MANY, producer_id=OURS)
    topic = f"{by_hand.mark}-skipped"
    with Mirror(by_hand.file) as mirror:
        eventually(lambda: verified(mirror).is_complete, what="all is compared")
        (line,) = verified(mirror).first_differences
        assert line.startswith(f"missing: {topic}-0 [17, 18)")
    wanted = WantedSkip(
        reason="",
        flow=f"{by_hand.alias}->B",
        topic=topic,
        topic_id=by_hand.here.metadata([topic]).topics[topic].topic_id,
        partition=0,
        first=17,
        next=18,
        is_batch=False,
        code="CORRUPT_BATCH",
        who="somebody",
        at_ms=NOW,
    )
    key, value = wanted.encode()
    append(by_hand.there, TopicPartition(STATE_TOPIC, 0), [Record(0, NOW, key, value)])
    with Mirror(by_hand.file) as mirror:
        eventually(lambda: verified(mirror).is_complete, what="all is compared")
        assert (verified(mirror).differences, verified(mirror).records) == (0, MANY - 1)


def _grows(mirror: Mirror, seen: int) -> None:
    eventually(lambda: verified(mirror).records > seen, what="a sample")


@pytest.mark.parametrize("policy", ["default", "identity"])
def test_a_sample_follows_the_copy(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path, policy: str
) -> None:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.prefixed = policy == "default"
        rig.create()
        if not rig.prefixed:
            create_topic(target_cluster, rig.topic)
        with rig.mirror(keys={"twinlog.verify": "sample"}) as mirror:
            seen = 0
            for at in range(0, 60, 20):
                if not rig.prefixed:
                    produce(target_cluster, rig.topic, [Outgoing(key=b"of", value=b"others")])
                rig.put(range(at, at + 20))
                _grows(mirror, seen)
                seen = verified(mirror).records
            assert (verified(mirror).differences, verified(mirror).is_complete) == (0, False)
            assert verified(mirror).mode == "sample"
