"""A real Spark cluster: a standalone master and two workers.

Its daemons and the mirror share a secret, as `conf/spark-defaults.conf` of each gives it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import produce
from tests.support.command import Command
from tests.support.spark_mirror import (
    PARTITIONS,
    arrived,
    assert_identical,
    config,
    orders,
)
from tests.support.standalone import conf, standalone  # noqa: F401 (a fixture)
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


@pytest.fixture(autouse=True)
def quick_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen JVMs that live for seconds: launchers, daemons, executors."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def master(tmp_path: Path, conf: Path) -> Iterator[str]:  # noqa: F811 (the fixture)
    """The address of a master with two workers of two slots each, with a secret."""
    assert conf.is_dir()
    with standalone(tmp_path) as url:
        yield url


def test_executors_need_only_a_python_and_the_archive(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    master: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    without = subprocess.run(
        [bare, "-c", "import twinlog"], capture_output=True, check=False, cwd=tmp_path
    )
    assert b"No module named 'twinlog'" in without.stderr
    archive = tmp_path / "executors.zip"
    with Command(tmp_path / "pack", "pack", "--output", str(archive)) as packing:
        assert packing.wait() == 0, packing.stderr
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(3000))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    arguments = ("mirror", str(file), "--once", "--master", master, "--archive", str(archive))
    with Command(tmp_path / "run", *arguments) as mirror:
        assert mirror.wait() == 0, mirror.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3000
    question = ("verify", str(file), "--master", master, "--archive", str(archive))
    with Command(tmp_path / "same", *question) as verify:
        assert verify.wait() == 0, verify.stderr
    assert "3,000 records are equal" in verify.stdout
    produce(target_cluster, f"A.{fresh_topic}", orders(1))
    with Command(tmp_path / "more", *question) as verify:
        assert verify.wait() == 1, verify.stderr
    line = r"extra: .*, 1 record: the source has no such record there$"
    assert re.search(line, verify.stdout, re.MULTILINE), verify.stdout


def test_a_master_without_a_secret_is_refused_unless_named(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(3000))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    with standalone(tmp_path) as master:
        arguments = ("mirror", str(file), "--once", "--master", master)
        with Command(tmp_path / "refused", *arguments) as mirror:
            assert mirror.wait() == 2, mirror.stderr
        assert "[SPARK_UNAUTHENTICATED]" in mirror.stderr
        assert "`spark.authenticate.secret` in conf/spark-defaults.conf" in mirror.stderr
        assert arrived(target_cluster, fresh_topic) == 0
        with Command(tmp_path / "named", *arguments, "--allow-unauthenticated-spark") as mirror:
            assert mirror.wait() == 0, mirror.stderr
    assert "whoever reaches Spark's ports" in mirror.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3000
