"""A container needs only one writable folder: the one for temporary files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.client import produce, read_all
from tests.support.command import ENTRY
from tests.support.eventually import PATIENCE_S
from tests.support.read_only import WHERE_FILES_ARE_MADE, as_it_is, scratch, with_mounts
from tests.support.spark_mirror import PARTITIONS, alias_of, config, orders
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


def test_installation_home_and_working_folder_may_be_read_only(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster, fresh_topic, PARTITIONS)
    produce(source_cluster, fresh_topic, orders(100))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mounts = [as_it_is(Path(folder)) for folder in WHERE_FILES_ARE_MADE]
    environment = {name: text for name, text in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    done = subprocess.run(
        with_mounts(
            [*mounts, scratch(temporary), f"! touch {file.parent / 'probe'} 2>/dev/null"],
            [*ENTRY, "mirror", str(file), "--clusters", alias_of(fresh_topic), "--once", "-q"],
        ),
        cwd=tmp_path,
        env=environment | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Read-only" not in done.stderr
    assert done.stdout == "", "-q says what is wrong alone"
    assert read_all(target_cluster, f"A.{fresh_topic}") == read_all(source_cluster, fresh_topic)
