"""The files for a package index: the source distribution, and a wheel that is built from it."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from pyspark.sql.pandas.map_ops import PandasMapOpsMixin

from tests.support.eventually import PATIENCE_S
from twinlog.codes import conditions
from twinlog.wire.kernels.library import NAME

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, *command: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The unpacked source distribution, as for an installation. Builds may leave files in it."""
    made = tmp_path / "sdist"
    run(ROOT, "-m", "hatchling", "build", "-t", "sdist", "-d", str(made))
    (archive,) = made.glob("twinlog-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(made, filter="data")
    (folder,) = (path for path in made.iterdir() if path.is_dir())
    return folder


def test_it_holds_the_source_and_nothing_of_this_machine(unpacked: Path) -> None:
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in files if name.endswith((".so", ".pyc"))} == set()
    sources = subprocess.run(
        ["git", "ls-files", "src", "bin", "deploy", "share"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(sources.stdout.splitlines()) - files == set()
    assert {name.split("/")[0] for name in files} - {"PKG-INFO", ".gitignore"} == {
        *("src", "tests", "bin", "deploy", "share", "hatch_build.py", "pyproject.toml"),
        *("LICENSE", "NOTICE", "README.md", "CHANGELOG.md"),
        *("requirements.lock", "requirements-dev.lock", "requirements-build.lock"),
    }


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_wheel_is_made_of_it_and_is_imported(unpacked: Path, tmp_path: Path) -> None:
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    run(unpacked, *build, TWINLOG_KERNELS="compiled")
    (wheel,) = tmp_path.glob("twinlog-*-py3-none-linux_*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)  # noqa: S202 (our own)
    assert list(installed.rglob("*.so")) == [installed / "twinlog/wire/kernels" / NAME]
    (shared,) = installed.glob("*.data/data/share")
    for folder, there in (("deploy", shared / "twinlog"), ("share", shared)):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert len(files) > 2
        for path in files:
            assert (there / path.relative_to(ROOT / folder)).read_bytes() == path.read_bytes()
    program = (
        "import twinlog.cli.main; from twinlog.wire.kernels.chosen import CHOSEN;"
        "from twinlog.codes import conditions;"
        "print(twinlog.__file__, CHOSEN.is_compiled, len(conditions()))"
    )
    told = run(tmp_path, "-c", program, PYTHONPATH=str(installed), TWINLOG_KERNELS="")
    found = [str(installed / "twinlog/__init__.py"), "True", str(len(conditions()))]
    assert told.split() == found


def test_the_notice_names_every_library_that_an_installation_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = {
        re.split(r"[>=<\[]", one)[0]
        for one in itertools.chain(project["dependencies"], *extras)
        if not one.startswith("twinlog[")
    }
    words = set(re.findall(r"[\w-]+", (ROOT / "NOTICE").read_text()))
    assert wanted - words == set()


def test_the_extra_of_dataframes_brings_what_spark_requires_for_writing() -> None:
    """The extra of DataFrames has pandas, which Spark requires for writing. Other tests cannot
    notice if it is missing, because the lock file has pandas for other reasons.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {re.split(r"[>=<]", one)[0] for one in project["optional-dependencies"]["records"]}
    required = inspect.getsource(PandasMapOpsMixin.mapInArrow)
    assert "pandas_udf(" in required, "it no longer checks for pandas, so the extra may not need it"
    assert {"pandas", "pyarrow"} <= brought


def test_classifiers_name_the_python_version_that_is_required() -> None:
    """The package's classifiers list only the Python version of `requires-python`, because no other
    version is tested.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = {name.rsplit(" ", 1)[-1] for name in project["classifiers"] if "Python :: 3." in name}
    assert claimed == {project["requires-python"].removeprefix(">=")}
