"""Reads current reports from the target. They are written by the process that leads a flow, on any
host. If no process leads the flow, a process that fails to set it up writes them.
"""

from __future__ import annotations

import json
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.codes import FlowState
from twinlog.control.watch.events import is_local_mirror
from twinlog.errors import CorruptData
from twinlog.mirror.names.naming import STATE_TOPIC, STATUS_TOPIC
from twinlog.mirror.state.generations import CLAIMS, FlowHistory, winning_claims
from twinlog.mirror.state.intents import INTENT, FlowIntents, flow_intents, is_intent_row
from twinlog.mirror.state.published import (
    LIVE_MS,
    PublishedEvents,
    PublishedStatus,
    failed_set_up,
    published_events,
    published_status,
)
from twinlog.mirror.state.rows import NO_ROWS, StateRows
from twinlog.mirror.state.state_row import Rows, row_key
from twinlog.mirror.state.verified import VERIFIED, VerifyRun, verify_runs
from twinlog.quantities import duration
from twinlog.survey.rights import is_permitted
from twinlog.survey.state_reader import rows_since, state_rows
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

# Which process ran a flow last, and whether it still runs, from its rows on the target and from the
# processes of this host.

CLOCKS_DIFFER_MS: Final = 2000
"""Tolerance of start times in ms: a process's start time is known only to the second, and the wall
clock may be adjusted.
"""


class LastRun(NamedTuple):
    """The last run of a flow: NOT_RUNNING, or UNKNOWN if the flow may be running."""

    state: FlowState
    text: str
    code: str = ""
    """PROCESS_GONE if no process runs the flow, and the last process has not reported its end."""


def last_run(
    history: FlowHistory | None, status: PublishedStatus | None, now_ms: int, *, reports: bool
) -> LastRun:
    """Return how the flow last ran. `status`: the newest row of the status topic, assumed to be
    outdated. `reports`: True if the leader writes such rows and this user can read them.
    """
    latest = None if history is None else history.latest
    if latest is None or history is None:
        return LastRun(FlowState.NOT_RUNNING, "it has never run")
    where = f"{latest.host} (process {latest.pid})"
    if status is not None and status.rank < latest.generation:
        status = None
    # A leader that took over after a kill does not write the end of its generation, because late
    # requests of the previous generation may arrive. So its last status row is needed to show the
    # end.
    if history.is_closed or (status is not None and status.state == FlowState.STOPPED):
        return LastRun(FlowState.NOT_RUNNING, f"it last ran on {where} and was shut down cleanly")
    lives = is_running_here(latest.host, latest.pid, latest.started_ms)
    if lives is False:
        return _process_gone(f"it last ran on {where}, which ended without reporting its end")
    if lives:
        text = f"process {latest.pid} of this host leads it, but has not reported its state"
        return LastRun(
            FlowState.UNKNOWN, f"{text}: run this command as that process's user, with its file"
        )
    return _on_other_host(where, status, now_ms, now_ms - latest.started_ms, reports=reports)


def _on_other_host(
    where: str, status: PublishedStatus | None, now_ms: int, age_ms: int, *, reports: bool
) -> LastRun:
    """Return the last run if its process is on another host. `age_ms`: the time since its start."""
    if not reports:
        text = f"it last ran on {where}, and has not reported its end: check on that host"
        return LastRun(FlowState.UNKNOWN, text)
    if status is None and abs(age_ms) < LIVE_MS:
        since = duration(max(0, age_ms) / 1000)
        text = f"{where} has led it for {since}, but has not reported its state yet"
        return LastRun(FlowState.UNKNOWN, text)
    silent = "" if status is None else f" for {duration(max(0, now_ms - status.at_ms) / 1000)}"
    return _process_gone(
        f"it last ran on {where}, without a report{silent}: it was killed, or is disconnected"
    )


def _process_gone(text: str) -> LastRun:
    code = "PROCESS_GONE"
    return LastRun(FlowState.NOT_RUNNING, f"{text} [{code}]", code)


def is_running_here(host: str, pid: int, at_ms: int) -> bool | None:
    """Return True if this host had a process with this pid at `at_ms`, and the process is still
    alive. Return None for other hosts.
    """
    import psutil

    if host != socket.gethostname():
        return None
    try:
        process = psutil.Process(pid)
        is_other = process.create_time() * 1000 > at_ms + CLOCKS_DIFFER_MS
        return not is_other and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):  # no process has this pid, or the pid is invalid
        return False
    except psutil.Error:
        return True  # the process exists, but this user is not permitted to inspect it


WRITTEN_WITHIN_MS: Final = 600_000
"""Maximum age in ms of rows of the status topic that are read. It is far above the age of any
current row, whatever the hosts' clocks show.
"""

_UNREADABLE: Final = (
    *(CorruptData, LookupError, TypeError, ValueError, AttributeError, RecursionError),
)
"""Errors that malformed rows cause, because readers of the state topic trust the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFlow:
    """The report of one flow's leader, and the commands in effect."""

    status: PublishedStatus | None
    """The status that the flow's leader reports, or a process that fails to set up the flow. None
    if no process reports a status.
    """
    intents: FlowIntents | None
    """The intents of the flow, or None if they are unknown."""
    run: LastRun | None = None
    """How the flow last ran, if there is no status; None if unknown."""
    verify_runs: tuple[VerifyRun, ...] | None = None
    """The last results of `twinlog verify`, newest first; None if unknown."""
    problem: str = ""
    """Why a part of the report is unknown; empty if all of it is known."""
    events: tuple[PublishedEvents, ...] = ()
    """Events of the last minutes from the flow's leaders."""


