"""Twinlog as `pip install twinlog` installs it: without PySpark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import twinlog

ROOT = Path(twinlog.__file__).parents[1]
NEED_SPARK = ("twinlog.spark.", "twinlog.records.", "twinlog.transforms")
NO_SPARK = "import sys; sys.modules.update(pyspark=None, py4j=None, pyarrow=None)\n"
FILE = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
"""


def python(script: str, *words: str) -> tuple[int, str]:
    """Return the exit code and the output of a script without PySpark."""
    done = subprocess.run(
        [sys.executable, "-c", NO_SPARK + script, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_only_spark_and_data_frames_import_pyspark() -> None:
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "twinlog").rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    names = [name for name in names if not name.startswith(NEED_SPARK) and "__main__" not in name]
    assert len(names) > 400
    code, out = python(
        "from importlib import import_module\nany(map(import_module, sys.argv[1:]))", *names
    )
    assert code == 0, out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("check", "--explain"), 0, "A.bootstrap.servers"),
        (("check",), 1, "UNREACHABLE"),
        (("status",), 3, "A->B  UNKNOWN"),
        (("mirror",), 1, "(extra [spark] of Twinlog): pip install 'pyspark"),
        (("verify", "--master", "local"), 2, "(extra [spark] of Twinlog): pip install 'pyspark"),
    ],
)
def test_commands_without_pyspark(
    words: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    name, *options = words
    found, out = python(
        "from twinlog.cli.main import run\nsys.exit(run(sys.argv[1:]))", name, str(file), *options
    )
    assert (found, says in out) == (code, True), out
