"""Damages the files of a stopped broker as failing disks and unclean elections do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import BatchHeader, Codec, read_headers
from twinlog.wire.records import decode_batch, encode_batch

FIRST_SEGMENT = "00000000000000000000.log"


def log_file(cluster: LocalCluster, tp: TopicPartition, node: int = 1) -> Path:
    return cluster.data_folder(node) / str(tp) / FIRST_SEGMENT


def _batches(log: Path) -> Iterator[tuple[BatchHeader, int]]:
    """Yield the batches' headers with their positions in the file, without the preallocated
    space.
    """
    yield from read_headers(memoryview(bytearray(log.read_bytes())))


def cut_log(cluster: LocalCluster, tp: TopicPartition, offset: int, node: int = 1) -> None:
    """Truncate the log before the batch that begins at `offset`, as if the rest had never been
    written.
    """
    log = log_file(cluster, tp, node)
    at = next(at for header, at in _batches(log) if header.base_offset == offset)
    with log.open("r+b") as file:
        file.truncate(at)
    for derived in ("index", "timeindex", "snapshot"):
        for file_of in log.parent.glob(f"*.{derived}"):
            file_of.unlink()
    # the broker must recover the log from its files, instead of trusting the clean shutdown
    (log.parent.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)


def flip_byte(cluster: LocalCluster, tp: TopicPartition, offset: int, node: int = 1) -> None:
    """Invert the last byte of the batch that begins at `offset`, as a failing disk might."""
    log = log_file(cluster, tp, node)
    header, at = next((h, at) for h, at in _batches(log) if h.base_offset == offset)
    with log.open("r+b") as file:
        file.seek(at + header.length - 1)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0xFF]))


def spoil_length(cluster: LocalCluster, tp: TopicPartition, offset: int, node: int = 1) -> None:
    """Set the length of the batch that begins at `offset` to less than any batch has."""
    _write_length(log_file(cluster, tp, node), offset, 5)


def swell_length(cluster: LocalCluster, tp: TopicPartition, offset: int, node: int = 1) -> None:
    """Set the length of the batch that begins at `offset` to more than the log has."""
    _write_length(log_file(cluster, tp, node), offset, 0x10000000)


def _write_length(log: Path, offset: int, length: int) -> None:
    at = next(at for header, at in _batches(log) if header.base_offset == offset)
    with log.open("r+b") as file:
        file.seek(at + 8)
        file.write(length.to_bytes(4, "big"))


def swallow(cluster: LocalCluster, tp: TopicPartition, offset: int, node: int = 1) -> None:
    """Remove the batch that begins at `offset`, as compaction does. The batch before it is enlarged
    to fill the space.
    """
    log = log_file(cluster, tp, node)
    whole = memoryview(bytearray(log.read_bytes()))
    batches = list(read_headers(whole))
    index = next(i for i, (header, _) in enumerate(batches) if header.base_offset == offset)
    (header, at), (gone, gone_at) = batches[index - 1 : index + 1]
    room = gone_at + gone.length - at
    (record,) = decode_batch(whole[at : at + header.length])
    filler = room - header.length
    while True:
        larger = record._replace(value=(record.value or b"") + b"." * filler)
        encoded = encode_batch([larger], codec=Codec.NONE)
        if len(encoded) <= room:
            break
        filler -= 1
    assert len(encoded) == room
    with log.open("r+b") as file:
        file.seek(at)
        file.write(encoded)
