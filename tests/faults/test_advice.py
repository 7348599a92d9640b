"""The command in an error message saves the records that it names, before any deletion."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.rig import Rig
from tests.support.surgery import cut_log
from tests.support.topics import create_topic, delete_records, delete_topic
from twinlog.cli.main import run

pytestmark = [pytest.mark.faults, pytest.mark.broker]

COMMAND = re.compile(r"twinlog (export FILE .*?--output \S+?)(?=[;:.,]? |[;:.,]?$)")


def saved(rig: Rig, message: str, folder: Path) -> list[str]:
    """Return the values of the records that the message's command saves."""
    found = COMMAND.search(message)
    assert found is not None, message
    assert found.start() < message.index("delete the target topic"), message
    arguments = shlex.split(found[1])
    assert f"--flow {rig.flow}" in " ".join(arguments)
    arguments[1] = str(rig.config())
    path = folder / arguments[-1]
    arguments[-1] = str(path)
    assert run(arguments) == 0
    return [json.loads(line)["value"] for line in path.read_text().splitlines()]


def values(*numbers: int) -> list[str]:
    return [f"u{n}" for n in numbers]


@pytest.mark.witness("the recommended command saves foreign records")
def test_foreign_data(rig: Rig, tmp_path: Path) -> None:
    rig.create()
    rig.put(range(10))
    create_topic(rig.target, rig.remote)
    produce(rig.target, rig.remote, [Outgoing(b"x", b"u900"), Outgoing(b"x", b"u901")])
    code, message = rig.fail_once()
    assert code == "FOREIGN_DATA"
    assert saved(rig, message, tmp_path) == values(900, 901)


def test_extra_records_found_by_a_running_copy(rig: Rig, tmp_path: Path) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        produce(rig.target, rig.remote, [Outgoing(b"x", b"u900"), Outgoing(b"x", b"u901")])
        rig.put(range(10, 20))
        (part,) = mirror.eventually(lambda parts: parts[0].code == "EXTRA_RECORDS")
        assert saved(rig, part.message, tmp_path) == values(900, 901), "while the mirror runs"
        mirror.stop()


def test_extra_records_found_at_a_start_and_records_only_on_the_target(
    rig: Rig, tmp_path: Path
) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    delete_records(rig.source, rig.topic, before=7)
    produce(rig.target, rig.remote, [Outgoing(b"x", b"u900")])
    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS"
    assert "the source holds upstream offsets [7, 10), the target holds [0, 11)" in message
    assert "of which [0, 7) are on the target only" in message
    assert saved(rig, message, tmp_path) == values(*range(10), 900)


@pytest.mark.witness("the recommended command saves the copy of a topic that was created again")
def test_source_recreated(rig: Rig, tmp_path: Path) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    delete_topic(rig.source, rig.topic)
    rig.create()
    rig.put(range(100, 120))
    code, message = rig.fail_once()
    assert code == "SOURCE_RECREATED"
    assert "the only copy" in message
    assert saved(rig, message, tmp_path) == values(*range(10))


@pytest.mark.parametrize("is_refilled", [False, True], ids=["shorter", "refilled"])
def test_source_diverged(rig: Rig, tmp_path: Path, is_refilled: bool) -> None:
    rig.create()
    for at in range(0, 50, 10):
        rig.put(range(at, at + 10))
    rig.copy_once()
    rig.source.kill(1)
    cut_log(rig.source, rig.here, 30)
    rig.source.restart(1)

    def refill() -> bool:
        # refused until the restarted broker knows that it leads the partition
        rig.put(range(1030, 1080))
        return True

    if is_refilled:
        eventually(refill)
    code, message = rig.fail_once()
    assert code == "SOURCE_DIVERGED"
    assert "[30, 50)" in message
    assert saved(rig, message, tmp_path) == values(*range(30, 50)), "exactly what was lost"


def test_source_truncated_has_nothing_to_save(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    rig.put(range(10, 50))
    delete_records(rig.source, rig.topic, before=30)
    code, message = rig.fail_once()
    assert code == "SOURCE_TRUNCATED"
    assert "[10, 30)" in message
    assert "neither side has them" in message
    assert "export" not in message
