"""The report: a table with settings and notes for people, and a JSON file for programs."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.group_run import GROUP_KEYS
from benchmarks.launches import DEFAULT_LINGER, JVM_OPTIONS, LINGER_0, TUNED
from benchmarks.load import BATCH_BYTES
from benchmarks.others import TOO_MUCH
from benchmarks.payload import KEY_BYTES, VALUE_BYTES
from benchmarks.results import MIRROR_MAKER, TWINLOG, Latency, RunResult
from benchmarks.rows import Row
from benchmarks.scale import STEADY_CASES, Scale
from benchmarks.stage import BROKER_HEAP_MB
from benchmarks.summary import median
from benchmarks.table import render_rows, render_table
from twinlog.java import find_java
from twinlog.sandbox.kafka_jars import KAFKA_VERSION

__all__ = ["JSON_VERSION", "Report"]

JSON_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a benchmark."""

    scale: Scale
    rounds: int
    cases: Sequence[str]
    seconds: float
    runs: Sequence[RunResult]
    rows: Sequence[Row]
    floor: Latency | None
    reference: str = MIRROR_MAKER

    def text(self) -> str:
        """Return the report as text."""
        parts = [
            _settings_text(self),
            render_rows(self.rows, self.reference),
            *self._notes(),
            *self._phases(),
        ]
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        return {
            "command": "bench",
            "version": JSON_VERSION,
            "machine": _machine(),
            "settings": _settings(self),
            "seconds": round(self.seconds, 1),
            "rows": [asdict(row) for row in self.rows],
            "latency_without_copier": asdict(self.floor) if self.floor else None,
            "runs": [run.as_json() for run in self.runs],
        }

    def write(self, path: Path) -> None:
        """Write the JSON file, and create its folder if necessary."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")

    @property
    def _counting(self) -> list[RunResult]:
        return [run for run in self.runs if not run.is_warm_up]

    def _notes(self) -> list[str]:
        notes = [
            f"FAILED: round {run.round}, {run.case}, {run.system}: {run.failure}"
            for run in self.runs
            if run.failure
        ]
        notes += [
            f"{run.excess_records:,} records twice on the target:"
            f" round {run.round}, {run.case}, {run.system}"
            for run in self.runs
            if run.excess_records
        ]
        notes += [
            f"{run.latency.expected - run.latency.records:,} records never arrived or were never"
            f" sent in the window: round {run.round}, {run.case}, {run.system}"
            for run in self.runs
            if run.case in STEADY_CASES
            if run.latency is not None and run.latency.records < 0.99 * run.latency.expected
        ]
        notes += [
            f"{run.latency.expected - run.latency.records} of {run.latency.expected} commits never"
            f" had a checkpoint: round {run.round}, {run.case}, {run.system}"
            for run in self.runs
            if run.case == "groups"
            if run.latency is not None and run.latency.records < run.latency.expected
        ]
        notes += [
            f"not all groups were synced: round {run.round}, {run.system}: {run.warnings[0]}"
            for run in self.runs
            if run.case == "groups" and not run.failure
            if run.checkpointed_s is None or run.committed_s is None
        ]
        notes += [
            f"no lease change was seen inside the window: round {run.round}"
            for run in self.runs
            if run.system == TWINLOG and run.processes_started_in_window == 0
        ]
        notes += self._others()
        notes += self._cost_of_no_protection()
        if self.floor is not None:
            notes.append(
                "latency of a consumer on the source itself, without a copier:"
                f" p50 {self.floor.p50:.1f}, p99 {self.floor.p99:.1f},"
                f" p99.9 {self.floor.p99_9:.1f} ms"
            )
        return ["\n".join(notes)] if notes else []

    def _others(self) -> list[str]:
        disturbed = [run for run in self._counting if (run.used_by_others or 0) > TOO_MUCH]
        if not disturbed:
            return []
        shares = ", ".join(
            f"{run.round} {run.case} {run.system} {run.used_by_others:.0%}" for run in disturbed
        )
        return [
            "NOT COMPARABLE: other programs used the machine's CPU during these runs"
            f" (round, case, system, share): {shares}"
        ]

    def _cost_of_no_protection(self) -> list[str]:
        def rate(case: str) -> float | None:
            ours = [run for run in self._counting if run.case == case and run.system == TWINLOG]
            return median(run.records_per_s for run in ours if not run.failure)

        protected, unprotected = rate("backlog"), rate("unprotected")
        if not protected or not unprotected:
            return []
        return [
            f"every partition unprotected: Twinlog copies {unprotected:,.0f} records/s instead of"
            f" {protected:,.0f} ({unprotected / protected:.2f}x)"
        ]

    def _phases(self) -> list[str]:
        parts = []
        for system in dict.fromkeys((TWINLOG, self.reference)):
            runs = [run for run in self._counting if run.system == system and run.phases]
            names = dict.fromkeys(name for run in runs for name in run.phases)
            if names:
                cells = [
                    (name, f"{median(run.phases.get(name) for run in runs) or 0:.1f} s")
                    for name in names
                ]
                head = (f"start of {system}: first seen", "after")
                parts.append(render_table(head, cells, frozenset((1,))))
        return parts


def _settings(report: Report) -> dict[str, Any]:
    scale = report.scale
    return {
        "rounds": report.rounds,
        "cases": list(report.cases),
        "partitions": scale.partitions,
        "tasks.max": scale.partitions,
        "backlog_records": scale.backlog_records,
        "unprotected_records": scale.old_records,
        "small_records": scale.small_records,
        "compared_with": report.reference,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "source_batch_bytes": BATCH_BYTES,
        "source_compression": "lz4",
        "groups": scale.groups,
        "group_partitions": scale.group_partitions,
        "group_window_s": scale.groups_window_s,
        "group_keys": GROUP_KEYS,
        "latency_rate": scale.rate,
        "latency_warm_up_s": scale.warm_up_s,
        "latency_window_s": scale.window_s,
        "broker_heap_mb": BROKER_HEAP_MB,
        "mirror_maker_jvm": list(JVM_OPTIONS),
        "mirror_maker_producer": TUNED,
        "mirror_maker_producer_latency": DEFAULT_LINGER,
        "mirror_maker_producer_lowest": LINGER_0,
        "twinlog_lease_s_latency": scale.lease_s,
    }


def _settings_text(report: Report) -> str:
    scale, machine = report.scale, _machine()
    producer = " ".join(f"{key}={value}" for key, value in TUNED.items())
    return "\n".join(
        (
            f"machine        {machine['cores']} cores, {machine['memory_gb']} GB,"
            f" {machine['system']}, Python {machine['python']}, Java {machine['java']};"
            " shared with both clusters",
            f"clusters       Kafka {KAFKA_VERSION}, one broker each, -Xmx{BROKER_HEAP_MB}m",
            f"records        {VALUE_BYTES} bytes of JSON (about 2:1), lz4 in"
            f" {BATCH_BYTES // 1024} KiB batches, {scale.partitions} partitions;"
            f" backlog {scale.backlog_records:,}, unprotected {scale.old_records:,},"
            f" latency {scale.rate:,}/s for {scale.window_s:g} s after {scale.warm_up_s:g} s",
            f"{MIRROR_MAKER}  {KAFKA_VERSION}, {' '.join(JVM_OPTIONS[:2])},"
            f" tasks.max={scale.partitions}, {producer}; latency: linger.ms 5, lowest: 0",
            f"Twinlog        {version('twinlog')} on Spark {version('pyspark')}, the same file;"
            f" latency: --lease {scale.lease_s:g}; lowest: twinlog.latency=lowest",
            f"run            medians of {report.rounds} round(s), {report.seconds / 60:.1f} min",
        )
    )


def _machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    answer = subprocess.run(
        [str(find_java()), "-version"], capture_output=True, text=True, check=False, timeout=30
    )
    java = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java[1] if java else "unknown",
        "kafka": KAFKA_VERSION,
        "spark": version("pyspark"),
        "twinlog": version("twinlog"),
    }
