"""Deletes topics and creates them again under the same name."""

from __future__ import annotations

from confluent_kafka import KafkaException

from tests.support.eventually import eventually
from tests.support.rig import Rig
from tests.support.topics import create_topic, delete_topic


def recreate_target(rig: Rig) -> None:
    delete_topic(rig.target, rig.remote)
    create_topic(rig.target, rig.remote)


def recreate_source(rig: Rig) -> None:
    delete_topic(rig.source, rig.topic)

    def made() -> bool:
        try:
            rig.create()
        except KafkaException as error:
            raise AssertionError(str(error)) from error
        return True

    eventually(made)  # with ZooKeeper, a deleted topic still exists for a while
