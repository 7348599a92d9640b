"""One run of the latency case: a copier copies steady traffic, which is measured over a window."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from benchmarks.copier import Copier, CopierFailed, end_session
from benchmarks.results import Latency
from benchmarks.scale import Scale
from benchmarks.steady import GRACE_S, MeasureTask, ProduceTask
from benchmarks.watch import RemoteTopic, wait_for_first_record

__all__ = ["SteadyNumbers", "measure_floor", "steady_load", "watch_steady"]

_ROOT = Path(__file__).resolve().parent.parent
_LONGEST_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyNumbers:
    """The measurements of a copier under steady load."""

    first_record_s: float
    latency: Latency
    cpu_s: float
    pss_bytes: int
    processes_started: int


@contextmanager
def steady_load(bootstrap: str, topic: str, scale: Scale) -> Iterator[None]:
    """Write to the topic at the scale's rate until the `with` block ends."""
    task = ProduceTask(
        bootstrap=bootstrap,
        topic=topic,
        partitions=scale.partitions,
        rate=scale.rate,
        seconds=_LONGEST_START_S + scale.warm_up_s + scale.window_s + GRACE_S,
        seed=scale.seed,
    )
    with _client("produce", asdict(task)):
        yield


def watch_steady(
    copier: Copier, remote: RemoteTopic, bootstrap: str, scale: Scale
) -> SteadyNumbers:
    """Wait for the first copied record, warm up, and then measure one window."""
    first = wait_for_first_record(copier, remote)
    task = _task(bootstrap, remote.name, scale, first.at + scale.warm_up_s, scale.window_s)
    begin_at = first.at + scale.warm_up_s
    with _client("measure", asdict(task)) as client:
        _watch_until(copier, begin_at)
        cpu_at_begin = copier.tree.cpu_s()
        _watch_until(copier, begin_at + scale.window_s)
        cpu_s = copier.tree.cpu_s() - cpu_at_begin
        latency = _answer(client)
    return SteadyNumbers(
        first_record_s=first.at - copier.started,
        latency=latency,
        cpu_s=cpu_s,
        # at the end, because reading the memory stops a process for a moment
        pss_bytes=copier.tree.pss_bytes(),
        processes_started=copier.tree.seen_between(begin_at, begin_at + scale.window_s),
    )


def measure_floor(bootstrap: str, topic: str, scale: Scale) -> Latency:
    """Return the latency of the same measurement on the source, that is, of clients and brokers
    without a copier.
    """
    begin_at = time.monotonic() + 3
    seconds = scale.window_s / 2
    task = _task(bootstrap, topic, scale, begin_at, seconds)
    with _client("measure", asdict(task)) as client:
        time.sleep(3 + seconds)
        return _answer(client)


def _task(bootstrap: str, topic: str, scale: Scale, begin_at: float, seconds: float) -> MeasureTask:
    begin_ms = int((time.time() + begin_at - time.monotonic()) * 1000)
    return MeasureTask(
        bootstrap=bootstrap,
        topic=topic,
        partitions=scale.partitions,
        rate=scale.rate,
        begin_ms=begin_ms,
        end_ms=begin_ms + round(seconds * 1000),
    )


def _watch_until(copier: Copier, until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        copier.check()
        copier.tree.look()
        time.sleep(min(left, 1.0))


def _answer(client: subprocess.Popen[bytes]) -> Latency:
    try:
        client.wait(GRACE_S + 15)
    except subprocess.TimeoutExpired as error:
        raise CopierFailed("the measuring consumer did not end in time") from error
    if client.returncode != 0:
        last = _read(client.stderr).strip().splitlines()[-1:]
        raise CopierFailed(f"the measuring consumer failed: {' '.join(last)}")
    return Latency(**json.loads(_read(client.stdout)))


def _read(stream: IO[bytes] | None) -> str:
    return "" if stream is None else stream.read().decode(errors="replace")


@contextmanager
def _client(command: str, task: dict[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.steady", command, json.dumps(task)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            end_session(process)
