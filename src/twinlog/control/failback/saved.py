"""The tail on disk: a file per partition and range of offsets, and a manifest. A failback writes
them before any other step.

    DIR/orders-0-00000000000000000023-00000000000000000040.jsonl
    DIR/manifest.json

The saved records may be appended to the target. So other users cannot access the folder (mode 0700,
`folders`), and every file in it must belong to this user. The manifest is written first. It names
the flow and the source cluster of the records. A folder with files of such names but no manifest is
rejected (SAVED_OTHERWISE), because the origin of these records is unknown.

The file above has all records that A had at the offsets [23, 40). A file is written under a
temporary name, fsynced and linked, so its final name exists only if the file is complete. Names are
never reused, and nothing is overwritten except the manifest, to which entries are only added. So:

- A run dies while it writes: the next run removes the `.partial` file.
- A run dies after the link: the next run reads the file and keeps it, even if A's cleaner or
  retention has deleted the records since.
- A run dies before a file is in the manifest: the next run writes the manifest from the files.
- The tail has grown in the meantime: the new records become one more file.
- Two runs use the folder at the same time: the folder is locked, and the second run ends.

Files are compared with the manifest. If a file has changed, the run aborts (SAVED_OTHERWISE) and
leaves the file as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from twinlog.client.export import ExportedRecord, Transaction, exported, record_line
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition
from twinlog.encoded import encoded
from twinlog.errors import BrokerRefused, CorruptData, Fate, FlowError
from twinlog.folders import own_opener, private_folder, private_opener, read_private
from twinlog.mirror.findings import Span
from twinlog.model import Isolation, TopicPartition
from twinlog.quantities import first_few

MANIFEST: Final = "manifest.json"
VERSION: Final = 1
TODO: Final = "save to another folder with --save"
PARTIAL: Final = ".partial"
_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-(?P<first>\d{20})-(?P<next>\d{20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """One saved file: its range of offsets, and the counts and hash of its contents on disk."""

    FIELDS = (
        "file=name topic=tp.topic partition=tp.partition from=span.first to=span.next records "
        "aborted bytes=size sha256"
    )

    name: str
    tp: TopicPartition
    span: Span
    records: int
    aborted: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The flow and the source cluster whose tail is saved in a folder."""

    version: int = VERSION
    flow: str
    source_cluster_id: str


