"""A source's response may arrive after its partition was started again. The new copy must not use
this response.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.broker]

HOLDS_AN_ANSWER = """
import os
from twinlog.errors import Fate, PartitionError
from twinlog.lane.sides.source_side import SourceSide
from twinlog.mirror.copy.partition import PartitionCopy

FOLDER = {folder!r}
read, add, assign = SourceSide.on_readable, SourceSide.add, SourceSide._assign_brokers
send = PartitionCopy.next_batch
late, again = [], []

class Again:
    def __init__(self, connection, answers):
        self._connection, self._answers = connection, answers

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def receive(self):
        return iter(self._answers)

def holds():
    return os.path.exists(FOLDER + "/hold") and not again

def next_batch(self, now_ms):
    return None if holds() else send(self, now_ms)

def on_readable(self, node, connection):
    if not holds():
        return read(self, node, connection)
    answers = [(one, memoryview(bytearray(view))) for one, view in connection.receive()]
    states = list(self.partitions.values())
    has_records = any(len(view) > 150 for _, view in answers)
    if has_records and states and states[0].copy.intake.position == 20:
        late.append((node, Again(connection, answers)))
        error = PartitionError("its target broke", code="TARGET_DISCONNECTED", fate=Fate.RETRIABLE)
        states[0].copy.stop(error, 0)
        return
    read(self, node, Again(connection, answers))
    if states and states[0].copy.intake.position == 20:
        open(FOLDER + "/has-read", "w").close()

def add_(self, copy):
    add(self, copy)
    again.extend(late[:1])

def assign_brokers(self):
    assign(self)
    if again and late and any(one.node >= 0 for one in self.partitions.values()):
        open(FOLDER + "/was-late", "w").close()
        read(self, *late.pop())

SourceSide.on_readable, SourceSide.add = on_readable, add_
SourceSide._assign_brokers = assign_brokers
PartitionCopy.next_batch = next_batch
"""


@pytest.mark.witness("a late response does not affect the new copy")
def test_a_fetch_of_an_earlier_copy_is_no_gap_of_the_source(rig: Rig, tmp_path: Path) -> None:
    """A partition is started again while a response to the earlier copy's fetch is late. The next
    copy fetches the same records again. The late response must not look like a gap of the source.
    """
    rig.create()
    rig.put(range(10))
    with rig.mirror(prelude=HOLDS_AN_ANSWER.format(folder=str(tmp_path))) as mirror:
        rig.copied(10)
        (tmp_path / "hold").touch()
        rig.put(range(10, 20))
        eventually((tmp_path / "has-read").exists)
        rig.put(range(20, 30))
        eventually((tmp_path / "was-late").exists)
        rig.copied(30)
        mirror.eventually(lambda parts: (parts[0].lag, parts[0].code) == (0, ""))
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()
