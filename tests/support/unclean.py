"""Unclean elections of a topic with two replicas: its leader comes back without its last records.

The follower is stopped, and records are written to the leader alone. The leader is killed, and the
follower is elected uncleanly. The old leader comes back and truncates its log to the new leader's.
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
    """Create a topic of one partition with replicas on two of the three brokers. One in-sync
    replica is enough to write.
    """
    return create_topic(
        cluster, topic, replication_factor=2, configs={**ONE_IS_ENOUGH, **(configs or {})}
    )


class LostTail:
    """The steps of an unclean election one by one, for tests that act between them."""

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
        """Wait until the replicas of shared topics are in sync. An earlier test may have restarted
        a broker, and the steps stop two of three brokers for a moment.
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
        """Stop the follower, so that later records are only on the leader."""
        self.both_in_sync()
        self.others_in_sync()
        self.cluster.kill(self.follows)
        eventually(lambda: [*self._partition().isrs] == [self.leads], what="the leader alone")

    def leader_dies(self) -> None:
        """Kill the leader. The partition then has no leader, because the remaining replica may lack
        records.
        """
        if self.leads not in self.cluster.broker_pids:
            return
        self.cluster.kill(self.leads)
        self.cluster.restart(self.follows)
        eventually(lambda: leader(self.cluster, self.topic) == -1, what="no leader")

    def elect(self) -> None:
        """Elect the replica with fewer records. The other one comes back and truncates its log."""

        def is_elected() -> bool:
            one = TopicPartition(self.topic, 0)
            client = admin(self.cluster)  # the client must outlive the response
            try:
                client.elect_leaders(ElectionType.UNCLEAN, [one]).result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    raise
            return leader(self.cluster, self.topic) == self.follows

        eventually(is_elected, what="an unclean election")


@contextmanager
def lost_tail(cluster: LocalCluster, topic: str) -> Iterator[LostTail]:
    """Lose the records that are written within the block, by an election with a newer leader epoch.
    At the end all brokers run again, even if the test has failed.
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
