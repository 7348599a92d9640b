"""Whether a flow runs, derived from its rows on the target and from the processes on this host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.snapshots import PUBLISHED
from twinlog.codes import FlowState
from twinlog.control.check.reported_status import current_status, is_running_here, last_run
from twinlog.control.watch.status_file import status_folder, write_status
from twinlog.mirror.state.generations import Claim, FlowHistory
from twinlog.mirror.state.published import PublishedStatus

HERE = socket.gethostname()
NOW_MS = PUBLISHED.at_ms + 200_000


def history(*, host: str = "east-1", pid: int = 77, is_closed: bool = False) -> FlowHistory:
    claim = Claim(
        flow="A->B",
        generation=4,
        claimant="c",
        producer_id=1,
        meaning="m",
        host=host,
        pid=pid,
        started_ms=int(time.time() * 1000),
        source_cluster_id="s",
        target_cluster_id="t",
    )
    return FlowHistory(latest=claim, is_closed=is_closed)


@pytest.fixture
def gone() -> int:
    """Return the ID of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_leader_that_took_over_just_now_is_not_gone() -> None:
    known = history()
    assert known.latest is not None
    began_ms = known.latest.started_ms
    state, text, code = last_run(known, None, began_ms + 9000, reports=True)
    assert (state, code) == ("UNKNOWN", "")
    assert text.startswith("east-1 (process 77) has led it for 9")
    assert last_run(known, None, began_ms + 60_000, reports=True).code == "PROCESS_GONE"


@pytest.mark.parametrize(
    ("known", "status", "reports", "state", "said"),
    [
        (None, None, True, "NOT_RUNNING", "it has never run"),
        (history(is_closed=True), None, False, "NOT_RUNNING", "was shut down cleanly"),
        (
            history(),
            structs.replace(PUBLISHED, state="STOPPED"),
            True,
            "NOT_RUNNING",
            "was shut down cleanly",
        ),
        (history(), PUBLISHED, True, "NOT_RUNNING", "without a report for 3 min 20 s"),
        (history(), None, True, "NOT_RUNNING", "without a report: it was killed, or is"),
        (history(), None, False, "UNKNOWN", "check on that host"),
    ],
)
def test_of_another_host(
    known: FlowHistory | None, status: PublishedStatus | None, reports: bool, state: str, said: str
) -> None:
    found = last_run(known, status, NOW_MS, reports=reports)
    assert found.state == state
    assert said in found.text
    assert "it runs on" not in found.text
    # a process that was shut down cleanly, or never began, needs no attention
    assert (found.code == "PROCESS_GONE") == ("without a report" in found.text)


def test_the_end_of_the_generation_before_is_not_its_own() -> None:
    before = structs.replace(PUBLISHED, state="STOPPED", generation=3)
    assert "was shut down cleanly" not in last_run(history(), before, NOW_MS, reports=True).text


def test_process_of_this_host_that_is_gone_was_killed(gone: int) -> None:
    found = last_run(history(host=HERE, pid=gone), None, NOW_MS, reports=False)
    assert found.state is FlowState.NOT_RUNNING
    assert found.code == "PROCESS_GONE"
    assert found.text == (
        f"it last ran on {HERE} (process {gone}), which ended without reporting its end "
        "[PROCESS_GONE]"
    )


def test_process_of_this_host_that_lives_may_run_it() -> None:
    found = last_run(history(host=HERE, pid=os.getpid()), None, NOW_MS, reports=True)
    assert found.state is FlowState.UNKNOWN
    assert f"process {os.getpid()} of this host leads it" in found.text


def test_number_that_another_process_has_now_is_no_life() -> None:
    assert is_running_here(HERE, os.getpid(), int(time.time() * 1000)) is True
    assert is_running_here(HERE, os.getpid(), 1_000_000_000_000) is False
    assert is_running_here("elsewhere", os.getpid(), 0) is None


def test_row_of_a_process_that_is_gone_counts_until_its_next_is_due(gone: int) -> None:
    row = structs.replace(PUBLISHED, host=HERE, pid=gone)
    soon, late = row.at_ms + row.every_ms, row.at_ms + 3 * row.every_ms
    assert current_status(row, None, soon) is row
    assert current_status(row, None, late) is None
    assert current_status(PUBLISHED, None, late) is PUBLISHED, "on another host it may only be slow"


def test_row_of_a_mirror_of_this_user_that_is_gone_does_not_count(
    gone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    row = structs.replace(PUBLISHED, host=HERE, pid=gone)
    soon = row.at_ms + 1
    assert current_status(row, None, soon) is row, "a container may have the name of this host"
    for pid in (gone, os.getpid()):
        write_status(status_folder() / f"{pid}.events", "{}")
    assert current_status(row, None, soon) is None
    before = structs.replace(row, pid=os.getpid(), at_ms=1_000_000_000_000)
    assert current_status(before, None, before.at_ms + 1) is None, "its number is another's now"
    lives = structs.replace(row, pid=os.getpid(), at_ms=int(time.time() * 1000))
    assert current_status(lives, None, lives.at_ms + 1) is lives