def reports_of(
    flows: Mapping[str, bool], target: ClusterSettings, now_ms: int, give_up_s: float
) -> dict[str, ReportedFlow]:
    """Return the reports of flows into one cluster. `flows`: by name, True if the leader writes
    reports by the configuration. Raises TwinlogError if the cluster cannot be queried. If only the
    rows of one flow cannot be read, the report of that flow has the problem.
    """
    with ClusterClient(target, api_timeout_s=give_up_s) as client:
        # only these two topics, because every open page repeats the query, also for large clusters
        at_target = client.metadata([STATE_TOPIC, STATUS_TOPIC])
        error = at_target.topics[STATE_TOPIC].error
        state: StateRows | None = NO_ROWS
        if error == TOPIC_AUTHORIZATION_FAILED:
            state = None
        elif error != UNKNOWN_TOPIC_OR_PARTITION:
            state = state_rows(client)
        status = status_rows(client, at_target, now_ms)
    of_status = _by_flow(status or ())
    return {
        flow: _report(
            flow,
            None if state is None else state.of_alone(flow, *CLAIMS, INTENT, VERIFIED),
            of_status(flow),
            now_ms,
            reports=reports and status is not None,
        )
        for flow, reports in flows.items()
    }


def _by_flow(rows: Rows) -> Callable[[str], Rows]:
    """Return a function that returns the rows of a flow. The rows are grouped in one pass, because
    there may be a thousand flows. A row with an unreadable key may belong to any flow, so every
    flow gets it.
    """
    named: defaultdict[str, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    unread: list[tuple[bytes | None, bytes | None]] = []
    for key, value in rows:
        try:
            flow = json.loads(key or b"null")[1]
        except (ValueError, LookupError, TypeError, RecursionError):
            unread.append((key, value))
            continue
        if isinstance(flow, str):
            named[flow].append((key, value))
    return lambda flow: [*named.get(flow, ()), *unread]


def _report(
    flow: str, state: Rows | None, status: Rows, now_ms: int, *, reports: bool
) -> ReportedFlow:
    """Return the report of one flow. Only its own rows are evaluated, because rows of other flows
    may be of a later release. `state`: rows of the state topic, or None if unreadable.
    """
    problems: list[str] = []
    intents, newest, history, run = None, None, None, None
    events: tuple[PublishedEvents, ...] = ()
    try:
        events = published_events(flow, status)
    except CorruptData as error:
        problems.append(str(error))
    try:
        newest = published_status(flow, status)
    except CorruptData as error:
        problems.append(str(error))
    if state is None:
        problems.append(f"the commands in effect are unknown: grant READ on topic {STATE_TOPIC}")
    else:
        try:
            intents = flow_intents(flow, state)
        except _UNREADABLE as error:
            problems.append(f"the commands in effect cannot be read: {_in_words(error)}")
        try:
            history = winning_claims(_claims(flow, state)).get(flow)
            run = last_run(history, newest, now_ms, reports=reports)
        except _UNREADABLE as error:
            problems.append(f"the flow's last process cannot be read: {_in_words(error)}")
    now = current_status(newest, history, now_ms)
    if now is None and run is not None and intents is not None and intents.promotion is None:
        try:
            now = current_set_up(failed_set_up(flow, status), history, run, now_ms)
        except CorruptData as error:
            problems.append(str(error))
    return ReportedFlow(
        status=now,
        intents=intents,
        run=None if now else run,
        events=events,
        verify_runs=None if state is None else verify_runs(flow, state),
        problem="; ".join(problems),
    )


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, CorruptData) else repr(error)


def _claims(flow: str, state: Rows) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the rows of this flow other than intents."""
    begin = row_key("flow", flow).removesuffix(b"]") + b","
    for key, value in state:
        if key is not None and key.startswith(begin) and not is_intent_row(key, flow):
            yield key, value


def status_rows(target: ClusterClient, at_target: ClusterMetadata, now_ms: int) -> Rows | None:
    """Return recent rows of the status topic, or None if the topic is missing or unreadable."""
    if not is_permitted(at_target, STATUS_TOPIC, Operation.READ):
        return None
    return rows_since(target, now_ms - WRITTEN_WITHIN_MS)


def current_status(
    status: PublishedStatus | None, history: FlowHistory | None, now_ms: int
) -> PublishedStatus | None:
    """Return the newest row if its writer currently leads the flow, else None."""
    if status is None or not _is_fresh(status, now_ms):
        return None
    # outdated if a later generation leads now, which has not written a row yet
    latest = None if history is None else history.latest
    return status if latest is None or status.rank >= latest.generation else None


def current_set_up(
    failed: PublishedStatus | None, history: FlowHistory | None, run: LastRun, now_ms: int
) -> PublishedStatus | None:
    """Return the row of a process that fails to set up the flow. Return None if the row is
    outdated, or if another process may run the flow. Call this only if `current_status` is None.
    `run`: how the flow last ran.
    """
    if failed is None or not _is_fresh(failed, now_ms):
        return None
    latest = None if history is None else history.latest
    if latest is None or (latest.host, latest.pid) == (failed.host, failed.pid):
        return failed  # an earlier attempt of the same process may have claimed a generation
    may_run = run.state != FlowState.NOT_RUNNING
    return None if may_run or latest.started_ms > failed.at_ms else failed


def _is_fresh(status: PublishedStatus, now_ms: int) -> bool:
    """Return True if the writer of the row is running, as far as this host can determine."""
    if not status.is_current(now_ms):
        return False
    # The row is outdated if its writer was a process of this host that is gone. This is certain if
    # an events file with its pid exists here. Otherwise the writer may be in a container with this
    # host's name, so its next row must also be late.
    is_late = now_ms - status.at_ms > 2 * status.every_ms
    is_gone = is_running_here(status.host, status.pid, status.at_ms) is False
    return not (is_gone and (is_late or is_local_mirror(status.pid)))
