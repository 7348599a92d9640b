"""Clusters that several modules of one xdist group share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rights import SecuredPair, secured_pair


@pytest.fixture(scope="session")
def switchover_pair() -> Iterator[SecuredPair]:
    """Two guarded brokers for the group `switchover`; each test has topics and users of its own."""
    with secured_pair("switchover") as pair:
        yield pair
