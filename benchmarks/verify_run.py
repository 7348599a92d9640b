"""`scripts/bench verify`: measures the speed of `twinlog verify`, and the CPU of a mirror's own
verification.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.copier import Copier, CopierFailed
from benchmarks.launches import FlowFile, twinlog_launch
from benchmarks.payload import KEY_BYTES, VALUE_BYTES
from benchmarks.process_tree import ProcessTree
from benchmarks.progress import Progress
from benchmarks.scale import FULL, positive
from benchmarks.stage import BACKLOG_TOPIC, Stage, open_stage
from benchmarks.watch import watch_copy

__all__ = ["main", "parse"]

RECORDS: Final = 1_000_000
QUICK_RECORDS: Final = 20_000
_OUTPUT: Final = Path(__file__).resolve().parent.parent / "build" / "bench-verify.json"
VARIANTS: Final = {
    "one process": (),
    "one process, --deep": ("--deep",),
    "--master local[*]": ("--master", "local[*]"),
    "--master local[*] --deep": ("--master", "local[*]", "--deep"),
}
LOOK_S: Final = 0.05
COPIED_WITHIN_S: Final = 300.0
WATCHED_S: Final = 30.0
"""Time after the copy in which the mirror verifies, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of one run of the command."""

    variant: str
    seconds: float
    cpu_s: float
    stored_gb: float
    """Size of both logs in GB."""
    records: int

    def line(self) -> str:
        payload_gb = self.records * (KEY_BYTES + VALUE_BYTES) / 1e9
        return (
            f"{self.variant:26} {self.seconds:8.2f} {self.stored_gb / self.seconds:8.2f} "
            f"{payload_gb / self.seconds:10.2f} {self.cpu_s / self.seconds:7.2f} "
            f"{self.cpu_s / payload_gb:9.2f} {self.records / self.seconds:12,.0f}"
        )


HEADER: Final = (
    f"{'':26} {'s':>8} {'GB/s':>8} {'payload':>10} {'cores':>7} {'CPU s/GB':>9} {'records/s':>12}\n"
    f"{'':26} {'':8} {'stored':>8} {'GB/s':>10} {'':7} {'payload':>9}"
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. A usage error ends the process."""
    parser = argparse.ArgumentParser(prog="scripts/bench verify", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20,000 records: it works")
    parser.add_argument(
        "--records", type=positive, metavar="N", help="of 1 KB, instead of 1,000,000"
    )
    parser.add_argument("--output", type=Path, default=_OUTPUT, metavar="FILE")
    options = parser.parse_args(arguments)
    options.records = options.records or (QUICK_RECORDS if options.quick else RECORDS)
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    options = parse(arguments)
    progress = Progress()
    scale = replace(FULL, backlog_records=options.records)
    with open_stage(scale, ["backlog"], progress) as stage:
        flow = FlowFile(
            alias=stage.next_alias(),
            source=stage.source.bootstrap,
            target=stage.target.bootstrap,
            topic=BACKLOG_TOPIC,
            tasks=scale.partitions,
            # without heartbeats, because a late one would not be copied yet when the copy is
            # compared
            more={
                "twinlog.verify": "full",
                "emit.heartbeats.enabled": "false",
                "heartbeats.replication.enabled": "false",
            },
        )
        progress.say("copying, with twinlog.verify=full")
        share = _copied(stage, flow, options.records)
        stored = stage.bytes_on_disk(stage.remote(flow.alias, flow.topic))
        print(HEADER)
        runs = []
        for variant, words in VARIANTS.items():
            runs.append(_verified(stage, flow, variant, words, stored, options.records))
            print(runs[-1].line())
        print(f"inside the mirror, twinlog.verify=full: {share:.2%} of its CPU")
    found = {"runs": [asdict(one) for one in runs], "share_of_mirror": share}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    progress.say(f"numbers of every run: {options.output}")
    return 0


def _copied(stage: Stage, flow: FlowFile, records: int) -> float:
    """Run a mirror, and return the share of its CPU that it uses for its own verification."""
    remote = stage.remote(flow.alias, flow.topic)
    with Copier(twinlog_launch(flow, stage.folder)) as copier:
        watch_copy(copier, remote, records)
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            copier.check()
            copier.tree.look()
            time.sleep(LOOK_S)
        found = _status(flow, stage.folder)
        whole_s = copier.tree.cpu_s()
    (one,) = found["mirrors"]
    (state,) = one["flows"]
    verified = state["verified"]
    print(
        f"mirror: {verified['records']:,} records compared, "
        f"{verified['cpu_ms'] / 1000:.2f} of {whole_s:.2f} s CPU"
    )
    return float(verified["cpu_ms"]) / 1000 / whole_s


def _status(flow: FlowFile, folder: Path) -> dict[str, Any]:
    out = subprocess.run(
        [_program(), "status", str(folder / f"{flow.alias}.properties"), "--format", "json"],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    found: dict[str, Any] = json.loads(out.stdout)
    return found


def _program() -> str:
    return str(Path(sys.executable).with_name("twinlog"))


def _verified(
    stage: Stage,
    flow: FlowFile,
    variant: str,
    words: Sequence[str],
    stored: int,
    records: int,
) -> Verified:
    command = [_program(), "verify", str(stage.folder / f"{flow.alias}.properties"), *words]
    began = time.monotonic()
    with (stage.folder / "verify.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        tree = ProcessTree(process.pid)
        while process.poll() is None:
            tree.look()
            time.sleep(LOOK_S)
    seconds = time.monotonic() - began
    if process.returncode:
        said = (stage.folder / "verify.log").read_text()
        raise CopierFailed(f"{variant}: exit code {process.returncode}: {said[-500:]}")
    waited, seen = tree.sums_s()
    return Verified(
        variant=variant,
        seconds=seconds,
        cpu_s=max(waited, seen),
        stored_gb=2 * stored / 1e9,
        records=records,
    )
