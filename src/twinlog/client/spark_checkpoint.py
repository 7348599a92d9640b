"""Rewrites a checkpoint of Spark's Structured Streaming for the other cluster of a flow.

Before micro-batch N runs, Spark writes the end offsets of each source (`offsets/N`); after N is in
the sink, it writes `commits/N`. A restart resumes at the newest offsets if they are committed. Else
the query runs N again, from `offsets/N-1` to `offsets/N`. So only these files decide where a query
resumes. If their offsets are translated exactly, they name the same records on the other cluster.
No record is missed, and a repeated micro-batch has the same rows.

    offsets/7    v1
                 {"batchWatermarkMs":0, ...}
                 {"orders":{"0":23,"1":17}}        a line for each source of the query

Lines whose topics the flow does not copy belong to other sources, and are not changed. All other
files are copied unchanged: state, watermarks, the query's ID. The old checkpoint is not changed,
and the new one is created completely or not at all.

- Offsets that were not copied yet have no counterpart. When the mirror copies the records before
  such offsets later, the query would read these records again. So such offsets are refused, unless
  the flow's source is lost (`may_repeat`).
- If nothing of a partition was read yet (offset 0), it needs no translation.
- If the query still runs and plans another micro-batch, this is detected after the files are
  copied, and the rewrite is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from twinlog.client.group_translation import FlowTranslation, TranslatedOffset
from twinlog.cluster.groups.commit_mark import CommitMark, read_mark
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import commit_offsets, fetch_offsets
from twinlog.cluster.topics.internal_log import readable_ends
from twinlog.errors import FlowError, TwinlogError, UsageError, or_raise
from twinlog.model import Flow, TopicPartition, is_own_group
from twinlog.quantities import first_few, plural

FORMAT: Final = "v1"
HEAD_LINES: Final = 2
"""Number of lines before the first source: the format version, and the query's own metadata."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestBatch:
    """The newest micro-batch that a checkpoint names. It decides where the query resumes."""

    batch: int
    """The number of the newest micro-batch that was planned."""
    is_committed: bool

    @property
    def deciding(self) -> tuple[int, ...]:
        """Return the numbers of the micro-batches whose end offsets must be translated, the newest
        last.
        """
        return (self.batch,) if self.is_committed else (self.batch - 1, self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The result of a rewrite: where the query resumes on the other cluster."""

    noted: NewestBatch
    offsets: tuple[TranslatedOffset, ...]
    """Translated end offsets of the newest micro-batch."""
    other_sources: int


def rewrite_checkpoint(
    translation: FlowTranslation,
    flow: Flow,
    old: Path,
    new: Path,
    *,
    reverse: bool = False,
    may_repeat: bool = False,
) -> Rewritten:
    """Create the checkpoint `new` for a query that has read one cluster of the flow, and will read
    the other.

    `reverse`: the query has read the target. `may_repeat`: accept offsets that are not copied yet,
    so that the query may read records again. Raises UsageError if `old` is not a checkpoint, its
    query runs, or `new` exists. Raises FlowError (NOT_COPIED) for offsets without a counterpart.
    """
    noted = _noted(old)
    if new.exists():
        raise UsageError(f"{new} already exists: name a new folder")
    lines = {batch: _lines(old / "offsets" / str(batch)) for batch in noted.deciding}
    newest: dict[TopicPartition, TranslatedOffset] = {}
    others = 0
    texts: dict[int, str] = {}
    for batch, (head, sources) in lines.items():
        out, others = list(head), 0
        for line in sources:
            offsets = _offsets(line)
            translated = (
                _translated(translation, flow, offsets, reverse, may_repeat) if offsets else {}
            )
            newest |= translated
            others += not translated
            out.append(_line(translated) if translated else line)
        texts[batch] = "\n".join(out)
    if not newest:
        raise FlowError(
            f"{old}: no source of this query reads a topic that the flow copies: check --flow and "
            "--reverse",
            flow=flow,
            code="NOT_COPIED",
        )
    _write(old, new, texts)
    if _noted(old) != noted:
        shutil.rmtree(new)
        raise UsageError(f"{old}: the query of this checkpoint is running: stop it first")
    last = {tp for line in lines[noted.batch][1] for tp in _offsets(line)}
    shown = tuple(offset for tp, offset in sorted(newest.items()) if tp in last)
    return Rewritten(noted=noted, offsets=shown, other_sources=others)


def query_of(checkpoint: Path) -> str:
    """Return Spark's ID of the query, or an empty string if the checkpoint folder does not have
    it.
    """
    with suppress(OSError, ValueError, RecursionError):
        metadata = json.loads((checkpoint / "metadata").read_text())
        return str(metadata.get("id", "")) if isinstance(metadata, dict) else ""
    return ""


def _noted(checkpoint: Path) -> NewestBatch:
    planned = _numbers(checkpoint / "offsets")
    if not planned or not (checkpoint / "metadata").is_file():
        raise UsageError(
            f"{checkpoint} is not a checkpoint of a stream that has started: it has no file "
            "`metadata`, or no files in offsets/. If the checkpoint is in an object store, copy it "
            "to a disk first"
        )
    batch = max(planned)
    committed = max(_numbers(checkpoint / "commits"), default=-1)
    noted = NewestBatch(batch=batch, is_committed=committed == batch)
    if not set(noted.deciding) <= planned or batch - committed > 1 or committed > batch:
        raise UsageError(
            f"{checkpoint}: files of the last micro-batches are missing in offsets/ or commits/ "
            f"(newest planned batch: {batch}, newest committed batch: "
            f"{'none' if committed < 0 else committed}): let the query finish a micro-batch, or "
            "start with a new checkpoint"
        )
    return noted


def _numbers(folder: Path) -> set[int]:
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return {int(name) for name in names if name.isascii() and name.isdigit()}


def _lines(file: Path) -> tuple[list[str], list[str]]:
    lines = file.read_text().splitlines()
    if len(lines) <= HEAD_LINES or lines[0] != FORMAT:
        raise UsageError(f"{file}: its format is not {FORMAT}, which Spark 4.0 to 4.3 write")
    return lines[:HEAD_LINES], lines[HEAD_LINES:]


def _offsets(line: str) -> dict[TopicPartition, int]:
    """Return the offsets in a line of an offsets file, or {} if the line is of a source other than
    Kafka.
    """
    content: Any = None
    with suppress(ValueError, RecursionError):
        content = json.loads(line)
    out: dict[TopicPartition, int] = {}
    for topic, partitions in content.items() if isinstance(content, dict) else ():
        if not isinstance(partitions, dict):
            return {}
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdigit()) or type(offset) is not int or offset < 0:
                return {}
            out[TopicPartition(topic, int(number))] = offset
    return out


def _line(translated: Mapping[TopicPartition, TranslatedOffset]) -> str:
    out: dict[str, dict[str, int | None]] = {}
    for offset in sorted(
        translated.values(), key=lambda offset: (offset.to_topic, offset.partition)
    ):
        out.setdefault(offset.to_topic, {})[str(offset.partition)] = offset.to_offset
    return json.dumps(out, separators=(",", ":"))


def _translated(
    translation: FlowTranslation, flow: Flow, offsets: Offsets, reverse: bool, may_repeat: bool
) -> dict[TopicPartition, TranslatedOffset]:
    """Return the translation of each offset, by partition, or {} if the flow copies none of these
    topics. Raises FlowError (NOT_COPIED) if an offset has no counterpart.
    """
    answers = translation.all_of(offsets, reverse=reverse)
    translated = {
        answer.tp: replace(answer, to_offset=answer.to_offset or 0, is_exact=True)
        if answer.offset == 0
        else answer
        for answer in answers
    }
    copied = {answer.topic for answer in answers if answer.to_offset is not None}
    if not copied:
        return {}
    missing = [tp for tp, offset in translated.items() if offset.to_offset is None]
    ahead = [
        tp
        for tp, offset in translated.items()
        if offset.to_offset is not None and not offset.is_exact
    ]
    if missing:
        raise _rewrite_refused(
            flow, missing, offsets, "and Twinlog has copied nothing of this partition"
        )
    if ahead and not may_repeat:
        raise _rewrite_refused(
            flow,
            ahead,
            offsets,
            "but the mirror has not copied up to this offset yet. The query would read records "
            "again. Let the mirror catch up, or give --may-repeat if the source is lost",
        )
    return translated


def _rewrite_refused(
    flow: Flow, tps: Collection[TopicPartition], offsets: Offsets, why: str
) -> FlowError:
    first = min(tps)
    more = f" (and {plural(len(tps) - 1, 'more partition')})" if len(tps) > 1 else ""
    what = f"{first}{more}: the checkpoint is at offset {offsets[first]}, {why}"
    return FlowError(what, flow=flow, code="NOT_COPIED")


def _write(old: Path, new: Path, texts: Mapping[int, str]) -> None:
    """Write the new checkpoint to a temporary folder, then rename that folder. The Hadoop checksums
    of changed files are removed. `texts`: new content of offsets files, by micro-batch.
    """
    partial_folder = new.with_name(f".{new.name}.part")
    shutil.rmtree(partial_folder, ignore_errors=True)
    try:
        shutil.copytree(old, partial_folder)
        for batch, text in texts.items():
            (partial_folder / "offsets" / str(batch)).write_text(text)
            (partial_folder / "offsets" / f".{batch}.crc").unlink(missing_ok=True)
        partial_folder.rename(new)
    except OSError:
        shutil.rmtree(partial_folder, ignore_errors=True)
        raise


# If a query writes with `format("twinlog")`, its mark is moved to the other cluster of the flow.
#
# The mark (`cluster.groups.commit_mark`) is the number of the last micro-batch in the query's
# topics. No mirror translates it. If the flow has copied these topics completely, the mark is also
# valid for the copies. So the writer on the other cluster recognises a micro-batch that is repeated
# there.
#
#     read the mark -> read the topics' log ends -> check that all is copied -> set the mark there
# - The ends are read after the mark, so they include the micro-batch's rows, even if a transaction
#   marker is late.
# - A mark only moves forward. So the move can be repeated, and can precede the new checkpoint.
# - If a topic is not copied completely, the mark is not set, and the reason is returned. The writer
#   then refuses the next micro-batch (MARK_DIFFERS).


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedMark:
    """A query's commit mark for one transactional ID, and whether it was moved."""

    FIELDS = "group batch topics why_left?"

    group: str
    batch: int
    topics: tuple[str, ...]
    """Topics to which the query has written on the cluster that it leaves."""
    why_left: str = ""
    """The reason why the mark was not moved, or empty if the other cluster has it."""

    @property
    def transactional_id(self) -> str:
        """The transactional ID of the writer. If the query sets none, the writer derives the ID
        from the checkpoint's location.
        """
        return self.group.rpartition(".")[0].removeprefix("__")


@dataclass(slots=True, kw_only=True)
class MovedMarks:
    """The commit marks found for a query, each moved to the other cluster if possible."""

    moved: list[MovedMark] = field(default_factory=list)
    problem: str = ""
    """The error because of which some marks may not have been found or moved, or empty."""


def move_marks(translation: FlowTranslation, query: str, *, reverse: bool) -> MovedMarks:
    """Move the query's commit marks (`cluster.groups.commit_mark`) to the flow's other cluster.

    A query has marks only if it writes with `format("twinlog")`.

    `query`: Spark's ID of the query, or empty if it is unknown; then nothing is moved. `reverse`:
    move the marks from the target to the source.
    """
    out = MovedMarks()
    if not query:
        return out
    client, _ = translation.sides(reverse=reverse)
    try:
        coordinators = Coordinators(client)
        names = [
            group
            for group in list_groups(coordinators)
            if is_own_group(group) and group.endswith(f".{query}")
        ]
        cluster_id = client.metadata([]).cluster_id
        for group, offsets in fetch_offsets(coordinators, names, settled=True).items():
            known = or_raise(offsets)
            mark, _ = read_mark(known, cluster_id)
            if mark is None:
                continue
            # all topics in which the group has a mark, including those of earlier micro-batches
            topics = tuple(sorted({tp.topic for tp in known}))
            try:
                why_left = _move(translation, group, mark, topics, reverse=reverse)
            except TwinlogError as error:
                why_left = str(error)
            moved = MovedMark(group=group, batch=mark.batch, topics=topics, why_left=why_left)
            out.moved.append(moved)
    except TwinlogError as error:
        # not raised, because without a mark the writer refuses to resume on the other cluster
        out.problem = str(error)
    return out


def _move(
    translation: FlowTranslation,
    group: str,
    mark: CommitMark,
    topics: Sequence[str],
    *,
    reverse: bool,
) -> str:
    """Set the mark on the other cluster, and return "". If it is not set, return the reason."""
    old_client, new_client = translation.sides(reverse=reverse)
    seen = old_client.metadata(topics, allow_missing=False)
    tps = [tp for topic in seen.topics.values() for tp in topic.tps]
    copies = translation.all_of(readable_ends(old_client, tps), reverse=reverse)
    missing = [
        str(copy.tp)
        for copy in copies
        if copy.offset and (copy.to_offset is None or not copy.is_exact)
    ]
    if missing:
        return f"the flow has not copied all of {first_few(missing)}"
    coordinators, cluster_id = Coordinators(new_client), new_client.metadata([]).cluster_id
    last_mark, _ = read_mark(
        or_raise(fetch_offsets(coordinators, [group], settled=True)[group]), cluster_id
    )
    if last_mark is not None and last_mark.batch > mark.batch:
        return f"the query's mark there is already at micro-batch {last_mark.batch}"
    names = frozenset(copy.to_topic for copy in copies if copy.topic in mark.topics)
    moved = replace(mark, topics=names)
    answer = commit_offsets(coordinators, {group: moved.offsets(cluster_id)})[group]
    problems = [answer] if isinstance(answer, TwinlogError) else answer.values()
    return next((str(problem) for problem in problems if problem is not None), "")
