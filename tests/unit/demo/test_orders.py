"""The demo's stream contains everything that a copy could get wrong."""

from __future__ import annotations

import json
from itertools import islice

from twinlog.demo.shop import PARTITIONS, TOPIC_CONFIGS, order_events

EVENTS = list(islice(order_events(7), 5_000))


def test_two_streams_of_one_seed_are_equal() -> None:
    assert list(islice(order_events(7), 5_000)) == EVENTS
    assert list(islice(order_events(8), 100)) != EVENTS[:100]


def test_every_topic_has_its_records() -> None:
    assert {event.topic for event in EVENTS} == set(PARTITIONS) == set(TOPIC_CONFIGS)


def test_there_are_tombstones_null_keys_and_headers_of_every_kind() -> None:
    assert any(event.value is None for event in EVENTS)
    assert any(event.key is None for event in EVENTS)
    assert any(value is None for event in EVENTS for _, value in event.headers)
    assert any([name for name, _ in event.headers].count("hop") == 2 for event in EVENTS)


def test_a_compacted_topic_has_keys_only() -> None:
    assert all(event.key is not None for event in EVENTS if event.topic == "orders")


def test_values_are_json_with_more_than_ascii() -> None:
    values = [event.value for event in EVENTS if event.value is not None]
    assert all(json.loads(value) for value in values)
    assert any(not value.isascii() for value in values)
