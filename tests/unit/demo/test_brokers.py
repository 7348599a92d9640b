"""Why a broker of the demo has ended, according to its log or its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinlog.demo.run import end_message

FOLDER = Path("/scratch/twinlog-us-1")
ROOM = 10**10
ENDED = "12:00:01.123 ERROR LogDirFailureChannel: Error while appending records to orders-0\n"
HALTS = "12:00:01.200 ERROR LogManager: Shutdown broker because all log dirs have failed\n"
FULL = f"{ENDED}java.io.IOException: No space left on device\n\tat sun.nio.X\n{HALTS}"
MAKE_ROOM = "; make room on the disk of /scratch, or set TMPDIR to a folder with room, and start it"


@pytest.mark.parametrize(
    ("log", "free", "says"),
    [
        (FULL, ROOM, f"No space left on device{MAKE_ROOM}"),
        ("", 8192, f"its disk has 8.2 KB left{MAKE_ROOM}"),
        (ENDED + HALTS, ROOM, "Shutdown broker because all log dirs have failed; fix this cause"),
        ("Exception: java.lang.OutOfMemoryError: heap\n", ROOM, "java.lang.OutOfMemoryError: heap"),
        (
            f"{ENDED}12:00:02.000 WARN Metadata: no\n",
            ROOM,
            "its log has no reason, so it was probably killed",
        ),
    ],
)
def test_one_line_names_broker_reason_and_remedy(log: str, free: int, says: str) -> None:
    said = end_message("us", f"--- us, node 1 ---\n{log}", FOLDER, free)
    assert said.startswith("the demo's broker of us ended: ")
    assert says in said
    assert said.endswith("and start it again")
    assert "\n" not in said
