"""Java's RemoteClusterUtils translates offsets by Twinlog's checkpoints to exactly the next
record.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import eventually, read_all
from tests.support.groups import Pair, commit, with_transactions
from tests.support.java import kafka_jvm
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import end_offsets
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.wire.mm2_records import Checkpoint

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as started:
        yield started


def test_java_translates_every_group_to_exactly_the_next_record(
    jvm: Any, source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster, sync=False)
    with_transactions(pair)
    here = read_all(pair.a, pair.topic, isolation="read_committed")
    end = end_offsets(pair.a, pair.topic)[0]
    groups = [pair.stop_at(offset) for offset in range(end + 1)]
    gone_back = f"{pair.group}-back"
    commit(pair.a, gone_back, pair.topic, end)

    utils = jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils
    target = {"bootstrap.servers": target_cluster.bootstrap}
    patience = jvm.java.time.Duration.ofSeconds(30)
    at = jvm.org.apache.kafka.common.TopicPartition(pair.remote, 0)

    def by_java(group: str) -> int | None:
        found = utils.translateOffsets(target, pair.alias_a, group, patience)
        return found[at].offset() if at in found else None

    def all_by_java() -> dict[str, int]:
        """Return the translated offset by group. One call translates all groups, because each call
        reads all checkpoints with its own client.
        """
        these = jvm.java.util.regex.Pattern.compile(f"{pair.group}-[0-9]+")
        found = utils.translateOffsets(target, pair.alias_a, these, patience)
        return {name: found[name][at].offset() for name in found if at in found[name]}

    with Mirror(pair.config) as mirror:
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        there = read_all(pair.b, pair.remote, isolation="read_committed")
        assert [seen.value for seen in there] == [seen.value for seen in here]
        places = {one.offset: copy.offset for one, copy in zip(here, there, strict=True)}
        expected = {}
        for offset, group in enumerate(groups):
            after = [place for upstream, place in places.items() if upstream >= offset]
            expected[group] = after[0] if after else there[-1].offset + 1
        eventually(lambda: all_by_java() == expected)

        eventually(lambda: by_java(gone_back) == there[-1].offset + 1)
        commit(pair.a, gone_back, pair.topic, 1)
        eventually(lambda: by_java(gone_back) == 1, what="a group that went back")
        mirror.stop()
    records = checkpoints_of(pair)
    assert all(record.value is not None for record in records)
    written = [Checkpoint.decode(record.key, record.value) for record in records]
    assert len({(one.group, one.upstream_offset, one.downstream_offset) for one in written}) == len(
        written
    ), "said twice"

    before = len(records)
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()
    assert len(checkpoints_of(pair)) == before, "nothing has changed"


def checkpoints_of(pair: Pair) -> list[Any]:
    with ClusterClient(settings_for(pair.b.bootstrap)) as client:
        topic = f"{pair.alias_a}.checkpoints.internal"
        return list(read_to_end(client, topic, 0))


def test_metadata_of_a_commit_is_in_its_checkpoint(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster)
    with_transactions(pair)
    group = f"{pair.group}-{uuid.uuid4().hex[:4]}"
    commit(pair.a, group, pair.topic, 2, metadata="half way")
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()
    (one,) = [Checkpoint.decode(r.key, r.value) for r in checkpoints_of(pair)]
    # librdkafka appends a zero byte to the metadata
    assert (one.group, one.upstream_offset, one.metadata) == (group, 2, "half way\0")
