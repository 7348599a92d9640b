"""Which offsets are translated again: only the offsets of groups that have committed, or whose
translation is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.properties import loader
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, GroupOffsets
from twinlog.control.duties.rounds import LedFlow, PartitionView
from twinlog.control.groups.checkpoint_rows import TOPIC_IDS_HEADER, CheckpointRow, CopyIds, Newest
from twinlog.control.groups.counterparts import Counterpart, CounterpartFinder, Views
from twinlog.control.groups.group_sync import GroupSync, GroupSyncer
from twinlog.control.groups.translation_cache import TranslationCache, was_set_on_source
from twinlog.errors import Unreachable
from twinlog.mirror.map.offset_map import NO_TERM, ChunkRow, PartitionMap, Run
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.plan import PartitionPair
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.ends import LogState
from twinlog.survey.replica import NOT_READ, Certainty, Copied, Replica, Witness
from twinlog.wire.mm2_records import Checkpoint

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
COPY, COPY_MADE_ANEW = TopicId("c" * 32), TopicId("d" * 32)


def view_of(tp: TopicPartition) -> PartitionView:
    return PartitionView(
        source=tp,
        target=TopicPartition(f"A.{tp.topic}", tp.partition),
        source_topic_id=TopicId("c" * 32),
        target_topic_id=TopicId("a" * 32),
        reach=Reach(100, 100),
    )


class KnownCounterparts:
    """Translates offsets up to 100 in known partitions to the same offsets. It records the
    queries.
    """

    def __init__(self, *tps: TopicPartition) -> None:
        self.tps = set(tps)
        self.asked: list[set[TopicPartition]] = []
        self.failure: Exception | None = None
        self.topic_id = "a" * 32
        self.copy_id = COPY
        self.is_reverse = False
        self.copy_start = -1
        self.reached = 100
        self.copied: dict[TopicPartition, PartitionView] = {tp: view_of(tp) for tp in tps}

    def views(self) -> Views:
        return dict(self.copied)

    def forget(self) -> None:
        """Forget all translations, as if the clusters had changed, although their aliases are the
        same.
        """

    def find(
        self, tps: Iterable[TopicPartition], views: Views
    ) -> dict[TopicPartition, Counterpart]:
        assert views == self.copied
        self.asked.append(set(tps))
        if self.failure is not None:
            raise self.failure
        return {tp: self._of(tp) for tp in self.asked[-1] & self.tps}

    def _of(self, tp: TopicPartition) -> Counterpart:
        there, topic_id = TopicPartition(f"A.{tp.topic}", tp.partition), TopicId(self.topic_id)
        back = self.is_reverse
        pair = PartitionPair(
            source=there if back else tp,
            target=tp if back else there,
            source_topic_id=topic_id if back else self.copy_id,
            target_topic_id=self.copy_id if back else topic_id,
        )
        known = PartitionMap(key=pair.map_key, topic="orders")
        row = ChunkRow(key=known.key, term=NO_TERM, chunk=0, topic="orders", runs=(Run(0, 0, 0),))
        known.apply(row)
        copied = Copied(Certainty.EXACT, Witness.LANE, None, self.reached, self.reached)
        log = LogState(self.copy_start if back else 0, 100)
        replica = Replica(pair, NOT_READ, log, copied, map=known)
        return Counterpart(replica=replica, original=LogState(0, 100) if back else None)


def translations(
    counterparts: KnownCounterparts, given: SyncedOffsets | None = None, *, has_sync: bool = True
) -> TranslationCache:
    synced = partial((given or SyncedOffsets()).has_offset, "source")
    return TranslationCache(cast("CounterpartFinder", counterparts), synced, has_sync=has_sync)


def offsets(found: TranslationCache) -> dict[tuple[str, TopicPartition], int]:
    return {
        (one.checkpoint.group, one.checkpoint.topic_partition): one.checkpoint.downstream_offset
        for one in found
        if one.checkpoint is not None
    }


def test_nothing_is_searched_without_new_commits() -> None:
    counterparts = KnownCounterparts(FIRST, SECOND)
    found = translations(counterparts)
    now: dict[str, GroupOffsets] = {
        "a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)},
        "b": {FIRST: Committed(offset=5)},
    }
    found.update(now)
    found.update(now)
    found.update({"a": dict(now["a"]), "b": now["b"]})  # read again with the same offsets
    assert counterparts.asked == [{FIRST, SECOND}]
    a, b = TopicPartition("A.orders", 0), TopicPartition("A.orders", 1)
    assert offsets(found) == {("a", a): 3, ("a", b): 4, ("b", a): 5}

    found.update({"a": {FIRST: Committed(offset=7), SECOND: Committed(offset=4)}})
    assert counterparts.asked[1:] == [{FIRST}]
    assert offsets(found) == {("a", a): 7, ("a", b): 4}  # group b has no offsets any more


def test_only_where_groups_are_set_checkpoints_have_more_than_mirrormaker_s_bytes() -> None:
    def headers(*, has_sync: bool, is_reverse: bool) -> list[str]:
        counterparts = KnownCounterparts(FIRST)
        counterparts.is_reverse = is_reverse
        found = translations(counterparts, has_sync=has_sync)
        found.update({"a": {FIRST: Committed(offset=3)}})
        (row,) = found.unwritten_rows({})
        return [name for name, _ in row.record(now_ms=0).headers]

    assert headers(has_sync=False, is_reverse=False) == []
    assert headers(has_sync=True, is_reverse=False) == [TOPIC_IDS_HEADER]
    # otherwise, a sync that is enabled later would assume that the offsets are set already
    assert headers(has_sync=False, is_reverse=True) == [TOPIC_IDS_HEADER]


def test_a_sync_that_is_turned_on_later_announces_ids_and_nothing_is_written_twice() -> None:
    counterparts = KnownCounterparts(FIRST)
    with_ids, plain = (translations(counterparts, has_sync=on) for on in (True, False))
    for found in (with_ids, plain):
        found.update({"a": {FIRST: Committed(offset=3)}})
    (row,), (bare,) = with_ids.unwritten_rows({}), plain.unwritten_rows({})
    assert not row.is_written(bare)
    assert row.is_written(row)
    assert (
        list(plain.unwritten_rows({row.key: row}))
        == list(with_ids.unwritten_rows({bare.key: bare}))
        == []
    )


def test_offsets_without_a_counterpart_are_searched_in_every_round() -> None:
    counterparts = KnownCounterparts(FIRST)
    found = translations(counterparts)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)}}
    found.update(now)
    counterparts.tps.add(SECOND)
    found.update(now)
    found.update(now)
    assert counterparts.asked == [{FIRST, SECOND}, {SECOND}]
    assert set(offsets(found).values()) == {3, 4}


def test_a_round_that_failed_is_made_up_for() -> None:
    counterparts = KnownCounterparts(FIRST)
    found = translations(counterparts)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3)}}
    counterparts.failure = Unreachable("away")
    with pytest.raises(Unreachable):
        found.update(now)
    counterparts.failure = None
    found.update(now)
    assert list(offsets(found).values()) == [3]


def test_everything_is_translated_again_on_request() -> None:
    counterparts = KnownCounterparts(FIRST)
    found = translations(counterparts)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3)}}
    found.update(now)
    found.forget()
    found.update(now)
    assert counterparts.asked == [{FIRST}, {FIRST}]


def test_groups_without_any_counterpart_are_named_with_their_partitions() -> None:
    found = translations(KnownCounterparts(FIRST))
    found.update(
        {
            "none": {},
            "placed": {FIRST: Committed(offset=3)},
            "half": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)},
            "lost": {SECOND: Committed(offset=5)},
        }
    )
    assert found.without_counterpart() == {"none": (), "lost": (SECOND,)}
    found.update({"placed": {FIRST: Committed(offset=3)}})
    assert found.without_counterpart() == {}


def test_offset_in_a_recreated_topic_is_translated_again() -> None:
    counterparts = KnownCounterparts(FIRST)
    found = translations(counterparts)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3)}}
    found.update(now)
    same, other = TopicId("a" * 32), TopicId("b" * 32)
    found.forget_topics({"else"})
    found.update(now)
    assert len(counterparts.asked) == 1
    assert found.target_ids() == {"A.orders": same}
    counterparts.topic_id = "b" * 32
    found.forget_topics({"A.orders"})
    assert list(found) == [], "nothing is to be set before it is found there"
    found.update(now)
    assert len(counterparts.asked) == 2
    assert found.target_ids() == {"A.orders": other}


@pytest.mark.parametrize("what", ["released", "broken", "re-created"])
def test_translation_ends_with_the_copy_that_it_is_about(what: str) -> None:
    """When the copy of a partition is released, broken or re-created, its translated offsets are
    dropped. This applies also to a group that has committed nothing since.
    """
    counterparts = KnownCounterparts(FIRST, SECOND)
    found = translations(counterparts)
    now: dict[str, GroupOffsets] = {
        "a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)},
        "b": {SECOND: Committed(offset=5)},
    }
    found.update(now)
    view = counterparts.copied.pop(FIRST)
    counterparts.tps.discard(FIRST)
    if what == "broken":
        counterparts.copied[FIRST] = replace(view, is_broken=True)
    elif what == "re-created":
        counterparts.copied[FIRST] = replace(view, source_topic_id=TopicId("d" * 32))
    found.update(now)
    second = TopicPartition("A.orders", 1)
    assert offsets(found) == {("a", second): 4, ("b", second): 5}
    assert {one.topic_partition for some in found.to_set({}).values() for one in some} == {second}
    assert counterparts.asked == [{FIRST, SECOND}, {FIRST}]


def test_without_checkpoints_the_first_round_sets_nothing_on_the_way_back() -> None:
    """After a restart, no commit of the group has been observed, so the group may have been moved
    back. Without checkpoints, the first round of the reverse flow must not set the group. It sets
    only offsets of later commits.
    """
    counterparts = KnownCounterparts(FIRST)
    counterparts.is_reverse = True
    found = translations(counterparts)
    found.update({"a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)}})
    assert found.to_set(None) == {}
    counterparts.tps.add(SECOND)
    found.update({"a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)}})
    assert found.to_set(None) == {}, "a place that is found later is about the same commit"
    found.update({"a": {FIRST: Committed(offset=5), SECOND: Committed(offset=4)}})
    assert [one.upstream_offset for one in found.to_set(None)["a"]] == [5]
    fresh = translations(counterparts)
    fresh.update({"a": {FIRST: Committed(offset=3)}})
    assert "a" in fresh.to_set({}), "the checkpoints say that nothing was set before"


def given(*offsets: int) -> SyncedOffsets:
    out = SyncedOffsets()
    for offset in offsets:
        out.note("source", "a", FIRST, offset, COPY)
    return out


@pytest.mark.parametrize("before", [None, {}])
def test_an_offset_set_by_the_other_flow_is_no_progress_but_a_later_one_is(
    before: Newest | None,
) -> None:
    counterparts = KnownCounterparts(FIRST)
    counterparts.is_reverse = True
    synced = given(3)
    found = translations(counterparts, synced)
    found.update({"a": {FIRST: Committed(offset=3)}})
    assert found.to_set(before) == {}
    found.update({"a": {FIRST: Committed(offset=5)}})
    assert [one.upstream_offset for one in found.to_set(before)["a"]] == [5]
    found.mark_applied({})
    synced.note("source", "a", FIRST, 8, COPY)
    found.update({"a": {FIRST: Committed(offset=8)}})
    assert found.to_set(before) == {}, "the group here has moved on, and may be moved back by now"


def test_progress_before_the_first_round_is_known_where_this_process_has_set_the_group() -> None:
    counterparts = KnownCounterparts(FIRST)
    counterparts.is_reverse = True
    found = translations(counterparts, given(3))
    found.update({"a": {FIRST: Committed(offset=5)}})
    assert [one.upstream_offset for one in found.to_set(None)["a"]] == [5]


def test_sync_is_known_by_the_last_offsets_that_it_gave() -> None:
    synced = given(1, 2, 2, 3, 4, 5)
    gave = {offset for offset in range(7) if synced.has_offset("source", "a", FIRST, offset, COPY)}
    assert gave == {2, 3, 4, 5}
    assert synced.has_offset("source", "a", FIRST, 6, COPY) is False
    assert synced.has_offset("source", "a", SECOND, 5, COPY) is None
    assert synced.has_offset("target", "a", FIRST, 5, COPY) is None
    assert synced.has_offset("source", "a", FIRST, 5, COPY_MADE_ANEW) is None
    assert synced.has_offset("source", "a", FIRST, 5, None)


def return_path(
    *, synced: SyncedOffsets | None = None
) -> tuple[KnownCounterparts, TranslationCache]:
    counterparts = KnownCounterparts(FIRST)
    counterparts.is_reverse = True
    return counterparts, translations(counterparts, synced)


def at(found: TranslationCache, offset: int, before: Newest | None = None) -> list[int]:
    """Return a list with the offset to set if the group has committed `offset`. The list is empty
    if no offset is to be set.
    """
    found.update({"a": {FIRST: Committed(offset=offset)}})
    wanted = found.to_set({} if before is None else before)
    return [one.downstream_offset for one in wanted.get("a", ())]


def newest(found: TranslationCache, written: Newest) -> Newest:
    return {**written, **{row.key: row for row in found.unwritten_rows(written)}}


def test_an_offset_that_the_sync_set_before_the_topic_was_recreated_is_progress() -> None:
    counterparts, found = return_path(synced=given(3))
    counterparts.copy_id = COPY_MADE_ANEW
    assert at(found, 3) == [3]


def test_only_a_commit_that_was_seen_to_is_over_with_the_next_process() -> None:
    _, found = return_path()
    assert at(found, 5) == [5]
    written = newest(found, {})
    found.mark_applied({"a": "in use on the target"})
    assert newest(found, written) == written
    _, later = return_path()
    assert at(later, 5, written) == [5], "a checkpoint was written, and nothing was set"
    later.mark_applied({})
    written = newest(later, written)
    assert [row.is_applied for row in written.values()] == [True]
    assert list(later.unwritten_rows(written)) == []
    counterparts, last = return_path()
    assert at(last, 5, written) == []
    assert at(last, 6, written) == [6]
    counterparts.copy_id = COPY_MADE_ANEW
    last.forget()
    last.mark_applied({})
    assert at(last, 5, written) == [5], "the same offset in another topic"


def test_checkpoints_of_earlier_releases_are_of_commits_that_were_seen_to() -> None:
    _, found = return_path()
    assert at(found, 5) == [5]
    old = {row.key: row._replace(ids=None) for row in found.unwritten_rows({})}
    _, later = return_path()
    assert at(later, 5, old) == []
    later.mark_applied({})
    assert list(later.unwritten_rows(old)) == [], "they are not all written again"


def test_a_place_that_is_known_exactly_by_now_is_news() -> None:
    counterparts, found = return_path()
    counterparts.reached = 4
    assert at(found, 5) == [4]
    found.mark_applied({})
    assert at(found, 5) == []
    counterparts.reached = 100
    assert at(found, 5) == [5]


def test_a_group_that_may_have_read_nothing_of_the_copy_moves_no_group() -> None:
    counterparts, found = return_path()
    counterparts.copy_start = 7
    assert at(found, 7) == [0], "where there is no group, at the start of the log"
    assert [row.checkpoint.downstream_offset for row in found.unwritten_rows({})] == [7]
    assert at(found, 8) == [8]


def test_checkpoint_is_written_again_for_a_topic_that_was_recreated() -> None:
    counterparts, found = return_path()
    at(found, 5)
    written = newest(found, {})
    counterparts.copy_id = COPY_MADE_ANEW
    found.forget()
    at(found, 5)
    assert [row.ids for row in found.unwritten_rows(written)] == [
        CopyIds(TopicId("a" * 32), COPY_MADE_ANEW)
    ]


def test_row_is_read_as_it_was_written() -> None:
    checkpoint = Checkpoint(
        group="a", topic_partition=FIRST, upstream_offset=5, downstream_offset=6, metadata="m"
    )
    for row in (
        CheckpointRow(checkpoint, None),
        CheckpointRow(checkpoint, CopyIds(TopicId("a" * 32), COPY)),
        CheckpointRow(checkpoint, CopyIds(TopicId("a" * 32), COPY), is_applied=True),
    ):
        assert CheckpointRow.decode(row.record(1)) == row


def test_a_sync_is_known_to_the_flow_back_whatever_topic_names_call_the_clusters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Topic names of A->B call the target `x`, and B->A calls the same cluster B. The reverse flow
    must still recognize the offsets that the group sync of A->B has set.
    """
    lines = ["A->B.target.cluster.alias = x", "B->A.enabled = true"]
    there, back = loader(tmp_path)(*lines).flows
    known = SyncedOffsets()
    led = SimpleNamespace(config=there, synced=known, confirm=lambda: None)
    syncer = GroupSyncer(cast("LedFlow", led), cast("Coordinators", None))
    monkeypatch.setattr(syncer, "_set", lambda _, wanted: {group: {} for group in wanted})
    one = Checkpoint(
        group="a", topic_partition=FIRST, upstream_offset=5, downstream_offset=5, metadata=""
    )
    monkeypatch.setattr(syncer, "_within_logs", lambda syncs, _: syncs)
    syncer._commit({"a": GroupSync(to_set=(one,))}, {FIRST.topic: COPY})
    given = was_set_on_source(cast("LedFlow", SimpleNamespace(config=back, synced=known)))
    assert given("a", FIRST, 5, COPY)
