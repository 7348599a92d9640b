"""`scripts/test` runs failed tests a second time. A test that fails again is red, and one that
passes is flaky.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.gate import __main__ as gate
from tests.gate import page, tiers
from tests.gate.__main__ import MOST_FLAKY, NO_TESTS, Verdict, both, judged, tell
from tests.gate.outcomes import Outcomes

ROOT = Path(__file__).resolve().parents[3]
ONCE_IN_THREE = """
from pathlib import Path

def test_one_fails_the_{n}th_time():
    file = Path(__file__).with_suffix(".runs")
    runs = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (runs + 1))
    assert runs % 3 != 0, "it had bad luck"
"""
Suite = Callable[..., Verdict]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A suite that consists of the files in a folder. pytest and pytest-xdist run it in their own
    processes.
    """

    def pytest_there(arguments: Sequence[str]) -> int:
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "--rootdir=.", *arguments]
        # other plugins take a second to load in each process
        environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=False
        )
        return done.returncode

    def run(**files: str) -> Verdict:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        together = ("-n", "1", "--dist=loadgroup", "-p", "no:randomly", "-p", "no:cacheprovider")
        return judged(pytest_there, together, tmp_path / "reports")

    return run


def test_a_test_that_passes_alone_is_flaky_and_the_run_is_green(
    suite: Suite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict = suite(
        test_good="def test_good(): pass",
        test_lucky="import pytest\npytestmark = pytest.mark.xdist_group('some')\n"
        + ONCE_IN_THREE.format(n=3),
    )
    name = "test_lucky.py::test_one_fails_the_3th_time"
    assert verdict.exit_code == 0
    assert list(verdict.flaky) == [name]
    assert verdict.red == {}
    assert verdict.outcomes.counts == {"passed": 1, "failed": 1}
    monkeypatch.setattr("tests.gate.__main__.REPORTS", tmp_path)
    tell(verdict, 60.0)
    line = f"FLAKY {name} - AssertionError: it had bad luck\n"
    assert (tmp_path / "flaky.txt").read_text() == line
    assert capsys.readouterr().out.startswith(line)


def test_a_test_that_fails_twice_is_red_next_to_a_flaky_one(suite: Suite) -> None:
    verdict = suite(
        test_bad="def test_bad(): assert 1 == 2",
        test_lucky=ONCE_IN_THREE.format(n=3),
    )
    assert verdict.exit_code == 1
    assert list(verdict.red) == ["test_bad.py::test_bad"]
    assert list(verdict.flaky) == ["test_lucky.py::test_one_fails_the_3th_time"]


def test_a_failing_fixture_is_checked_again_too(suite: Suite) -> None:
    broken = "import pytest\n@pytest.fixture\ndef it(): raise OSError('no')\ndef test_it(it): pass"
    verdict = suite(test_broken=broken)
    assert (verdict.exit_code, list(verdict.red)) == (1, ["test_broken.py::test_it"])


def test_a_process_of_tests_that_dies_is_checked_again(suite: Suite) -> None:
    verdict = suite(test_dies="import os\ndef test_dies(): os._exit(3)")
    assert verdict.exit_code == 1


def test_more_flaky_ones_than_an_honest_suite_has_are_red(suite: Suite) -> None:
    names = [f"test_lucky_{n}" for n in range(MOST_FLAKY + 1)]
    verdict = suite(**{name: ONCE_IN_THREE.format(n=n) for n, name in enumerate(names)})
    assert verdict.exit_code == 1
    assert len(verdict.red) == MOST_FLAKY + 1


def test_a_file_that_cannot_be_read_is_red(suite: Suite) -> None:
    assert suite(test_good="def test_good(): pass", test_torn="def (").exit_code != 0


def test_all_green(suite: Suite) -> None:
    verdict = suite(test_good="def test_good(): pass")
    assert (verdict.exit_code, verdict.flaky, verdict.red) == (0, {}, {})


def verdict(code: int, *red: str, **counts: int) -> Verdict:
    failed = dict.fromkeys(red, "no")
    return Verdict(code, Outcomes(counts, failed), {}, failed)


def test_tests_that_run_alone_count_like_the_others() -> None:
    good, none, bad = verdict(0, passed=3), verdict(NO_TESTS), verdict(1, "slow", failed=1)
    assert both(good, none) == good
    assert both(good, bad) == verdict(1, "slow", passed=3, failed=1)
    assert both(bad, good) == verdict(1, "slow", passed=3, failed=1)


def test_the_whole_is_run_together_then_alone_with_the_longest_and_coverage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Sequence[str]] = []
    ran: list[object] = []

    def judge(_pytest: object, arguments: Sequence[str], _folder: Path) -> Verdict:
        asked.append(arguments)
        return verdict(0, passed=1)

    monkeypatch.setattr(gate, "judged", judge)
    monkeypatch.setattr(gate, "REPORTS", tmp_path)
    monkeypatch.setattr(page, "write_whole", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.extend(command))
    assert gate.whole([]) == 0
    together, alone = asked
    assert {"not alone", "--durations=20", "--hypothesis-profile=whole"} <= {*together}
    assert (alone[:2], alone[-1]) == (["-n", "0"], "alone")
    assert ran == [ROOT / "scripts" / "coverage"]


@pytest.mark.parametrize("worker", ["gw0", None])
def test_tests_that_run_alone_are_skipped_in_parallel_runs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, worker: str | None
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if worker is not None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    one = request.node
    one.add_marker(pytest.mark.alone)
    tiers.skip_what_runs_alone([one])
    assert (one.get_closest_marker("skip") is not None) == (worker is not None)


def test_the_bytecode_of_a_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys\ndef test_it(): assert not sys.dont_write_bytecode"
    (tmp_path / "test_kept.py").write_text(text)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins take a second to load
    assert gate.run_pytest(["-q", "-c", os.devnull, f"--rootdir={tmp_path}", str(tmp_path)]) == 0


def test_files_of_the_gate_are_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    with gate.files_in_memory(tmp_path, 1):
        folder = Path(os.environ["TMPDIR"])
        assert folder.parent == tmp_path
        (folder / "left").touch()
    assert "TMPDIR" not in os.environ
    assert not [*tmp_path.iterdir()]
    for place, least_bytes in ((tmp_path, 1 << 62), (tmp_path / "none", 1)):
        with gate.files_in_memory(place, least_bytes):
            assert "TMPDIR" not in os.environ
    monkeypatch.setenv("TMPDIR", "/chosen")
    with gate.files_in_memory(tmp_path, 1):
        assert os.environ["TMPDIR"] == "/chosen"
