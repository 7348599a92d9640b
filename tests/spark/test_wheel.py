"""What users install: the wheel, alone in a fresh environment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.client import produce
from tests.support.eventually import PATIENCE_S
from tests.support.spark_mirror import PARTITIONS, assert_identical, config, orders
from tests.support.topics import create_topic
from twinlog import __version__
from twinlog.sandbox import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.xdist_group("spark"),
]

ROOT = Path(__file__).parents[2]
OLD_SCRIPTS = {"connect-mirror-maker.sh": "mirror", "kafka-mirror-maker.sh": "mirror-maker"}


def run(*command: str | Path, within: float = 300, folder: Path = Path("/")) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=within,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def without_spark(lock: str) -> str:
    """All but the 450 MB that take a minute to unpack: the setup has installed them by the same pin
    and hash.
    """
    parts = re.split(r"^(?=[a-z])", lock, flags=re.M)
    (spark,) = (part for part in parts if part.startswith("pyspark"))
    assert spark in (ROOT / "requirements-dev.lock").read_text()
    return "".join(part for part in parts if part != spark)


def link_spark(environment: Path) -> None:
    """The installed one, with its metadata, for `pip check`."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    (metadata,) = Path(pyspark.__file__).parents[1].glob("pyspark-*.dist-info")
    for folder in (Path(pyspark.__file__).parent, metadata):
        (packages / folder.name).symlink_to(folder)


def test_wheel_runs_in_a_fresh_environment(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist")
    run(sys.executable, *build, folder=ROOT)
    (wheel,) = (tmp_path / "dist").glob("twinlog-*.whl")
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    pip = (environment / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    lock = tmp_path / "requirements.lock"
    lock.write_text(without_spark((ROOT / "requirements.lock").read_text()))
    link_spark(environment)
    install = (*pip, "install", "--no-deps", "--no-compile")
    run(*install, "--require-hashes", "-r", lock)
    run(*install, wheel)
    run(*pip, "check")
    twinlog = environment / "bin" / "twinlog"

    assert __version__ in run(twinlog, "--version")
    for script, command in OLD_SCRIPTS.items():
        assert f"Usage: twinlog {command} " in run(environment / "bin" / script, "--help")
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    assert len(deployed) > 2
    for path in deployed:
        installed = environment / "share" / "twinlog" / path.relative_to(ROOT / "deploy")
        assert installed.read_text() == path.read_text()
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(300))
    file = config(tmp_path / "flow", source_cluster, target_cluster, fresh_topic)
    run(twinlog, "mirror", file, "--once", within=PATIENCE_S)
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 300
