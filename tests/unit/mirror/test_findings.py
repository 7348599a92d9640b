"""The advice of messages about a topic whose copy cannot continue."""

from __future__ import annotations

import pytest

from twinlog.channel.codec import MessageCodec
from twinlog.errors import PartitionError
from twinlog.lane.messages import Troubled
from twinlog.lane.reporting import troubled_message
from twinlog.mirror.findings import LogFinding, Span, foreign_data, sides, source_recreated
from twinlog.mirror.ports import LogEnds
from twinlog.model import TopicPartition

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("orders", 0)


def of(code: str, what: str) -> LogFinding:
    return LogFinding(code=code, what=what, source=SOURCE, target=TARGET)


SAID = (
    of("GAP_WRITTEN", "5 records are missing"),
    of("TARGET_TRUNCATED", "its end is gone"),
    foreign_data(TARGET, Span(3, 9)),
    of("MM2_PLACE_UNKNOWN", "its place is not known"),
    source_recreated(SOURCE, TARGET, Span(0, 9)),
    of("DIVERGED", "they differ"),
    of("PARTITIONS_DIFFER", "there were 3"),
    of("MAP_MISSING", "its rows are gone"),
)


@pytest.mark.parametrize("finding", SAID, ids=lambda one: one.code)
def test_message_for_an_own_topic_saves_before_it_deletes(finding: LogFinding) -> None:
    text = finding.worded("A->B")
    assert text.index("twinlog export FILE --flow 'A->B' ") < text.index("delete the target")


@pytest.mark.parametrize("finding", SAID, ids=lambda one: one.code)
def test_no_message_suggests_deleting_a_topic_of_an_application(
    finding: LogFinding,
) -> None:
    text = finding.worded("A->B", is_shared=True)
    assert "delete the target topic" not in text
    assert "orders is also the application's topic, so do not delete it" in text
    assert "topics.exclude" in text


@pytest.mark.parametrize("finding", SAID, ids=lambda one: one.code)
def test_commands_name_no_flow_if_it_is_unknown(finding: LogFinding) -> None:
    error = finding.error()
    assert "twinlog export FILE --side " in error.message
    assert "--flow" not in error.message
    assert "{" not in error.message


def test_a_finding_goes_from_a_lane_to_the_driver_as_a_value() -> None:
    here = LogEnds(log_start=5, log_end=9, high_watermark=9, leader_epoch=1)
    held = sides(here, here)
    found = LogFinding(
        code="EXTRA_RECORDS", what="{7} of others", target=TARGET, span=Span(3, 9), held=held
    )
    codec = MessageCodec([Troubled])
    arrived = codec.decode(codec.encode(troubled_message(SOURCE, found.error(), None, 0)))
    assert arrived.finding == found
    worded = arrived.worded("A->B", is_shared=False)
    assert worded.message == found.worded("A->B")
    assert "{7} of others; the source holds upstream offsets [5, 9)" in worded.message
    assert "--flow 'A->B' --side target --topic orders --partition 0 --from 3 --to 9" in (
        worded.message
    )


def test_a_problem_without_a_finding_keeps_its_message() -> None:
    trouble = troubled_message(SOURCE, PartitionError("no leader", code="NO_LEADER"), None, 7)
    assert trouble.worded("A->B", is_shared=True) == trouble
