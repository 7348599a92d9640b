"""The command line of `scripts/bench`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from benchmarks import far_run, frames_run, lanes_run, plane_run, transform_run, verify_run
from benchmarks.launches import THIS_TWINLOG
from benchmarks.progress import Progress
from benchmarks.report import Report
from benchmarks.results import MIRROR_MAKER, TWINLOG, RunResult
from benchmarks.rounds import Rounds
from benchmarks.rows import make_rows
from benchmarks.scale import CASES, FULL, QUICK, Scale, positive
from benchmarks.stage import open_stage
from twinlog.errors import TwinlogError
from twinlog.sandbox.kafka_jars import mirror_maker_jars

__all__ = ["main", "parse"]

_ROOT = Path(__file__).resolve().parent.parent

_ALONE = {
    "verify": verify_run.main,
    "frames": frames_run.main,
    "plane": plane_run.main,
    "lanes": lanes_run.main,
    "far": far_run.main,
    "transforms": transform_run.main,
}
"""Benchmarks with their own command lines."""

_EXAMPLES = """\
cases:
{cases}
examples:
  scripts/bench                       all rows, three rounds, under 35 minutes
  scripts/bench --quick               all rows, one round with fewer records, under 6 minutes
  scripts/bench backlog --rounds 1    throughput, CPU, memory and start-up once
  scripts/bench latency startup       two cases
  scripts/bench backlog --only mm2    one side alone
  scripts/bench --baseline v0.1.0     this tree and another version in turns, without MirrorMaker 2
  scripts/bench verify                how fast `twinlog verify` is, nothing beside it: 3 minutes
  scripts/bench frames                DataFrames beside Spark's own source and sink: 25 minutes
  scripts/bench plane                 what page, REST and metrics cost a mirror: 12 minutes
  scripts/bench lanes                 memory with 1 to 32 lanes: 4 minutes
  scripts/bench far                   a backlog over a long link: 12 minutes
  scripts/bench transforms            transforms beside Spark's own connector: 10 minutes

exit code: 0 all runs were measured (goals met or not), 1 a run failed, 2 wrong usage
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. A usage error ends the process with exit code 2."""
    cases = "".join(f"  {name:12} {what}\n" for name, what in CASES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Twinlog and Java MirrorMaker 2 side by side, on clusters of their own.",
        epilog=_EXAMPLES.format(cases=cases),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # without `choices`, because argparse would then reject an empty list
    parser.add_argument("cases", nargs="*", metavar="CASE", help="which cases; default: all")
    parser.add_argument("--quick", action="store_true", help="one round, fewer records")
    parser.add_argument("--rounds", type=positive, metavar="N", help="instead of 3 (quick: 1)")
    parser.add_argument(
        "--records", type=positive, metavar="N", help="in the backlog, instead of 2,000,000"
    )
    parser.add_argument("--only", choices=("mm2", "twinlog"), help="run one side alone")
    parser.add_argument(
        "--baseline",
        metavar="COMMIT",
        help="compare with this commit, in turns, instead of with MirrorMaker 2",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="the JSON file; default: build/bench.json"
    )
    options = parser.parse_args(arguments)
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}; cases are: {', '.join(CASES)}")
    if options.baseline and options.only:
        parser.error("--baseline compares two versions of Twinlog; leave out --only")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, and return the exit code."""
    if arguments and arguments[0] in _ALONE:
        _end_in_order_on_signals()
        return _ALONE[arguments[0]](arguments[1:])
    options = parse(arguments)
    scale = _scale(options)
    # in the order of CASES, without duplicates; the backlog case also measures the start
    cases = [case for case in CASES if case in (options.cases or CASES)]
    run_cases = [case for case in cases if case != "startup" or "backlog" not in cases]
    _end_in_order_on_signals()
    progress, runs = Progress(), list[RunResult]()
    jars = mirror_maker_jars()
    programs = _programs(options, progress)
    with open_stage(scale, run_cases, progress) as stage:
        rounds = Rounds(
            stage=stage,
            progress=progress,
            jars=jars,
            cases=run_cases,
            programs=programs,
            rounds=scale.rounds,
        )
        runs.extend(rounds.run())
        progress.say("stopping the clusters")
    reference = next(iter(programs)) if options.baseline else MIRROR_MAKER
    report = Report(
        scale=scale,
        rounds=scale.rounds,
        cases=cases,
        seconds=progress.seconds,
        runs=runs,
        rows=make_rows(runs, cases, reference=reference),
        reference=reference,
        floor=rounds.floor,
    )
    path = options.output or _ROOT / "build" / "bench.json"
    report.write(path)
    print(report.text())
    progress.say(f"numbers of every run: {path}")
    return 1 if any(run.failure for run in runs) else 0


def _programs(options: argparse.Namespace, progress: Progress) -> dict[str, Path]:
    """Return the program of each copier. The copier to compare with comes first."""
    if options.baseline:
        name, program = _baseline(options.baseline, progress)
        return {name: program, TWINLOG: THIS_TWINLOG}
    both = {MIRROR_MAKER: THIS_TWINLOG, TWINLOG: THIS_TWINLOG}
    only = {"mm2": MIRROR_MAKER, "twinlog": TWINLOG}.get(options.only)
    return {only: THIS_TWINLOG} if only else both


def _baseline(commit: str, progress: Progress) -> tuple[str, Path]:
    """Check out a commit into build/baseline, with its own environment, and return its name and
    program. Both are kept for later runs.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"bench: git {arguments[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    short = git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}")
    folder = _ROOT / "build" / "baseline" / short
    progress.say(f"preparing Twinlog at {short}")
    if not folder.exists():
        git("worktree", "add", "--force", "--detach", str(folder), short)
    if subprocess.run([folder / "scripts" / "setup"], check=False).returncode:
        sys.exit(f"bench: {folder}/scripts/setup failed")
    return f"Twinlog {short}", folder / ".venv" / "bin" / "twinlog"


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    return replace(
        scale,
        rounds=options.rounds or scale.rounds,
        backlog_records=options.records or scale.backlog_records,
    )


def _end_in_order_on_signals() -> None:
    def end(number: int, _frame: FrameType | None) -> NoReturn:
        # the first signal ends all parts in order; further signals must not interrupt this
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        sys.stderr.write("ending what was started\n")
        raise SystemExit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, end)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TwinlogError as error:
        sys.exit(f"bench: {error}")
