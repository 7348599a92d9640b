"""`scripts/test`: runs a tier of the tests, and runs failed ones once more. A test that fails among
others may be wrong, the machine may have hung, or the product may be wrong once in a hundred times.
So it is run once more, alone, with brokers of its own. If it fails again, it is red. If it passes,
it is FLAKY: named, written to `build/tests/flaky.txt`, and not red, unless more than `MOST_FLAKY`
tests failed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.gate import page
from tests.gate.changed import changed_tests
from tests.gate.outcomes import Outcomes
from tests.gate.plugin import GATE, OUTCOMES, PLUGIN

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final = ROOT / "build" / "tests"
MOST_FLAKY: Final = 5
TIMES_CHANGED: Final = 5
NO_TESTS: Final = 5
"""Pytest's exit code if no test was selected."""
PROCESSES: Final = os.environ.get("TWINLOG_TEST_PROCESSES", "7")
"""Number of processes. Tests mostly wait: four processes used 80 % of two cores in the gate."""
TOGETHER: Final = ("-n", PROCESSES, "--dist=loadgroup", "--no-loadscope-reorder")
"""The processes share one set of brokers. `loadgroup` keeps tests that share a Spark in one
process.
"""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 (a folder of our own is made there)
MEMORY_BYTES: Final = 4 << 30
ALONE: Final = ("-n", "0", "-p", "no:randomly")
MORE_EXAMPLES: Final = "--hypothesis-profile=whole"
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
SELECTS: Final = ("-k", "-m", "--lf", "--last-failed", "--ff", "--failed-first")
USAGE: Final = """\
scripts/test              the gate: all in memory, all contracts, and a witness of each behaviour
scripts/test --whole      everything, in random order; takes an hour
scripts/test --changed    what differs from main, five times
scripts/test ARGUMENTS    a part, by pytest's arguments: tests/unit -k naming, -m long
"""

