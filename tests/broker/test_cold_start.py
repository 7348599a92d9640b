"""Cold starts of many partitions at the same time share their requests. A cold start searches both
logs for the position where a partition's copy resumes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce
from tests.support.rig import Rig
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

PARTITIONS = 96
COUNT_READS = """
import twinlog.lane.sides.log_view as view
real, count = view.fetch_records, 0
def counted(*args, **options):
    global count
    count += 1
    open({path!r}, "w").write(str(count))
    return real(*args, **options)
view.fetch_records = counted
"""


@pytest.mark.witness("cold starts of many partitions share their requests")
def test_tails_of_many_partitions_are_read_together(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        create_topic(source_cluster, rig.topic, PARTITIONS)
        records = [
            Outgoing(key=None, value=b"u%d" % number, timestamp=1, partition=partition)
            for partition in range(PARTITIONS)
            for number in range(3)
        ]
        produce(source_cluster, rig.topic, records)
        with rig.mirror(once=True) as mirror:
            mirror.wait()
        counts = tmp_path / "reads"
        with rig.mirror(once=True, prelude=COUNT_READS.format(path=str(counts))) as mirror:
            (flow,) = mirror.wait()
        assert {p.state for p in flow.partitions} == {"DONE"}
        assert int(counts.read_text()) <= 2 * (PARTITIONS / 32)
        rig.same()
