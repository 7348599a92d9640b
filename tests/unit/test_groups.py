"""Tests that share an expensive resource run in one process, one after the other.

pytest-xdist reads the groups from the IDs of tests. If a new version of pytest changes these IDs,
no test fails, but every process starts every cluster and every Spark. The suite then takes twice as
long.
"""

import os

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_seen(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@groups")
