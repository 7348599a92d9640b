"""The drill's application: a thread that writes numbered records, and one that reads and commits.

Record n of a partition has the key n. The writer counts acknowledged records. If a response is
lost, the end of the log shows how many records arrived, since no other client writes there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets, fetch_offsets
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import ends_of_logs, read_to_end
from twinlog.errors import Fate, TwinlogError, Unauthorized, or_raise
from twinlog.model import TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

ROUND_S: Final = 0.05
AGAIN_S: Final = 0.5


class DrillClient:
    """Works in its own thread until it is stopped."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill-client", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask the thread to end; does not wait."""
        self._end.set()

    def end(self) -> None:
        """Stop the thread, wait for its end, and raise its error, if any."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with ClusterClient(self._settings) as client:
                self._work(client)
        except Exception as error:  # noqa: BLE001 (`check` raises it)
            self.error = error

    def _work(self, client: ClusterClient) -> None:
        raise NotImplementedError


class DrillWriter(DrillClient):
    """Writes the numbers of each partition in order."""

    def __init__(
        self,
        settings: ClusterSettings,
        first: Mapping[TopicPartition, int],
        *,
        records_per_s: float,
        record_bytes: int,
    ) -> None:
        """`first`: each partition's first number."""
        super().__init__(settings)
        self.written = dict(first)
        """How many numbers of each partition are acknowledged, including those before `first`."""
        self.first_at: dict[TopicPartition, float] = {}
        """When each partition's first record was acknowledged; monotonic seconds."""
        self.refused_at: float | None = None
        """When a broker first rejected a record, which ends the writer; monotonic seconds."""
        self._acked: dict[TopicPartition, list[tuple[int, float]]] = {tp: [] for tp in first}
        self._value = b"." * record_bytes
        self._at_once = max(1, round(records_per_s * ROUND_S / max(1, len(first))))
        self._pause_s = len(first) * self._at_once / records_per_s

    def acked_at(self, tp: TopicPartition, number: int, otherwise: float) -> float:
        """Return the monotonic time of a record's acknowledgement, or `otherwise` if none came."""
        return next((at for end, at in self._acked[tp] if end > number), otherwise)

    @property
    def is_writing(self) -> bool:
        """Every partition has accepted a record."""
        return len(self.first_at) == len(self.written)

    def _work(self, client: ClusterClient) -> None:
        before = {tp: end - self.written[tp] for tp, end in _ends(client, self.written).items()}
        while not self._end.wait(self._pause_s):
            for tp in self.written:
                try:
                    produce_batch(client, tp, self._batch(tp))
                    self.written[tp] += self._at_once
                except Unauthorized:
                    self.refused_at = time.monotonic()
                    return
                except TwinlogError as error:
                    if error.fate is not Fate.RETRIABLE:
                        raise
                    self._end.wait(AGAIN_S)
                    self.written[tp] = _ends(client, [tp])[tp] - before[tp]
                    continue
                now = time.monotonic()
                self._acked[tp].append((self.written[tp], now))
                self.first_at.setdefault(tp, now)

    def _batch(self, tp: TopicPartition) -> bytes:
        first, now_ms = self.written[tp], int(time.time() * 1000)
        records = [
            Record(offset=at, timestamp=now_ms, key=b"%d" % (first + at), value=self._value)
            for at in range(self._at_once)
        ]
        return bytes(encode_batch(records, codec=Codec.NONE))


class DrillReader(DrillClient):
    """Reads topics of one group from its offsets, and commits what it has read."""

    def __init__(
        self, settings: ClusterSettings, group: str, tps: Sequence[TopicPartition]
    ) -> None:
        super().__init__(settings)
        self._group = group
        self._tps = tps
        self._is_cut = False
        self.read: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
        """Numbers in the order in which they were read."""
        self.resumed: dict[TopicPartition, int] = {}
        """The offsets at which it began."""

    def cut(self) -> None:
        """Treat the cluster as lost: read and commit nothing more."""
        self._is_cut = True
        self.end()

    def _work(self, client: ClusterClient) -> None:
        there = Coordinators(client)
        found = or_raise(fetch_offsets(there, [self._group])[self._group])
        position = {tp: found[tp].offset if tp in found else 0 for tp in self._tps}
        self.resumed = dict(position)
        is_over = False
        while not is_over:  # one more round after the end, to read all records
            is_over = self._end.wait(ROUND_S)
            if self._is_cut:
                return
            try:
                for tp in self._tps:
                    for record in read_to_end(client, tp.topic, tp.partition, position[tp]):
                        self.read[tp].append(number_of(record))
                        position[tp] = record.offset + 1
                offsets = {tp: Committed(offset=at) for tp, at in position.items()}
                (answer,) = commit_offsets(there, {self._group: offsets}).values()
                for one in [answer] if isinstance(answer, TwinlogError) else answer.values():
                    if one is not None:
                        raise one
            except TwinlogError as error:
                if error.fate is not Fate.RETRIABLE or is_over:
                    raise
                self._end.wait(AGAIN_S)


def numbers_in(client: ClusterClient, tp: TopicPartition) -> list[int]:
    """Return the numbers of all records of a partition, in order."""
    return [number_of(record) for record in read_to_end(client, tp.topic, tp.partition)]


def number_of(record: Record) -> int:
    """Return a record's number, or -1 if the drill did not write it."""
    key = bytes(record.key or b"")
    return int(key) if key.isdigit() else -1


def _ends(client: ClusterClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return client.retrying(lambda: ends_of_logs(client, tps))
