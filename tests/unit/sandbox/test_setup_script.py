"""On a machine that lacks something, `scripts/setup` prints one line that names what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S
from tests.support.read_only import as_it_is, with_mounts

SETUP = Path(__file__).resolve().parents[3] / "scripts" / "setup"
TOOLS = ["bash", "cat", "cksum", "sed", "grep"]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A new clone with the scripts only, and a PATH with only the tools of a shell."""
    root = tmp_path / "clone"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(SETUP, root / "scripts")
    for name in ("requirements-dev.lock", "pyproject.toml"):
        (root / name).write_text("", encoding="utf-8")
    path = tmp_path / "bin"
    path.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (path / tool).symlink_to(found)
    return path


def command(path: Path, name: str, script: str) -> None:
    file = path / name
    file.write_text(f"#!{shutil.which('bash')}\n{script}\n", encoding="utf-8")
    file.chmod(0o755)


def run_setup(path: Path, *mounts: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": str(path.parent)}
    script = path.parent / "clone" / "scripts" / "setup"
    run = [str(path / "bash"), str(script)]
    if mounts:
        environment["PATH"] += f":{os.defpath}"
        run = with_mounts(mounts, run)
    return subprocess.run(
        run,
        env=environment,
        cwd=os.sep,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def only_line(answer: subprocess.CompletedProcess[str]) -> str:
    assert (1, "") == (answer.returncode, answer.stdout)
    (line,) = answer.stderr.splitlines()
    return line


def test_missing_java(machine: Path) -> None:
    line = only_line(run_setup(machine))
    assert line.startswith("setup: Java 17 or newer is missing (found: none); install it")
    assert "sudo apt install openjdk-17-jre-headless" in line


@pytest.mark.parametrize(
    ("printed", "found"),
    [('openjdk version "1.8.0_402"', "8"), ('openjdk version "11.0.22" 2024-01-16', "11")],
)
def test_old_java(machine: Path, printed: str, found: str) -> None:
    command(machine, "java", f"echo '{printed}' >&2")
    assert f"Java 17 or newer is missing (found: {found})" in only_line(run_setup(machine))


@pytest.mark.parametrize("printed", ['openjdk version "17.0.15"', 'java version "25" 2025-09-16'])
def test_missing_python(machine: Path, printed: str) -> None:
    command(machine, "java", f"echo '{printed}' >&2")
    line = only_line(run_setup(machine))
    assert line.startswith("setup: Python 3.11 or newer is missing (found: none); install it")
    assert "sudo apt install python3" in line


def test_old_python(machine: Path) -> None:
    command(machine, "java", "echo 'openjdk version \"21\"' >&2")
    command(machine, "python3", 'case "$2" in *exit*) exit 1;; *) echo 3.9;; esac')
    assert "Python 3.11 or newer is missing (found: 3.9)" in only_line(run_setup(machine))


def test_python_without_venv(machine: Path) -> None:
    command(machine, "java", "echo 'openjdk version \"21\"' >&2")
    for name in PYTHONS:
        command(machine, name, 'case "$2" in *venv*) exit 1;; *) exit 0;; esac')
    line = only_line(run_setup(machine))
    assert "venv module is missing for python3.11" in line
    assert "sudo apt install python3-venv" in line


def test_the_end_names_the_next_step(machine: Path) -> None:
    clone = machine.parent / "clone"
    kernels, jars = "src/twinlog/wire/kernels/kernels.c", "src/twinlog/sandbox/kafka_jars.py"
    for name, text in (("hatch_build.py", ""), (kernels, ""), (jars, 'KAFKA_VERSION = "4.3.0"\n')):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text, encoding="utf-8")
    command(machine, "java", """echo 'openjdk version "17.0.15"' >&2""")
    (machine.parent / "made" / "bin").mkdir(parents=True)
    command(machine.parent / "made" / "bin", "python", "exit 0")
    made = f'{shutil.which("cp")} -r "${{0%/bin/*}}/made" "$4"'
    command(machine, "python3.11", f'if [ "$2" = venv ]; then {made}; fi')
    answer = run_setup(machine)
    assert answer.returncode == 0, answer.stderr
    last = answer.stderr.splitlines()[-1]
    assert last.startswith(
        "setup: done. Next: . .venv/bin/activate; scripts/demo, or twinlog --help"
    )


def test_checkout_on_a_read_only_mount(machine: Path) -> None:
    command(machine, "java", """echo 'openjdk version "17.0.15"' >&2""")
    command(machine, "python3.11", "exit 0")
    clone = machine.parent / "clone"
    line = only_line(run_setup(machine, as_it_is(clone)))
    assert line.startswith(f"setup: {clone} cannot be written, and .venv is made there; copy")


@pytest.mark.parametrize("module", re.findall(r" -m (twinlog[\w.]+)", SETUP.read_text()))
def test_the_module_that_it_runs_is_not_imported_by_its_package(module: str) -> None:
    """A package must not import the module that `scripts/setup` runs with `-m`. Otherwise runpy
    prints a RuntimeWarning, which looks like an error.
    """
    package = module.rpartition(".")[0]
    loads = f"import sys, {package}; sys.exit({module!r} in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", loads], check=False, timeout=PATIENCE_S)
    assert ended.returncode == 0
