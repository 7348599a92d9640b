"""For how long a response proves that a topic name still means the same topic
(`lane.sides.topic_by_name`).
"""

from __future__ import annotations

import pytest

from twinlog.lane.sides.topic_by_name import SEEN_WITHIN_S, SLOW_ANSWERS, TopicByName

NEVER = 0.0


@pytest.fixture
def by_name() -> TopicByName:
    return TopicByName()


def test_nothing_is_known_at_first(by_name: TopicByName) -> None:
    assert not by_name.is_fresh(10.0)
    assert by_name.wants_metadata(10.0, NEVER)


def test_metadata_counts_from_its_request(by_name: TopicByName) -> None:
    assert by_name.wants_metadata(10.0, 9.999), "asked before there was anything to send"
    assert not by_name.wants_metadata(10.01, 10.0)
    by_name.on_same_topic_id(10.0)
    assert by_name.is_fresh(10.0 + SEEN_WITHIN_S - 0.001)
    assert not by_name.is_fresh(10.0 + SEEN_WITHIN_S + 0.001)


def test_answer_counts_from_when_its_batch_was_sent(by_name: TopicByName) -> None:
    by_name.on_same_topic_id(10.0)
    by_name.on_sent(10.0)
    by_name.on_answered(10.5, is_ours=True)
    assert not by_name.is_fresh(10.5), "we may have had stopped for half a second"
    by_name.on_sent(11.0)
    by_name.on_answered(11.005, is_ours=True)
    assert by_name.is_fresh(11.01)


def test_rejected_batch_proves_nothing(by_name: TopicByName) -> None:
    by_name.on_sent(10.0)
    by_name.on_answered(10.001, is_ours=False)
    assert not by_name.is_fresh(10.001)


def test_pipeline_is_as_old_as_its_flights_are_long(by_name: TopicByName) -> None:
    for sent_at in (10.0, 10.2):
        by_name.on_sent(sent_at)
        by_name.on_answered(sent_at + 0.2, is_ours=True)
    by_name.on_sent(10.4)
    assert by_name.is_fresh(10.59)
    assert not by_name.is_fresh(10.65), "longer than the last ones flew"


def test_one_long_round_trip_may_be_a_local_stall(by_name: TopicByName) -> None:
    by_name.on_sent(10.0)
    by_name.on_answered(10.005, is_ours=True)
    by_name.on_sent(10.005)
    by_name.on_answered(13.0, is_ours=True)
    by_name.on_sent(13.0)
    assert by_name.is_fresh(13.02)
    assert not by_name.is_fresh(13.1)


def test_broken_connection_ends_all_evidence(by_name: TopicByName) -> None:
    by_name.on_same_topic_id(10.0)
    by_name.on_sent(10.0)
    by_name.on_disconnected()
    assert not by_name.is_fresh(10.001)


def test_slow_responses_are_requested_again_and_then_accepted(by_name: TopicByName) -> None:
    """Metadata that arrives slowly is requested again a few times, because this process may have
    caused the delay. After that it is accepted, because a slow network must not stop the copy.
    """
    now, asked_at = 10.0, NEVER
    asked = 0
    while by_name.wants_metadata(now, asked_at):
        asked, asked_at, now = asked + 1, now, now + 0.3
    assert asked == 1 + SLOW_ANSWERS
    assert by_name.wants_metadata(20.0, asked_at), "the next silence asks again"
