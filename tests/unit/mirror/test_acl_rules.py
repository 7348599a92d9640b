"""Which ACLs remote topics get: MirrorMaker 2's testAclFiltering and testAclTransformation, and
Twinlog's own two keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import flow_of, loader
from twinlog.mirror.names.acl_rules import AclRules
from twinlog.wire.topic_settings import ALL, READ, WRITE, Pattern, Permission, TopicAcl

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
PREFIXED = "twinlog.sync.topic.acls.prefixed = true"
REMOVAL = "twinlog.sync.topic.acls.removal = true"
DESCRIBE, ALTER = 8, 7


def acl(
    name: str,
    operation: int = READ,
    *,
    allows: bool = True,
    pattern: Pattern = Pattern.LITERAL,
    user: str = "app",
) -> TopicAcl:
    return TopicAcl(
        name=name,
        pattern=int(pattern),
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=int(Permission.ALLOW if allows else Permission.DENY),
    )


def prefix(name: str, operation: int = READ) -> TopicAcl:
    return acl(name, operation, pattern=Pattern.PREFIXED)


REMOTES = ["A.orders"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def rules(folder: Path, *lines: str) -> AclRules:
    return AclRules(flow_of(loader(folder)("topics = orders.*, \\\\*, heartbeats", *lines)))


@pytest.mark.parametrize(
    ("given", "copied"),
    [
        (acl("orders"), acl("A.orders")),
        (acl("orders", DESCRIBE), acl("A.orders", DESCRIBE)),
        (acl("orders", ALTER), acl("A.orders", ALTER)),
        (acl("orders", WRITE), None),
        (acl("orders", ALL), acl("A.orders", READ)),
        (acl("orders", WRITE, allows=False), acl("A.orders", WRITE, allows=False)),
        (acl("orders", WRITE, allows=False, user="*"), None),
        (acl("orders", ALL, allows=False, user="*"), acl("A.orders", ALL, allows=False, user="*")),
        (acl("orders", ALL, allows=False), acl("A.orders", ALL, allows=False)),
        (acl("payments"), None),
        (acl("B.orders"), None),
        (acl("orders-of-tomorrow"), None),
        (acl("*"), acl("A.*")),
        (prefix("orders"), None),
        (acl("mm2-offsets.A.internal"), None),
    ],
    ids=str,
)
def test_mirror_makers_rules(folder: Path, given: TopicAcl, copied: TopicAcl | None) -> None:
    """Twinlog copies the same ACLs as MirrorMaker 2's testAclFiltering and
    testAclTransformation.
    """
    wanted = rules(folder).target_acls([given], ["orders"])
    assert wanted == (set() if copied is None else {copied})


def test_under_the_identity_policy_names_stay(folder: Path) -> None:
    found = rules(folder, IDENTITY, PREFIXED).target_acls(
        [acl("orders"), acl("*", ALL), prefix("ord")], ["orders", "orders-2"]
    )
    all_of_it = {acl("orders", READ), acl("orders-2", READ)}
    assert found == {acl("orders"), prefix("ord"), *all_of_it}, "no right to what is no copy"


@pytest.mark.parametrize(
    ("given", "copied"),
    [
        (prefix("ord"), prefix("A.ord")),
        (prefix("orders", ALL), prefix("A.orders")),
        (prefix("ord", WRITE), None),
        (prefix("pay"), None),
        (acl("*"), prefix("A.")),
        (acl("orders"), acl("A.orders")),
    ],
    ids=str,
)
def test_prefixes_on_request(folder: Path, given: TopicAcl, copied: TopicAcl | None) -> None:
    wanted = rules(folder, PREFIXED).target_acls([given], ["orders", "orders-2"])
    assert wanted == (set() if copied is None else {copied})


def test_nothing_is_removed_from_a_topic_that_is_no_copy(folder: Path) -> None:
    there = [acl("A.orders"), acl("A.orders-2"), prefix("A.orders-")]
    assert rules(folder, REMOVAL, PREFIXED).leftover(there, set(), REMOTES) == {acl("A.orders")}


def test_nothing_is_removed_without_a_request(folder: Path) -> None:
    assert rules(folder).leftover([acl("A.orders")], set(), REMOTES) == set()


@pytest.mark.parametrize(
    ("there", "goes"),
    [
        (acl("A.orders"), True),
        (acl("A.orders", DESCRIBE, allows=False), True),
        (acl("A.orders", WRITE), False),
        (acl("A.orders", ALL), False),
        (acl("A.payments"), False),
        (acl("orders"), False),
        (acl("C.orders"), False),
        (prefix("A.orders"), False),
        (prefix("A."), False),
    ],
    ids=str,
)
def test_only_acls_that_a_sync_could_have_created_are_removed(
    folder: Path, there: TopicAcl, goes: bool
) -> None:
    assert rules(folder, REMOVAL).leftover([there], set(), REMOTES) == ({there} if goes else set())
    assert rules(folder, REMOVAL).leftover([there], {there}, REMOTES) == set()


def test_prefixes_are_removed_only_where_they_are_copied(folder: Path) -> None:
    there = [prefix("A.ord"), prefix("A.ord", WRITE), prefix("ord"), prefix("A")]
    assert rules(folder, REMOVAL, PREFIXED).leftover(there, set(), REMOTES) == {prefix("A.ord")}


def test_nothing_is_removed_if_names_do_not_show_the_origin(folder: Path) -> None:
    assert (
        rules(folder, REMOVAL, PREFIXED, IDENTITY).leftover([acl("orders")], set(), ["orders"])
        == set()
    )


def test_custom_policy_names_topics_and_no_patterns(folder: Path) -> None:
    own = rules(folder, REMOVAL, PREFIXED)
    own._stem = None
    assert own.target_acls([acl("orders"), prefix("ord")], ["orders"]) == {acl("A.orders")}
    assert own.leftover([acl("A.orders")], set(), REMOTES) == set()


def test_an_acl_in_words() -> None:
    assert str(prefix("A.ord")) == "ALLOW READ on topic A.ord* to User:app"
    other = acl("x", WRITE, allows=False)._replace(host="10.0.0.1")
    assert str(other) == "DENY WRITE on topic x to User:app from 10.0.0.1"
