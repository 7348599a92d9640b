"""A mirror that takes over from a MirrorMaker 2 and kills itself (SIGKILL) at the point given on
the command line. The points are `some rows` (after it has written some rows of the offset map) and
`copying`. At the point `looked`, it stops (SIGSTOP) after its survey until it is resumed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.eventually import PATIENCE_S
from tests.support.mirror import Mirror
from twinlog.cluster.client import ClusterClient
from twinlog.control.adopt import adoption
from twinlog.mirror.map.offset_map import ChunkRow

POINTS = {"some rows": 1, "copying": None, "looked": None}
"""Number of map rows that are written before each point; None if all are written."""

_SURVIVES_S = PATIENCE_S / 2


def main(config: str, point: str) -> None:
    write_rows = adoption.write_rows

    def write(target: ClusterClient, topic: str, partitions: int, rows: Iterable[ChunkRow]) -> None:
        if not (known := list(rows)):
            return  # a later survey, which has found nothing more to adopt
        assert len(known) > 1 or point == "looked", "there is nothing to take over"
        write_rows(target, topic, partitions, islice(known, POINTS[point]))
        if point == "some rows":
            os.kill(os.getpid(), signal.SIGKILL)

    survey = adoption.Adopter.survey
    is_first = True

    def survey_and_stop(*arguments: Any) -> adoption.Adoption:
        nonlocal is_first
        found = survey(*arguments)
        if point == "looked" and is_first:
            is_first = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return found

    with (
        patch.object(adoption, "QUIET_S", 0.2),
        patch.object(adoption.Adopter, "survey", survey_and_stop),
        patch.object(adoption, "write_rows", write),
        Mirror(Path(config), adopt_mm2=True) as mirror,
    ):
        deadline = time.monotonic() + _SURVIVES_S
        while time.monotonic() < deadline:
            if point == "copying" and any(flow.records for flow in mirror.supervisor.snapshots()):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
