"""The files of a Spark checkpoint that determine where a query resumes, and how they are
rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from twinlog.client.group_translation import FlowTranslation, TranslatedOffset
from twinlog.client.spark_checkpoint import rewrite_checkpoint
from twinlog.errors import FlowError, UsageError
from twinlog.model import Flow, TopicPartition

FLOW = Flow("A", "B")
HEAD = 'v1\n{"batchWatermarkMs":0}\n'
OTHER = '{"logOffset":4}'


class Tenfold(FlowTranslation):
    """Multiplies each offset of `orders` by ten, up to 30. Nothing else was copied."""

    def __init__(self) -> None:
        pass

    def all_of(
        self, offsets: Mapping[TopicPartition, int], *, reverse: bool
    ) -> tuple[TranslatedOffset, ...]:
        assert not reverse
        return tuple(
            TranslatedOffset(
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                to_topic=f"A.{tp.topic}",
                to_offset=min(10 * offset, 300) if tp.topic == "orders" else None,
                is_exact=tp.topic == "orders" and offset <= 30,
            )
            for tp, offset in sorted(offsets.items())
        )


def kafka(**offsets: int) -> str:
    return json.dumps({"orders": {name[1:]: at for name, at in offsets.items()}})


def checkpoint(folder: Path, batches: Mapping[int, str], committed: int) -> Path:
    made = folder / "old"
    for name in ("offsets", "commits", "state/0"):
        (made / name).mkdir(parents=True)
    (made / "metadata").write_text('{"id":"7"}')
    (made / "state" / "0" / "1.delta").write_bytes(b"\0state")
    for batch, lines in batches.items():
        (made / "offsets" / str(batch)).write_text(HEAD + lines)
        (made / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in range(committed + 1):
        (made / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return made


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def rewritten(old: Path, *, may_repeat: bool = False) -> dict[str, bytes]:
    """Rewrite the checkpoint to the folder `new`, and return the content of the files in `new`."""
    new = old.with_name("new")
    rewrite_checkpoint(Tenfold(), FLOW, old, new, may_repeat=may_repeat)
    return files(new)


def test_the_newest_offsets_are_where_it_resumes(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, {0: kafka(p0=1), 1: f"{kafka(p0=3, p1=0)}\n{OTHER}"}, committed=1)
    before = files(old)
    new = rewritten(old)
    offsets = new.pop("offsets/1").decode()
    assert offsets == f'{HEAD}{{"A.orders":{{"0":30,"1":0}}}}\n{OTHER}'
    assert files(old) == before
    for name in ("offsets/1", "offsets/.1.crc"):
        del before[name]
    assert new == before


def test_a_micro_batch_that_is_repeated_has_its_rows(tmp_path: Path) -> None:
    """The start and the end of a micro-batch that Spark will repeat are both translated, so it has
    the same rows.
    """
    old = checkpoint(tmp_path, {4: kafka(p0=3), 5: kafka(p0=7, p1=2)}, committed=4)
    new = rewritten(old)
    assert new["offsets/4"].decode().splitlines()[2] == '{"A.orders":{"0":30}}'
    assert new["offsets/5"].decode().splitlines()[2] == '{"A.orders":{"0":70,"1":20}}'
    assert "commits/5" not in new


def test_an_offset_ahead_of_the_copy_is_refused_unless_records_may_be_repeated(
    tmp_path: Path,
) -> None:
    old = checkpoint(tmp_path, {0: kafka(p0=3, p1=31)}, committed=0)
    with pytest.raises(
        FlowError,
        match="orders-1: the checkpoint is at offset 31, but the mirror has not copied up to",
    ) as error:
        rewritten(old)
    assert error.value.code == "NOT_COPIED"
    new = rewritten(old, may_repeat=True)
    assert new["offsets/0"].decode().splitlines()[2] == '{"A.orders":{"0":30,"1":300}}'


@pytest.mark.parametrize(
    ("batches", "committed", "says"),
    [
        ({}, -1, "is not a checkpoint of a stream that has started"),
        ({0: kafka(p0=3)}, -1, "newest planned batch: 0, newest committed batch: none"),
        ({7: kafka(p0=3)}, 5, "newest planned batch: 7, newest committed batch: 5"),
        ({3: kafka(p0=3), 5: kafka(p0=4)}, 3, "newest planned batch: 5, newest committed batch: 3"),
    ],
)
def test_checkpoints_without_a_position_to_resume_at(
    tmp_path: Path, batches: Mapping[int, str], committed: int, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        rewritten(checkpoint(tmp_path, batches, committed))
    assert not (tmp_path / "new").exists()


def test_another_format_is_not_guessed_at(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, {0: kafka(p0=3)}, committed=0)
    (old / "offsets" / "0").write_text(f"v2\n{{}}\n{kafka(p0=3)}")
    with pytest.raises(UsageError, match="its format is not v1"):
        rewritten(old)


def test_other_topics_alone_are_no_query_of_the_flow(tmp_path: Path) -> None:
    others = f'{OTHER}\n-\n{{"payments":{{"0":3}}}}'
    with pytest.raises(FlowError, match="no source of this query reads a topic that the flow"):
        rewritten(checkpoint(tmp_path, {0: others}, committed=0))
    mixed = checkpoint(tmp_path / "mixed", {0: '{"orders":{"0":1},"payments":{"0":3}}'}, 0)
    with pytest.raises(
        FlowError,
        match="payments-0: the checkpoint is at offset 3, and Twinlog has copied nothing of",
    ):
        rewritten(mixed)


def test_nothing_that_is_there_is_written_to(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, {0: kafka(p0=3)}, committed=0)
    (tmp_path / "new").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        rewritten(old)
    assert files(tmp_path / "new") == {}
