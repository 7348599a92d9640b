"""Which process ran a flow last, and whether it still runs, from its rows on the target and from
the processes of this host.
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

from twinlog.codes import FlowState
from twinlog.mirror.state.generations import FlowHistory
from twinlog.mirror.state.published import LIVE_MS, PublishedStatus
from twinlog.quantities import duration

CLOCKS_DIFFER_MS: Final = 2000
"""A process's start time is known to the second, and the wall clock may be adjusted."""


class LastRun(NamedTuple):
    """NOT_RUNNING, or UNKNOWN if the flow may be running."""

    state: FlowState
    text: str
    code: str = ""
    """PROCESS_GONE if no process runs it, and the last one did not report its end."""


def last_run(
    history: FlowHistory | None, status: PublishedStatus | None, now_ms: int, *, reports: bool
) -> LastRun:
    """Return how the flow last ran. `status` is the newest row of the status topic, which is not
    current. `reports` is whether the leader writes such rows, and they are readable.
    """
    latest = None if history is None else history.latest
    if latest is None or history is None:
        return LastRun(FlowState.NOT_RUNNING, "it has never run")
    where = f"{latest.host} (process {latest.pid})"
    if status is not None and status.generation < latest.generation:
        status = None
    # A generation that took over after a kill is not closed, because late requests of the previous
    # one may arrive. Its last row shows its end all the same.
    if history.is_closed or (status is not None and status.state == FlowState.STOPPED):
        return LastRun(FlowState.NOT_RUNNING, f"it last ran on {where} and was shut down cleanly")
    lives = lives_here(latest.host, latest.pid, latest.started_ms)
    if lives is False:
        return _gone(f"it last ran on {where}: that process has ended without reporting it")
    if lives:
        text = f"process {latest.pid} of this host leads it, but has not reported its state"
        return LastRun(FlowState.UNKNOWN, f"{text}: run this command as its user, with its file")
    return _elsewhere(where, status, now_ms, now_ms - latest.started_ms, reports=reports)


def _elsewhere(
    where: str, status: PublishedStatus | None, now_ms: int, age_ms: int, *, reports: bool
) -> LastRun:
    """Return the same for a process of another host; `age_ms` is the time since its start."""
    if not reports:
        text = f"it last ran on {where}, and has not reported its end: check on that host"
        return LastRun(FlowState.UNKNOWN, text)
    if status is None and abs(age_ms) < LIVE_MS:
        since = duration(max(0, age_ms) / 1000)
        text = f"{where} has led it for {since}, but has not reported its state yet"
        return LastRun(FlowState.UNKNOWN, text)
    silent = "" if status is None else f" for {duration(max(0, now_ms - status.at_ms) / 1000)}"
    return _gone(f"it last ran on {where}, without a report{silent}: killed, or disconnected")


def _gone(text: str) -> LastRun:
    code = "PROCESS_GONE"
    return LastRun(FlowState.NOT_RUNNING, f"{text} [{code}]", code)


def lives_here(host: str, pid: int, at_ms: int) -> bool | None:
    """Return whether the process with this pid at that time is alive, or None for other hosts."""
    import psutil

    if host != socket.gethostname():
        return None
    try:
        process = psutil.Process(pid)
        is_other = process.create_time() * 1000 > at_ms + CLOCKS_DIFFER_MS
        return not is_other and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):  # or the pid is invalid
        return False
    except psutil.Error:
        return True  # it exists, but inspection is denied
