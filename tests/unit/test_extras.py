"""Twinlog as `pip install twinlog` installs it, without PySpark and the packages of REST."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import twinlog

ROOT = Path(twinlog.__file__).parents[1]
NEED_EXTRAS = (
    "twinlog.spark.",
    "twinlog.records.",
    "twinlog.transforms",
    "twinlog.control.watch.series.exposition",
    "twinlog.control.web.api",
    "twinlog.control.web.connect",
)
OF_EXTRAS = "pyspark py4j pyarrow uvicorn starlette pydantic h11 prometheus_client"
NO_EXTRAS = f"import sys; sys.modules.update(dict.fromkeys({OF_EXTRAS.split()}))\n"
FILE = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
"""


def python(script: str, *words: str) -> tuple[int, str]:
    """Run a script that cannot import the packages of extras. Return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-c", NO_EXTRAS + script, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_only_spark_data_frames_and_rest_import_packages_of_extras() -> None:
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "twinlog").rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    names = [name for name in names if not name.startswith(NEED_EXTRAS) and "__main__" not in name]
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
        (("mirror",), 1, "pyspark (extra [spark] of Twinlog): pip install '"),
        (("verify", "--master", "local"), 2, "pyspark (extra [spark] of Twinlog): pip install '"),
    ],
)
def test_commands_without_extras(
    words: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    name, *options = words
    found, out = python(
        "from twinlog.cli.main import run\nsys.exit(run(sys.argv[1:]))", name, str(file), *options
    )
    assert (found, says in out) == (code, True), out
