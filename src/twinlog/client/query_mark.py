"""Moves the mark of a query that writes with `format("twinlog")` to the other cluster of a flow.

The mark (`cluster.groups.commit_mark`) is the number of the last micro-batch in the query's topics.
No mirror translates it. If the flow has copied these topics completely, the mark is also valid for
the copies. So the writer on the other cluster recognises a micro-batch that is repeated there.

    read the mark -> read the topics' log ends -> check that all is copied -> set the mark there

- The ends are read after the mark, so they include its rows, even if a transaction marker is late.
- A mark only moves forward. So the move may be repeated, and may precede the new checkpoint.
- If a topic is not copied completely, the mark is not set, and the reason is returned. The writer
  then refuses the next micro-batch (MARK_DIFFERS).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from twinlog.client.group_translation import FlowTranslation
from twinlog.cluster.groups.commit_mark import CommitMark, read_mark
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import commit_offsets, fetch_offsets
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.errors import TwinlogError, or_raise
from twinlog.model import is_own_group
from twinlog.quantities import first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedMark:
    """The mark of one query under one transactional id."""

    group: str
    batch: int
    topics: tuple[str, ...]
    """Topics on the cluster that the query leaves."""
    why_left: str = ""
    """Why the mark was not set; empty if the other cluster has it."""

    @property
    def transactional_id(self) -> str:
        """The ID that the writer derives from the checkpoint's location if the query has none."""
        return self.group.rpartition(".")[0].removeprefix("__")

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "batch": self.batch,
            "topics": list(self.topics),
            "why_left": self.why_left or None,
        }


@dataclass(slots=True, kw_only=True)
class MovedMarks:
    """The marks of a query."""

    moved: list[MovedMark] = field(default_factory=list)
    problem: str = ""
    """Why there may be marks that were not found; empty if there are none."""


def move_marks(translation: FlowTranslation, query: str, *, reverse: bool) -> MovedMarks:
    """Move the query's marks, if there are any.

    `query` is Spark's id of the query. `reverse`: move from the target to the source.
    """
    out = MovedMarks()
    if not query:
        return out
    here, _ = translation.sides(reverse=reverse)
    try:
        there = Coordinators(here)
        names = [
            one for one in list_groups(there) if is_own_group(one) and one.endswith(f".{query}")
        ]
        cluster_id = here.metadata([]).cluster_id
        for group, offsets in fetch_offsets(there, names, settled=True).items():
            known = or_raise(offsets)
            mark, _ = read_mark(known, cluster_id)
            if mark is not None:
                topics = {tp.topic for tp in known}
                out.moved.append(_moved(translation, group, mark, topics, reverse=reverse))
    except TwinlogError as error:
        out.problem = str(error)  # the writer then refuses to resume there
    return out


def _moved(
    translation: FlowTranslation,
    group: str,
    mark: CommitMark,
    topics: Collection[str],
    *,
    reverse: bool,
) -> MovedMark:
    """Move one mark. `topics`: all topics of the group, also those of earlier micro-batches."""
    try:
        why_left = _move(translation, group, mark, topics, reverse=reverse)
    except TwinlogError as error:
        why_left = str(error)
    return MovedMark(group=group, batch=mark.batch, topics=tuple(sorted(topics)), why_left=why_left)


def _move(
    translation: FlowTranslation,
    group: str,
    mark: CommitMark,
    topics: Collection[str],
    *,
    reverse: bool,
) -> str:
    """Set the mark. Return why it was not set, or an empty text if it was."""
    here, there = translation.sides(reverse=reverse)
    seen = here.metadata(sorted(topics), allow_missing=False)
    tps = [tp for topic in seen.topics.values() for tp in topic.tps]
    ends = {tp: or_raise(one).offset for tp, one in list_offsets(here, tps, LATEST).items()}
    copies = translation.all_of(ends, reverse=reverse)
    missing = [
        str(one.tp) for one in copies if one.offset and (one.to_offset is None or not one.is_exact)
    ]
    if missing:
        return f"the flow has not copied all of {first_few(missing)}"
    coordinators, cluster_id = Coordinators(there), there.metadata([]).cluster_id
    found, _ = read_mark(
        or_raise(fetch_offsets(coordinators, [group], settled=True)[group]), cluster_id
    )
    if found is not None and found.batch > mark.batch:
        return f"the mark there is already at micro-batch {found.batch}"
    names = frozenset(one.to_topic for one in copies if one.topic in mark.topics)
    moved = replace(mark, topics=names)
    answer = commit_offsets(coordinators, {group: moved.offsets(cluster_id)})[group]
    problems = [answer] if isinstance(answer, TwinlogError) else answer.values()
    return next((str(one) for one in problems if one is not None), "")
