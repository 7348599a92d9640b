"""Who ran a flow last, and whether it still does, by what it left on the target and what this host
knows of its process.
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

from twinlog.codes import FlowState
from twinlog.mirror.state.generations import FlowHistory
from twinlog.mirror.state.published import LIVE_MS, PublishedStatus
from twinlog.quantities import duration

CLOCKS_DIFFER_MS: Final = 2000
"""A process knows its own start to the second, and the wall's clock may be set."""


class LastRun(NamedTuple):
    """NOT_RUNNING; or UNKNOWN, where it may run."""

    state: FlowState
    text: str
    code: str = ""
    """PROCESS_GONE: nobody runs it, and nobody said so."""


def last_run(
    history: FlowHistory | None, status: PublishedStatus | None, now_ms: int, *, reports: bool
) -> LastRun:
    """`status`: the newest row of the status topic, which is not of now; `reports`: whoever leads
    the flow writes such rows, and they can be read.
    """
    latest = None if history is None else history.latest
    if latest is None or history is None:
        return LastRun(FlowState.NOT_RUNNING, "it has never run")
    where = f"{latest.host} (process {latest.pid})"
    if status is not None and status.generation < latest.generation:
        status = None
    # a generation that took over after a kill is not closed: late requests of the one before it may
    # arrive. Its last row says that it ended all the same
    if history.is_closed or (status is not None and status.state == FlowState.STOPPED):
        return LastRun(FlowState.NOT_RUNNING, f"it last ran on {where} and ended in order")
    lives = lives_here(latest.host, latest.pid, latest.started_ms)
    if lives is False:
        return _gone(f"it last ran on {where}: that process is gone, and did not say that it ended")
    if lives:
        text = f"process {latest.pid} of this host leads it, and has not said how it is"
        return LastRun(FlowState.UNKNOWN, f"{text}: ask as its user, with its file")
    return _elsewhere(where, status, now_ms, now_ms - latest.started_ms, reports=reports)


def _elsewhere(
    where: str, status: PublishedStatus | None, now_ms: int, age_ms: int, *, reports: bool
) -> LastRun:
    """Of another host. `age_ms`: of its lead."""
    if not reports:
        text = f"it last ran on {where}, and has not said that it ended: ask on that host"
        return LastRun(FlowState.UNKNOWN, text)
    if status is None and abs(age_ms) < LIVE_MS:
        since = duration(max(0, age_ms) / 1000)
        text = f"{where} leads it since {since}, and has not said how it is yet"
        return LastRun(FlowState.UNKNOWN, text)
    silent = "" if status is None else f" for {duration(max(0, now_ms - status.at_ms) / 1000)}"
    return _gone(f"it last ran on {where}, which has said nothing{silent}: killed, or cut off")


def _gone(text: str) -> LastRun:
    code = "PROCESS_GONE"
    return LastRun(FlowState.NOT_RUNNING, f"{text} [{code}]", code)


def lives_here(host: str, pid: int, at_ms: int) -> bool | None:
    """Whether the process that had this number at that time lives; None: on another host."""
    import psutil

    if host != socket.gethostname():
        return None
    try:
        process = psutil.Process(pid)
        is_other = process.create_time() * 1000 > at_ms + CLOCKS_DIFFER_MS
        return not is_other and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):  # or there is no such number
        return False
    except psutil.Error:
        return True  # it is there, and not ours to inspect
