"""`twinlog.rename`: the names that rules give to topics, and rules that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import loader
from twinlog.config.values.origin import Setting
from twinlog.config.values.renames import Renames, to_renames
from twinlog.errors import ConfigError

BASE = [
    "clusters = A, B",
    "A.bootstrap.servers = a:9092",
    "B.bootstrap.servers = b:9092",
    "A->B.enabled = true",
]


def renames(text: str) -> Renames:
    return to_renames(Setting(key="twinlog.rename", value=text, file="mm2.properties", line=1))


@pytest.mark.parametrize(
    ("rules", "topic", "name"),
    [
        ("orders:eu-orders, pay-(.*):pay.$1", "orders", "eu-orders"),
        ("orders:eu-orders, pay-(.*):pay.$1", "pay-in", "pay.in"),
        ("orders:eu-orders, pay-(.*):pay.$1", "orders2", "orders2"),
        ("orders:eu-orders, pay-(.*):pay.$1", "my-pay-in", "my-pay-in"),
        ("or.*:first, orders:second", "orders", "first"),
        ("orders:orders, .*:other", "orders", "orders"),
        (r"(?:a|b)-(\w+)-(\w+):$2_$1", "a-x-y", "y_x"),
        ("(?i)ORDERS:x", "orders", "x"),
        ("(a)?(b):$1$2", "b", "b"),
        ("([a-z]+)1:$12", "abc1", "abc2"),
        (r"a:\b\.c", "a", "b.c"),
        (".*:$0.old", "orders", "orders.old"),
        (r"\Qa.b\E:c", "a.b", "c"),
        ("(.*):eu-$1", "*", "*"),
        ("", "orders", "orders"),
    ],
    ids=str,
)
def test_the_first_rule_that_matches_the_whole_name_counts(
    rules: str, topic: str, name: str
) -> None:
    assert renames(rules).name(topic) == name


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("orders", '"orders" is not pattern:name'),
        ("orders:", '"orders:" is not pattern:name'),
        (":orders", '":orders" is not pattern:name'),
        ("[a-z]{1,2}:x", "a comma ends a rule"),
        ("or(ders:x", "not a valid regular expression"),
        ("(a+)+:x", "not a valid regular expression"),
        ("orders:$1", "uses $1, but its expression has 0 groups"),
        ("(.*):x${name}", "uses ${"),
        ("(.*):x$", "uses $"),
        ("orders:eu\\", "ends with a single"),
        ("orders:eu/orders", "an invalid topic name"),
        ("(.*):eu $1", "an invalid topic name"),
        ("orders:..", "an invalid topic name"),
        ("orders:" + "x" * 250, "a name of 250 characters"),
        ("(a)" * 10 + ":x", "has 10 groups"),
    ],
    ids=lambda one: one[:20],
)
def test_a_rule_that_can_mean_no_name_is_refused(rules: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        renames(rules)
    assert words in str(refused.value)
    assert "twinlog.rename" in str(refused.value)


@pytest.mark.parametrize("suffix", ["prefixed", "removal"])
def test_acls_that_go_by_the_beginning_of_a_name_are_refused_beside_it(
    tmp_path: Path, suffix: str
) -> None:
    acls = f"twinlog.sync.topic.acls.{suffix} = true"
    loader(tmp_path)(acls, "twinlog.rename =", base=BASE)
    with pytest.raises(ConfigError, match="remove one of the two lines"):
        loader(tmp_path)(acls, "twinlog.rename = a:b", base=BASE)


def test_a_policy_of_the_user_s_own_names_topics_itself(tmp_path: Path) -> None:
    policy = "replication.policy.class = twinlog.mirror.names.naming:DefaultReplicationPolicy"
    with pytest.raises(ConfigError, match="names the topics itself"):
        loader(tmp_path)(policy, "twinlog.rename = a:b", base=BASE)


def test_a_flow_has_rules_of_its_own(tmp_path: Path) -> None:
    config = loader(tmp_path)("twinlog.rename = a:b", "A->B.twinlog.rename = a:c", base=BASE)
    assert config.flows[0].policy.renames.name("a") == "c"


def test_a_flow_without_rules_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    own = "twinlog.mirror.names.naming:DefaultReplicationPolicy"
    lines = ("twinlog.rename = orders:eu-orders", f"A->B.replication.policy.class = {own}")
    with pytest.raises(ConfigError, match="names the topics itself"):
        loader(tmp_path)(*lines, base=BASE)
    (flow,) = loader(tmp_path)(*lines, "A->B.twinlog.rename =", base=BASE).flows
    assert flow.policy.custom == own
    assert not flow.policy.renames
