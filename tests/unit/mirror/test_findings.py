"""What people are told to do with a topic that cannot be copied on."""

from __future__ import annotations

from twinlog.mirror import findings
from twinlog.model import TopicPartition

TARGET = TopicPartition("orders", 0)
SAID = (
    findings.gap_written("5 records are missing", TARGET, TARGET),
    findings.target_truncated("its end is gone", TARGET),
    findings.foreign_data(TARGET, findings.Span(3, 9)),
    findings.mm2_place_unknown("its place is not known", TARGET),
    findings.source_recreated(TARGET, TARGET, findings.Span(0, 9)),
    findings.copy_anew(TARGET),
)


def test_a_copy_of_ours_alone_is_saved_and_then_deleted() -> None:
    for message in SAID:
        text = findings.with_flow(message, "A->B")
        assert text.index("twinlog export FILE --flow 'A->B' ") < text.index("delete the target")


def test_nobody_is_told_to_delete_a_topic_that_an_application_has_as_well() -> None:
    for message in SAID:
        text = findings.with_flow(message, "A->B", is_shared=True)
        assert "delete the target topic" not in text
        assert "orders is the application's topic as well, so do not delete it" in text
        assert "topics.exclude" in text
