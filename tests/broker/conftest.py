"""Clusters and sessions that several test modules of one xdist group share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.clusters import LENT
from tests.support.cutover import Case
from tests.support.data_frames import spark_session
from tests.support.rights import SecuredPair, secured_pair
from twinlog.sandbox import QUICK_JVM, LocalCluster


@pytest.fixture(params=[False, True], ids=["default", "identity"])
def case(
    request: pytest.FixtureRequest,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Case:
    """A flow with a group and its cutover commands, once under each replication policy."""
    clusters = source_cluster, target_cluster
    return Case(clusters, tmp_path, capsys, identity=request.param)


@pytest.fixture
def guarded_pair() -> SecuredPair:
    """Two brokers with ACLs, shared by several tests. Each test has its own topics and users."""
    return LENT.lend("guarded", lambda: secured_pair("guarded"))


@pytest.fixture
def four_clusters() -> list[LocalCluster]:
    """Four clusters to which no test outside this group writes, because their whole content is
    compared.
    """
    return LENT.lend("four", _four)


@contextmanager
def _four() -> Iterator[list[LocalCluster]]:
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        made = [LocalCluster(f"four{number}", jvm_flags=QUICK_JVM) for number in range(4)]
        for cluster in made:
            stack.callback(cluster.stop)
        list(pool.map(LocalCluster.start, made))
        yield made


@pytest.fixture
def spark() -> SparkSession:
    """A Spark session for DataFrames. It is stopped before other tests of its group start their own
    Spark.
    """
    return LENT.lend("spark", spark_session)
