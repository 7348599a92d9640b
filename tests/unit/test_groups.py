"""Tests that share an expensive resource run in one process, one after the other.

pytest-xdist reads the groups from the ids of tests. With a pytest that it does not know yet nothing
fails: every process starts every cluster and every Spark, and the suite takes twice as long.
"""

import os

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_seen(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@groups")
