"""Clusters that several modules of one xdist group share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.data_frames import spark_session
from tests.support.rights import SecuredPair, secured_pair


@pytest.fixture(scope="session")
def switchover_pair() -> Iterator[SecuredPair]:
    """Two guarded brokers for the group `switchover`; each test has topics and users of its own."""
    with secured_pair("switchover") as pair:
        yield pair


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """For DataFrames; gone before other tests of its group start a Spark of their own."""
    with spark_session() as session:
        yield session
