"""Chains of clusters are derived from the names of heartbeats topics."""

from __future__ import annotations

import pytest

from twinlog.client.topology import chain, fewest_hops
from twinlog.mirror.names.naming import DefaultReplicationPolicy, IdentityReplicationPolicy

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_alias="us")


@pytest.mark.parametrize(
    ("topic", "alias", "expected"),
    [
        ("topic", "source", -1),
        ("source", "source", -1),
        ("sourcetopic", "source", -1),
        ("a.topic", "b", -1),
        ("a.topic", "a", 1),
        ("b.a.topic", "b", 1),
        ("b.a.topic", "a", 2),
        ("c.b.a.topic", "a", 3),
        ("c.b.a.topic", "d", -1),
        ("a.b.a.topic", "a", 1),
    ],
)
def test_hops_are_counted_by_the_name(topic: str, alias: str, expected: int) -> None:
    assert fewest_hops(DEFAULT, [topic], alias) == expected


def test_the_shortest_way_counts() -> None:
    topics = ["heartbeats", "a.heartbeats", "b.c.a.heartbeats", "b.c.heartbeats"]
    assert [fewest_hops(DEFAULT, topics, alias) for alias in "abcd"] == [1, 1, 2, -1]
    assert fewest_hops(DEFAULT, [], "a") == -1


def test_a_chain_ends_where_a_cluster_comes_again() -> None:
    """A chain (the clusters from which a topic was copied, nearest first) ends at a cluster that
    occurs again. Under the identity policy, the upstream topic of `orders` is `orders` from the
    same cluster. So without this rule, the chain would never end.
    """
    assert list(chain(IDENTITY, "orders")) == ["us"]
    assert fewest_hops(IDENTITY, ["orders"], "eu") == -1
    assert list(chain(DEFAULT, "a.b.a.heartbeats")) == ["a", "b"]
    assert list(chain(IDENTITY, "a.b.heartbeats")) == ["a", "b"]


def test_without_an_alias_the_identity_policy_knows_no_source() -> None:
    assert list(chain(IdentityReplicationPolicy(source_alias=None), "orders")) == []
