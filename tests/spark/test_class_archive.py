"""Spark's classes from an archive: mapped where there is one, and no start fails for it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from twinlog.spark import gateway
from twinlog.spark.session import start_spark, stop_spark

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def maps_of_the_jvm() -> str:
    """What the JVM of a started Spark has mapped; a job has run."""
    engine = start_spark(None, 1)
    try:
        assert engine.context.parallelize([1, 2], 2).count() == 2
        shell = psutil.Process(engine.gateway.process.pid)
        (jvm,) = (one for one in shell.children(recursive=True) if one.name() == "java")
        return Path(f"/proc/{jvm.pid}/maps").read_text()
    finally:
        stop_spark(engine)


def test_it_is_made_by_the_setup_and_mapped() -> None:
    archive = gateway.spark_archive()
    assert archive.exists(), "scripts/setup makes it"
    assert str(archive) in maps_of_the_jvm()


def test_with_a_damaged_one_it_starts_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"no archive" * 1000)
    monkeypatch.setattr(gateway, "spark_archive", lambda: archive)
    assert str(archive) not in maps_of_the_jvm()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
