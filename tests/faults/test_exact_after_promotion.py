"""After a promotion, offsets are translated exactly even if the flow's producer ID has expired."""

from __future__ import annotations

import json

import pytest

from tests.support.client import Outgoing, produce
from tests.support.rig import OLD, Rig
from twinlog.cli.main import run
from twinlog.client import MirrorClient, Translation

pytestmark = [pytest.mark.faults, pytest.mark.broker]

COPIED = 10
WHAT = {
    "flow": ("flow", "promote", "--yes"),
    "topic": ("topic", "promote"),
    "release": ("topic", "release"),
}


def copied(rig: Rig) -> None:
    """Copy ten old records, so that the target expires their producer ID within a second."""
    rig.create()
    rig.put(range(COPIED), age_ms=OLD)
    rig.copy_once()
    rig.forgotten()


def translated(rig: Rig, offset: int, capsys: pytest.CaptureFixture[str]) -> Translation:
    """Return the target offset, after checking that `MirrorClient` and `offsets translate` report
    the same.
    """
    words = ["offsets", "translate", str(rig.config()), "--topic", rig.topic]
    with MirrorClient({"bootstrap.servers": rig.target.bootstrap}) as client:
        found = client.to_downstream(rig.alias, {rig.here: offset})[rig.there]
    capsys.readouterr()
    assert run([*words, "--offset", str(offset), "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["offsets"]
    assert Translation(line["to_offset"], line["is_exact"]) == found
    return Translation(*found)


@pytest.mark.witness(
    "records of new owners are not translated after the producer ID has expired", case="flow"
)
@pytest.mark.parametrize("what", WHAT)
def test_new_owners_records_are_no_counterparts_of_source_records(
    rig: Rig, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(rig)
    topics = () if what == "flow" else ("--topics", rig.topic)
    assert run([*WHAT[what], str(rig.config()), *topics, "--reason", "the source is lost"]) == 0
    produce(rig.target, rig.remote, [Outgoing(value=b"new")] * 5)
    for offset in range(COPIED + 1):
        assert translated(rig, offset, capsys) == (offset, True)
    for offset in (COPIED + 1, COPIED + 3, COPIED + 100):
        assert translated(rig, offset, capsys) == (COPIED, False)
    with MirrorClient({"bootstrap.servers": rig.target.bootstrap}) as client:
        for offset in range(COPIED + 1):
            found = client.to_upstream(rig.alias, {rig.there: offset})
            assert found[rig.here] == (offset, True)
        found = client.to_upstream(rig.alias, {rig.there: COPIED + 2})
        assert found[rig.here] == (COPIED, False)


def test_whole_log_is_translated_if_no_other_client_may_write_to_the_topic(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(rig)
    for offset in range(COPIED + 1):
        assert translated(rig, offset, capsys) == (offset, True)
    assert translated(rig, COPIED + 1, capsys) == (COPIED, False)
