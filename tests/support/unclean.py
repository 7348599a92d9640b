"""A leader that comes back without its tail: unclean elections of a topic with two replicas.

The follower is stopped, records are written to the leader alone, the leader is killed, the follower
is elected uncleanly, and the old leader comes back: it cuts its log to the new leader's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import PartitionMetadata

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.topics import admin, create_topic, leader
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.sandbox import LocalCluster

ONE_IS_ENOUGH: Final = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}


def create_on_two(
    cluster: LocalCluster, topic: str, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic of one partition on two of the three brokers. One of them is
    enough to write.
    """
    return create_topic(
        cluster, topic, replication_factor=2, configs={**ONE_IS_ENOUGH, **(configs or {})}
    )


class LostTail:
    """The steps one by one, for tests that act between them."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.leads = leader(cluster, topic)
        (self.follows,) = {*self._partition().replicas} - {self.leads}

    def _partition(self) -> PartitionMetadata:
        found = admin(self.cluster).list_topics(self.topic, timeout=PATIENCE_S).topics[self.topic]
        return found.partitions[0]

    def both_in_sync(self) -> None:
        eventually(lambda: {*self._partition().isrs} == {self.leads, self.follows}, what="ISR")

    def others_in_sync(self) -> None:
        """Wait for the replicas of the flow's own topics. An earlier test may have restarted a
        broker, and two of three are down for a moment here.
        """

        def are_in_sync() -> bool:
            found = admin(self.cluster).list_topics(timeout=PATIENCE_S).topics
            parts = [
                part
                for name in (STATE_TOPIC, "__consumer_offsets")
                if name in found
                for part in found[name].partitions.values()
            ]
            return all({*part.isrs} == {*part.replicas} for part in parts)

        eventually(are_in_sync, what="the state topic's and the groups' replicas in sync")

    def leader_alone(self) -> None:
        """Stop the follower, so that later records are on the leader only."""
        self.both_in_sync()
        self.others_in_sync()
        self.cluster.kill(self.follows)
        eventually(lambda: [*self._partition().isrs] == [self.leads], what="the leader alone")

    def leader_dies(self) -> None:
        """Kill the leader, so that there is none: the remaining replica may have less."""
        if self.leads not in self.cluster.broker_pids:
            return
        self.cluster.kill(self.leads)
        self.cluster.restart(self.follows)
        eventually(lambda: leader(self.cluster, self.topic) == -1, what="no leader")

    def elect(self) -> None:
        """Elect the replica with fewer records. The other one comes back and truncates its log."""

        def is_elected() -> bool:
            one = TopicPartition(self.topic, 0)
            client = admin(self.cluster)  # must outlive the answer
            try:
                client.elect_leaders(ElectionType.UNCLEAN, [one]).result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    raise
            return leader(self.cluster, self.topic) == self.follows

        eventually(is_elected, what="an unclean election")


@contextmanager
def lost_tail(cluster: LocalCluster, topic: str) -> Iterator[LostTail]:
    """Lose the records that are written within the block, under a newer leader epoch. All brokers
    run again at its end, whatever happened.
    """
    steps = LostTail(cluster, topic)
    steps.leader_alone()
    try:
        yield steps
        steps.leader_dies()
        steps.elect()
    finally:
        for node in {steps.leads, steps.follows} - {*cluster.broker_pids}:
            cluster.restart(node)
    steps.both_in_sync()
