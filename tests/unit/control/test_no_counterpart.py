"""The texts of the reasons why a group's offset has no counterpart on the target."""

from __future__ import annotations

from twinlog.control.duties.rounds import PartitionView
from twinlog.control.groups.counterparts import reasons
from twinlog.mirror.state.intents import Intent, IntentKind, flow_intents
from twinlog.model import TopicId, TopicPartition


def view(
    topic: str,
    *,
    is_broken: bool = False,
    is_position_unknown: bool = False,
    is_keyed: bool = False,
) -> PartitionView:
    return PartitionView(
        source=TopicPartition(topic, 0),
        target=TopicPartition(f"A.{topic}", 0),
        source_topic_id=TopicId(bytes(16)),
        target_topic_id=TopicId(bytes(16)),
        reach=None,
        is_broken=is_broken,
        is_position_unknown=is_position_unknown,
        is_keyed=is_keyed,
    )


PROMOTION = Intent(
    bytes_per_second=None,
    flow="A->B",
    kind=IntentKind.PROMOTE,
    topic="gone",
    is_set=True,
    who="ops",
    at_ms=1_800_000_000_000,
    reason="A is lost",
)


def why(*topics: str, partitions: int = 1) -> str:
    views = [
        view("new"),
        view("unseen", is_position_unknown=True),
        view("bad", is_broken=True),
        view("keyed", is_keyed=True),
    ]
    committed = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    intents = flow_intents("A->B", [PROMOTION.encode()])
    return reasons({"group": committed}, views, intents).get("group", "")


def test_each_kind_has_its_words() -> None:
    assert why() == "no offsets are committed"
    assert why("logs") == "logs: not mirrored by this flow"
    assert why("new") == "new: nothing is copied yet"
    assert why("unseen") == "unseen: no lane has checked it yet"
    assert why("bad") == "bad: has stopped, with a code"


def test_a_promoted_topic_shows_author_time_and_reason() -> None:
    said = why("gone")
    assert said.startswith("gone: promoted by ops: A is lost, 2027-01-15T08:00:00Z: ")


def test_topics_with_one_reason_share_it_and_are_named_once() -> None:
    assert why("logs", "audit", partitions=3) == "audit, logs: not mirrored by this flow"
    assert why("new", "logs") == "logs: not mirrored by this flow; new: nothing is copied yet"


def test_topics_placed_by_key_are_the_business_of_another_duty() -> None:
    assert why("keyed") == ""
    assert why("keyed", "logs") == "logs: not mirrored by this flow"
