"""Runs `twinlog offsets rebuild`, which is killed (SIGKILL) after it has written a given number of
rows of the map.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.control.rebuild import map_rebuild
from twinlog.mirror.map import rebuilt_map
from twinlog.model import TopicPartition

SMALL_ROWS: Final[dict[str, Any]] = {"RUNS_PER_CHUNK": 40, "NEWEST_RUNS": 9, "RUNS_PER_ROW": 30}
"""Limits of a map row at a tenth of their usual size, so that few transactions suffice for several
rows.
"""


def main(config: str, rows: int) -> None:
    written = 0

    def write(
        client: ClusterClient, tp: TopicPartition, portion: Sequence[tuple[bytes, bytes]]
    ) -> None:
        nonlocal written
        if written == rows:
            os.kill(os.getpid(), signal.SIGKILL)
        written += 1
        append_rows(client, tp, portion)

    with patch.object(map_rebuild, "append_rows", write), patch.multiple(rebuilt_map, **SMALL_ROWS):
        run(["offsets", "rebuild", config, "--yes"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
