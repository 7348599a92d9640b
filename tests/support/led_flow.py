"""A flow as duties see it on its leader, although no process leads it. Tests run the duties' rounds
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.support import snapshots
from twinlog.cluster.client import ClusterClient
from twinlog.config.load import load
from twinlog.control.duties.rounds import LedFlow, PartitionView
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.mirror.map.offset_map import ChunkRow, PartitionMap, Run, Term
from twinlog.mirror.map.translation import Reach
from twinlog.model import TopicPartition
from twinlog.survey.copied_topics import copies_by_name
from twinlog.survey.replica import Maps

__all__ = ["led_flow", "led_to"]


def led_flow(config: Path) -> tuple[LedFlow, list[str]]:
    """Return the file's only flow, and the list of the lines that it logs once. Topics that exist
    on both clusters count as copied.
    """
    (flow,) = load(config, environment={}).flows
    setup = flow_setup(flow)
    logged: list[str] = []
    led = LedFlow(
        config=flow,
        policy=setup.policy,
        generation=0,
        source=setup.source,
        target=setup.target,
        partitions=lambda: tuple(_begun(setup)),
        read_map=lambda: Maps({}, {}, 8),
        snapshot=snapshots.flow,
        may_act=lambda: True,
        leads=lambda: True,
        log_once=lambda line: None if line in logged else logged.append(line),
    )
    return led, logged


def led_to(led: LedFlow, offset: int) -> LedFlow:
    """Return the flow as it is after a lane has copied its only partition up to this offset."""
    (view,) = led.partitions()
    view = replace(view, reach=Reach(offset, offset))
    topic, term = view.source.topic, Term(1, 0)
    known = PartitionMap(key=view.map_key, topic=topic)
    runs = (Run(0, 0, 0),)
    known.apply(ChunkRow(key=view.map_key, term=term, chunk=0, topic=topic, runs=runs))
    maps = Maps({view.map_key: known}, {}, 8)
    return replace(led, partitions=lambda: (view,), read_map=lambda: maps)


def _begun(setup: FlowSetup) -> Iterator[PartitionView]:
    with ClusterClient(setup.source) as source, ClusterClient(setup.target) as target:
        here, there = source.metadata(None).topics, target.metadata(None).topics
        for name, remote in copies_by_name(setup.config, source, target).items():
            for one in here[name].partitions:
                yield PartitionView(
                    source=TopicPartition(name, one.number),
                    target=TopicPartition(remote, one.number),
                    source_topic_id=here[name].topic_id,
                    target_topic_id=there[remote].topic_id,
                    reach=Reach(0, 0),
                    is_begun=True,
                )
