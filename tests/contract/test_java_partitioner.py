"""Twinlog chooses the same partition for a record with a key as Kafka's Java producer."""

from __future__ import annotations

import random

import pytest

from tests.support.java import kafka_jvm
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.wire.kernels.twin import murmur2

pytestmark = pytest.mark.broker


def test_keys_go_where_javas_producer_puts_them() -> None:
    made = random.Random(1)
    keys = [made.randbytes(length) for length in [*range(40), 100, 1000] for _ in range(3)]
    with kafka_jvm() as jvm:
        utils = jvm.org.apache.kafka.common.utils.Utils
        placer = jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
        for key in keys:
            assert murmur2(key) == utils.murmur2(key) % (1 << 32), key
            for partitions in (1, 2, 3, 7, 12, 100):
                expected = placer.partitionForKey(key, partitions)
                assert partition_for_key(key, partitions) == expected, (key, partitions)