class SavedTail:
    """A folder with a saved tail. Only one process can use it at a time."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self._folder = folder
        self._owner = owner

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if it does not exist, lock it, and write this flow's manifest.

        Raises FlowError if another run has locked the folder, or if the folder is not this flow's.
        Raises FolderNotPrivate if other users can access the folder.
        """
        with private_folder(self._folder, TODO) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FlowError(
                    f"{self._folder}: another twinlog failback saves there now: wait until it has "
                    "ended, and run the same command again",
                    code="SAVE_BUSY",
                ) from error
            is_owned = self._check_owner()
            for left in self._folder.glob(f"*{PARTIAL}"):  # incomplete files of runs that died
                left.unlink()
            if not is_owned:
                self._write([], [])
            yield

    def files(self) -> list[SavedFile]:
        """Return all files, sorted by partition and range. Each is read and compared with the
        manifest. Raises FlowError if a file is missing or has changed.
        """
        on_read = {str(entry["file"]): entry for entry in self._manifest().get("files", ())}
        files = [self._read(path) for path in self._paths()]
        if missing := sorted(on_read.keys() - {file.name for file in files}):
            raise self.mismatch_error(
                f"{missing[0]} is in {MANIFEST}, but not in the folder any more"
            )
        for file in files:
            if file.name in on_read and on_read[file.name]["sha256"] != file.sha256:
                raise self.mismatch_error(f"{file.name} has changed: its SHA-256 differs")
        return sorted(files, key=lambda file: (file.tp, file.span))

    def save(self, client: ClusterClient, tp: TopicPartition, span: Span, on_read: OnRead) -> Path:
        """Save the records in a range of offsets to a complete file. Return the file's path."""
        name = f"{tp.topic}-{tp.partition}-{span.first:020d}-{span.next:020d}.jsonl"
        path = self._folder / name
        records = read_tail(client, tp, span, on_read)
        lines = (record_line(tp.partition, record, with_batch=True) for record in records)
        partial = self._write_partial(name, lines)
        os.link(partial, path)  # unlike a rename, a link replaces nothing
        partial.unlink()
        _sync(self._folder)
        return path

    def write_manifest(
        self, files: Sequence[SavedFile], divergences: Sequence[Mapping[str, Any]]
    ) -> None:
        """Write the manifest with the files and each partition's divergence, as the last step of a
        save. Earlier entries of other partitions remain.
        """
        now = {(entry["topic"], entry["partition"]): entry for entry in divergences}
        before = {
            (entry["topic"], entry["partition"]): entry
            for entry in self._manifest().get("partitions", ())
        }
        on_read = before | now
        self._write([on_read[key] for key in sorted(on_read)], files)

    def _write(self, partitions: Sequence[Mapping[str, Any]], files: Sequence[SavedFile]) -> None:
        manifest = encoded(self._owner) | {"partitions": partitions, "files": encoded(files)}
        partial = self._write_partial(MANIFEST, [json.dumps(manifest, indent=1)])
        partial.replace(self._folder / MANIFEST)
        _sync(self._folder)

    def _write_partial(self, name: str, lines: Iterable[str]) -> Path:
        """Write the lines to a new file under the temporary name of file `name`."""
        partial = self._folder / (name + PARTIAL)
        with open(partial, "x", encoding="ascii", opener=private_opener) as out:
            out.writelines(f"{line}\n" for line in lines)
            out.flush()
            os.fsync(out.fileno())
        return partial

    def records(self, file: SavedFile) -> Iterator[Mapping[str, Any]]:
        """Read a saved file again, and yield its records as JSON objects."""
        with open(self._folder / file.name, "rb", opener=own_opener) as lines:
            for line in lines:
                yield json.loads(line)

    # -- reading the folder

    def _paths(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return [path for path in self._folder.glob("*.jsonl") if _NAME.fullmatch(path.stem)]

    def _read(self, path: Path) -> SavedFile:
        match = _NAME.fullmatch(path.stem)
        assert match is not None  # noqa: S101 (`_paths`)
        tp = TopicPartition(match["topic"], int(match["partition"]))
        span = Span(int(match["first"]), int(match["next"]))
        digest, records, aborted, size, last = hashlib.sha256(), 0, 0, 0, span.first - 1
        with open(path, "rb", opener=own_opener) as lines:
            for line in lines:
                digest.update(line)
                size += len(line)
                records += 1
                try:
                    fields = json.loads(line)
                    offset = int(fields["offset"])
                    if fields["partition"] != tp.partition or not last < offset < span.next:
                        raise CorruptData(f"offset {offset} of partition {fields['partition']}")
                    aborted += fields["transaction"] == Transaction.ABORTED
                except (ValueError, KeyError, TypeError, CorruptData) as error:
                    raise self.mismatch_error(
                        f"line {records} of {path.name} is no record of {tp} in {span}"
                    ) from error
                last = offset
        return SavedFile(
            name=path.name,
            tp=tp,
            span=span,
            records=records,
            aborted=aborted,
            size=size,
            sha256=digest.hexdigest(),
        )

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads(read_private(self._folder / MANIFEST))
            _ = [entry["sha256"] for entry in manifest["files"]], manifest["flow"]
            _ = [(entry["topic"], entry["partition"]) for entry in manifest["partitions"]]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise self.mismatch_error(f"{MANIFEST} cannot be read: {error!r}") from error
        return manifest

    def _check_owner(self) -> bool:
        """Return True if the manifest names this flow, and False if the folder has no saved files.
        Raises FlowError if the folder has another flow's manifest, or files without a manifest.
        """
        manifest = self._manifest()
        if not manifest and (paths := self._paths()):
            raise self.mismatch_error(
                f"the folder has {first_few(sorted(path.name for path in paths))}, but no "
                f"{MANIFEST}, so the origin of these records is unknown"
            )
        ours = encoded(self._owner)
        if manifest and any(manifest.get(key) != value for key, value in ours.items()):
            raise self.mismatch_error(
                f"the folder holds the tail of {manifest.get('flow')} from cluster "
                f"{manifest.get('source_cluster_id')}, expected {self._owner.flow} from "
                f"{self._owner.source_cluster_id}"
            )
        return bool(manifest)

    def mismatch_error(self, what: str) -> FlowError:
        """Return the error for a folder whose contents are not what this flow saved."""
        return FlowError(
            f"{self._folder}: {what}. Nothing was changed. Keep this folder as it is, and save to "
            "another folder with --save",
            code="SAVED_OTHERWISE",
        )


def uncovered_spans(span: Span, files: Sequence[SavedFile]) -> list[Span]:
    """Return the parts of an offset range that no file covers. `files`: the saved files of the
    partition.
    """
    out, at = [], span.first
    for file in sorted(files, key=lambda file: file.span):
        if file.span.first > at:
            out.append(Span(at, min(file.span.first, span.next)))
        at = max(at, file.span.next)
        if at >= span.next:
            break
    if at < span.next:
        out.append(Span(at, span.next))
    return [span for span in out if span.first < span.next]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


READ_BYTES: Final = 4 << 20

OnRead = Callable[[int], None]
"""Progress callback. Its argument is the offset up to which records were read."""


class TailCounts(Struct, kw_only=True):
    """Number of a tail's records, and their oldest and newest timestamps."""

    records: int = 0
    """Number of all records, including aborted ones."""
    aborted: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def add(self, record: ExportedRecord) -> None:
        self.records += 1
        self.aborted += record.transaction is Transaction.ABORTED
        at = record.record.timestamp
        self.oldest_ms = at if self.oldest_ms is None else min(self.oldest_ms, at)
        self.newest_ms = at if self.newest_ms is None else max(self.newest_ms, at)

    @property
    def valid(self) -> int:
        """Return the number of records that readers of committed records get."""
        return self.records - self.aborted


def read_tail(
    client: ClusterClient, tp: TopicPartition, span: Span, on_read: OnRead = lambda _: None
) -> Iterator[ExportedRecord]:
    """Yield the records in `span` in order, each with the outcome of its transaction.

    The span must be below the last stable offset, where every outcome is known and final. A tail
    with an open transaction is not read (`failback`).

    Raises FlowError (TAIL_MOVED) if the log no longer has the whole span, because retention is
    deleting it, or a leader lost it.
    """
    position = span.first
    while position < span.next:
        answer = _fetch(client, tp, position)
        before = position
        for records, position in exported(answer, span._replace(first=before)):
            yield from records
            if position == span.next:
                break
        on_read(position)
        if position == before:
            raise _position_moved_error(client, tp, position)


def _fetch(client: ClusterClient, tp: TopicPartition, position: int) -> FetchedRecords:
    isolation = Isolation.READ_COMMITTED
    try:
        return fetch_partition(client, tp, position, READ_BYTES, isolation=isolation)
    except BrokerRefused as refusal:
        if refusal.code != "OFFSET_OUT_OF_RANGE":
            raise
        raise _position_moved_error(client, tp, position) from refusal


def _position_moved_error(client: ClusterClient, tp: TopicPartition, position: int) -> FlowError:
    return FlowError(
        f"cluster {client.alias}: {tp} no longer has offset {position}: its retention "
        "now deletes the tail, or a leader lost it; raise retention.ms of the topic, and run the "
        "same command again",
        code="TAIL_MOVED",
        fate=Fate.RETRIABLE,
    )