Pytest = Callable[[Sequence[str]], int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run, and of the second run of its failed tests."""

    exit_code: int
    outcomes: Outcomes
    flaky: dict[str, str]
    """ID and first message of each test that passed in the second run."""
    red: dict[str, str]


def judged(pytest: Pytest, arguments: Sequence[str], folder: Path) -> Verdict:
    """Run pytest with these arguments. Then run the failed tests once more, alone."""
    folder.mkdir(parents=True, exist_ok=True)
    first, exit_code = _look(pytest, arguments, folder / "first.json")
    if exit_code != 1 or not first.failed:
        return Verdict(exit_code, first, {}, first.failed)
    if len(first.failed) > MOST_FLAKY:
        return Verdict(1, first, {}, first.failed)
    again, second_code = _look(pytest, [*ALONE, "-m", "", *first.failed], folder / "second.json")
    if second_code not in (0, 1):
        return Verdict(1, first, {}, first.failed)
    red = {name: message for name, message in first.failed.items() if name in again.failed}
    flaky = {name: message for name, message in first.failed.items() if name not in red}
    return Verdict(1 if red or second_code else 0, first, flaky, red)


def both(together: Verdict, alone: Verdict) -> Verdict:
    """Return the sum of two verdicts: of the tests that share the machine, and of those that need
    it alone, if there are any.
    """
    none_alone = alone.exit_code == NO_TESTS
    counts = Counter(together.outcomes.counts) + Counter(alone.outcomes.counts)
    return Verdict(
        together.exit_code or (0 if none_alone else alone.exit_code),
        Outcomes(counts, together.outcomes.failed | alone.outcomes.failed),
        together.flaky | alone.flaky,
        together.red | alone.red,
    )


def _look(pytest: Pytest, arguments: Sequence[str], file: Path) -> tuple[Outcomes, int]:
    file.unlink(missing_ok=True)
    exit_code = pytest([*arguments, *PLUGIN, f"{OUTCOMES}={file}"])
    return Outcomes.read(file), exit_code


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest in a separate process that keeps its bytecode. Compiling the modules again in
    every process of every test would take a third of the processes' time.
    """
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def tell(verdict: Verdict, seconds: float) -> None:
    """Print the summary, and write the flaky tests to `build/tests/flaky.txt`."""
    lines = [f"FLAKY {name} - {message}" for name, message in verdict.flaky.items()]
    (REPORTS / "flaky.txt").write_text("".join(f"{line}\n" for line in lines))
    lines += [f"FAILED {name} - {message}" for name, message in verdict.red.items()]
    if len(verdict.red) > MOST_FLAKY:
        lines.append(f"{len(verdict.red)} tests failed: too many for a second look")
    counts = ", ".join(f"{count} {kind}" for kind, count in verdict.outcomes.counts.items())
    lines.append(f"{counts}, {len(verdict.flaky)} flaky, in {seconds / 60:.1f} min")
    print("\n".join(lines), flush=True)  # noqa: T201


@contextmanager
def files_in_memory(place: Path = MEMORY, least_bytes: int = MEMORY_BYTES) -> Iterator[None]:
    """Keep temporary files, including the brokers' logs, in memory, unless a place is configured or
    memory is short. They take 40 MB at most. On one machine the gate's tests took 15.2 minutes
    instead of 16.8 and 17.5.
    """
    if "TMPDIR" in os.environ or not _has_room(place, least_bytes):
        yield
        return
    folder = tempfile.mkdtemp(prefix="twinlog-tests-", dir=place)
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        del os.environ["TMPDIR"]
        shutil.rmtree(folder, ignore_errors=True)


def _has_room(place: Path, least_bytes: int) -> bool:
    return os.access(place, os.W_OK) and shutil.disk_usage(place).free >= least_bytes


def gate(more: Sequence[str]) -> int:
    """Run the gate's tests in a fixed order, so that a run can be repeated."""
    began = time.monotonic()
    arguments = [*TOGETHER, GATE, "-p", "no:randomly", "--durations=30", *more]
    with files_in_memory():
        verdict = judged(run_pytest, arguments, REPORTS)
    tell(verdict, time.monotonic() - began)
    return verdict.exit_code


def whole(more: Sequence[str]) -> int:
    """Run all tests, including the longest. The result is written to docs/tests.md."""
    began = time.monotonic()
    seed = secrets.randbelow(1 << 31)
    print(f"random order: -p randomly --randomly-seed={seed}", flush=True)  # noqa: T201
    order = ("-m", "not alone", f"--randomly-seed={seed}", "--durations=20", MORE_EXAMPLES)
    verdict = both(
        judged(run_pytest, [*TOGETHER, *order, *more], REPORTS),
        judged(run_pytest, [*ALONE, "-m", "alone", *more], REPORTS),
    )
    seconds = time.monotonic() - began
    page.write_whole(ROOT, verdict.outcomes.counts, verdict.flaky, verdict.red, seconds)
    subprocess.run([ROOT / "scripts" / "coverage"], cwd=ROOT, check=False)
    tell(verdict, seconds)
    return verdict.exit_code


def changed(more: Sequence[str]) -> int:
    """Run each test that differs from `main` five times. It is ready when it passes every time."""
    tests = changed_tests(ROOT)
    print(f"{len(tests)} tests differ from main", flush=True)  # noqa: T201
    for time_ in range(TIMES_CHANGED if tests else 0):
        print(f"time {time_ + 1} of {TIMES_CHANGED}", flush=True)  # noqa: T201
        if exit_code := run_pytest([*TOGETHER, "-m", "", *more, *tests]):
            return exit_code
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run what the first argument selects. If it selects single tests, only these run, and failed
    tests do not run a second time.
    """
    if arguments[:1] == ["--help"]:
        print(USAGE, end="")  # noqa: T201
        return 0
    for option, tier in (("--whole", whole), ("--changed", changed)):
        if option in arguments:
            return tier([each for each in arguments if each != option])
    if any(_selects(each) for each in arguments):
        return run_pytest([*TOGETHER, *arguments])
    return gate(arguments)


def _selects(argument: str) -> bool:
    return argument.startswith(SELECTS) or (
        not argument.startswith("-") and (ROOT / argument.partition("::")[0]).exists()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
