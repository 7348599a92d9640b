"""Remote topics get the ACLs of their source topics (MirrorMaker 2's testSyncTopicACLs and
testNoBrokerAclAuthorizer).
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import eventually
from tests.support.groups import commit, committed
from tests.support.led_flow import led_flow
from tests.support.mirror import Mirror
from tests.support.rights import SecuredPair
from tests.support.topics import (
    allow,
    alter_topic_configs,
    create_topic,
    forbid,
    topic_configs,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import create_topic_acls, delete_topic_acls, topic_acls
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.duties.acl_sync import AclSync, acl_sync, find_acl_changes
from twinlog.control.duties.rounds import Duties, Duty
from twinlog.control.loops.guard import LoopGuard
from twinlog.errors import BrokerRefused, Fate
from twinlog.sandbox import LocalCluster
from twinlog.survey import discovery
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.topic_settings import READ, Pattern, Permission, TopicAcl

pytestmark = pytest.mark.broker

DESCRIBE = 8
numbers = itertools.count()


EVERY_SECOND = (
    "sync.group.offsets.enabled = true",
    *(f"{what}.interval.seconds = 1" for what in ("sync.group.offsets", "sync.topic.acls")),
    *(f"{what}.interval.seconds = 1" for what in ("sync.topic.configs", "emit.checkpoints")),
    *(f"{what}.interval.seconds = 1" for what in ("refresh.topics", "refresh.groups")),
)


class Guarded:
    """A topic with ACLs, and a flow whose user has all rights."""

    def __init__(self, pair: SecuredPair, folder: Path) -> None:
        number = next(numbers)
        self.pair = pair
        self.alias, self.topic = f"acl{number}", f"t{number}-orders"
        self.app = f"app{number}"
        self._path = folder / "mm2.properties"
        create_topic(pair.source, self.topic)

    def config(self, *lines: str) -> Path:
        """Write a configuration with the clusters' own user, who has all rights, and return its
        path.
        """
        text = [f"clusters = {self.alias}, B", f"{self.alias}->B.enabled = true"]
        text += [f"topics = {self.topic}.*", "replication.factor = 1", *lines]
        for alias, cluster in ((self.alias, self.pair.source), ("B", self.pair.target)):
            credentials = cluster.listeners.credentials
            assert credentials is not None
            user, password = credentials
            login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            text += [
                f"{alias}.bootstrap.servers = {cluster.bootstrap_for(cluster.listeners.internal)}",
                f"{alias}.security.protocol = SASL_PLAINTEXT",
                f"{alias}.sasl.mechanism = PLAIN",
                f'{alias}.sasl.jaas.config = {login} username="{user}" password="{password}";',
            ]
        self._path.write_text("\n".join(text) + "\n")
        return self._path

    def duty(self, *lines: str) -> AclSync:
        flow, told = led_flow(self.config(*lines))
        duty = acl_sync(flow)
        assert duty is not None
        self.told = told
        return duty

    def there(self) -> set[str]:
        """Return the ACLs on the target's remote topics of this test, as text."""
        flow, _ = led_flow(self.config())
        with ClusterClient(flow.target) as client:
            found = topic_acls(client)
        return {str(acl) for acl in found if acl.name.startswith(f"{self.alias}.")}

    def acl(self, operation: str, name: str = "", permission: str = "ALLOW") -> str:
        name = name or self.topic
        return f"{permission} {operation} on topic {self.alias}.{name} to User:{self.app}"


@pytest.fixture
def guarded(guarded_pair: SecuredPair, tmp_path: Path) -> Guarded:
    return Guarded(guarded_pair, tmp_path)


def deny(cluster_user: Guarded, operation: int) -> None:
    flow, _ = led_flow(cluster_user.config())
    acl = TopicAcl(
        name=cluster_user.topic,
        pattern=Pattern.LITERAL,
        principal=f"User:{cluster_user.app}",
        host="*",
        operation=operation,
        permission=Permission.DENY,
    )
    with ClusterClient(flow.source) as client:
        create_topic_acls(client, [acl])


@pytest.mark.witness("remote topics get the ACLs that MirrorMaker 2 would give them")
def test_a_mirror_ends_with_mirror_makers_acls(guarded: Guarded) -> None:
    source = guarded.pair.source
    allow(source, guarded.app, ["read", "write", "describe"], topic=guarded.topic)
    allow(source, guarded.app, ["all"], topic=f"{guarded.topic}-2")
    allow(source, guarded.app, ["read"], topic=f"{guarded.topic}-", prefixed=True)
    allow(source, guarded.app, ["read"], topic=f"other-{guarded.topic}")
    allow(source, guarded.app, ["read"], topic=f"{guarded.topic}-of-tomorrow")
    create_topic(source, f"{guarded.topic}-2")
    deny(guarded, DESCRIBE)
    with Mirror(guarded.config(), once=True, lanes=1) as mirror:
        mirror.wait()
    assert guarded.there() == {
        guarded.acl("READ"),
        guarded.acl("DESCRIBE"),
        guarded.acl("DESCRIBE", permission="DENY"),
        guarded.acl("READ", f"{guarded.topic}-2"),
    }


@pytest.mark.witness("a new topic has its ACLs before its first record")
def test_topic_that_is_created_gets_its_acls_before_anything_is_copied(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = "sync.topic.acls.interval.seconds = 86400"
    monkeypatch.setattr("twinlog.control.duties.acl_sync.AclSync.round", lambda _: None)
    source, later = guarded.pair.source, f"{guarded.topic}-later"
    allow(source, guarded.app, ["read"], topic=guarded.topic)
    allow(source, guarded.app, ["read"], topic=later)
    with Mirror(guarded.config(never), lanes=1) as mirror:
        mirror.eventually(lambda parts: [part.state for part in parts] == ["AT_END"])
        assert guarded.there() == {guarded.acl("READ")}, "at the start"
        create_topic(source, later)
        mirror.discover_topics()
        mirror.eventually(lambda parts: [part.state for part in parts] == ["AT_END"] * 2)
        assert guarded.there() == {guarded.acl("READ"), guarded.acl("READ", later)}
        mirror.stop()


@pytest.mark.parametrize("dies", ["before it is planned", "before it counts as begun"])
def test_topic_whose_creator_died_gets_its_acls_before_anything_is_copied(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """A process died directly after it had created the remote topic, so the next discovery does not
    know who created it. The topic must still get its ACLs before its first record is copied.
    """
    monkeypatch.setattr("twinlog.control.duties.acl_sync.AclSync.round", lambda _: None)
    allow(guarded.pair.source, guarded.app, ["read"], topic=guarded.topic)
    where: tuple[Any, str] = (discovery, "_plan")
    if dies == "before it counts as begun":
        where = (LoopGuard, "_write")
    call, died = getattr(*where), list[str]()

    def dying(*arguments: Any) -> Any:
        made = f"{guarded.alias}.{guarded.topic}" in topic_names(guarded.pair.target)
        if made and not died:
            died.append(dies)
            raise BrokerRefused("the process dies here", fate=Fate.RETRIABLE)
        return call(*arguments)

    monkeypatch.setattr(*where, dying)
    with Mirror(guarded.config(), lanes=1) as mirror:
        mirror.eventually(lambda parts: [part.state for part in parts] == ["AT_END"])
        mirror.stop()
    assert died == [dies]
    assert guarded.there() == {guarded.acl("READ")}


def test_configs_acls_and_groups_of_a_released_topic_stay_untouched(
    guarded: Guarded, tmp_path: Path
) -> None:
    """A released remote topic belongs to another client. Neither the mirror that runs nor one that
    is started later changes its configs, ACLs or group offsets.
    """
    source, target = guarded.pair.source, guarded.pair.target
    group, freed = f"{guarded.alias}-shop", f"{guarded.topic}-freed"
    create_topic(source, freed)
    topics = (guarded.topic, freed)
    remote, remote_freed = (f"{guarded.alias}.{topic}" for topic in topics)
    config = tmp_path / "every-second.properties"
    config.write_text(guarded.config(f"groups = {group}", *EVERY_SECOND).read_text())

    def change(operation: str, retention_ms: str, offset: int) -> None:
        """Make the same changes to both topics. Return when the topic that is still mirrored has
        them on the target.
        """
        for topic in topics:
            allow(source, guarded.app, [operation], topic=topic)
            alter_topic_configs(source, topic, {"retention.ms": retention_ms})
            commit(source, group, topic, offset)
        eventually(lambda: guarded.acl(operation.upper()) in guarded.there())
        eventually(lambda: topic_configs(target, remote).get("retention.ms") == retention_ms)
        eventually(lambda: committed(target, group, remote) == offset)

    def freed_as_it_was() -> None:
        assert {one for one in guarded.there() if freed in one} == {guarded.acl("READ", freed)}
        assert topic_configs(target, remote_freed).get("retention.ms") == "7200000"
        assert committed(target, group, remote_freed) == 4

    for topic in topics:
        produce(source, topic, [Outgoing(value=b"%d" % n) for n in range(9)])
    with Mirror(config, lanes=1) as mirror:
        change("read", "7200000", 4)
        eventually(lambda: committed(target, group, remote_freed) == 4)
        eventually(lambda: guarded.acl("READ", freed) in guarded.there())
        eventually(lambda: topic_configs(target, remote_freed).get("retention.ms") == "7200000")
        assert run(["topic", "release", str(config), "--topics", freed]) == 0
        mirror.eventually(lambda parts: "RELEASED" in [part.state for part in parts])
        change("describe", "7300000", 6)
        freed_as_it_was()
        mirror.stop()
    with Mirror(config, lanes=1) as mirror:
        change("alter", "7400000", 8)
        freed_as_it_was()
        mirror.stop()


def test_once_ends_with_configs_acls_checkpoints_and_groups_though_a_topic_failed(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = guarded.pair.source, guarded.pair.target
    bad, group = f"{guarded.topic}-bad", f"{guarded.alias}-shop"
    remote, remote_bad = (f"{guarded.alias}.{name}" for name in (guarded.topic, bad))
    create_topic(source, bad, configs={"retention.ms": "7200000"})
    create_topic(target, remote_bad)
    for cluster, topic in ((source, guarded.topic), (source, bad), (target, remote_bad)):
        produce(cluster, topic, [Outgoing(value=b"%d" % n) for n in range(9)])
    allow(source, guarded.app, ["read"], topic=guarded.topic)
    commit(source, group, guarded.topic, 4)
    rounds: list[str] = []
    real = Duties._round

    def seen(duties: Duties, duty: Duty, *more: Any) -> float | None:
        rounds.append(duty.name)
        return real(duties, duty, *more)

    monkeypatch.setattr(Duties, "_round", seen)
    config = guarded.config(f"groups = {group}", "sync.group.offsets.enabled = true")
    with Mirror(config, once=True, lanes=1) as mirror:
        (flow,) = mirror.wait()
    states = {part.topic: (part.state, part.code) for part in flow.partitions}
    assert states == {guarded.topic: ("DONE", ""), bad: ("FAILED", "FOREIGN_DATA")}
    order = ["topic configs", "topic ACLs", "checkpoints"]
    assert [name for name in rounds if name in order] == order, rounds
    assert topic_configs(target, remote_bad) == {}, "a stranger's topic is left alone"
    eventually(lambda: guarded.there() == {guarded.acl("READ")})
    assert committed(target, group, remote) == 4
    (checkpoint,) = [
        Checkpoint.decode(one.key, one.value)
        for one in read_all(target, f"{guarded.alias}.checkpoints.internal")
    ]
    assert (checkpoint.group, checkpoint.downstream_offset) == (group, 4)


def test_only_missing_acls_are_created_and_none_is_removed(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlog.control")
    source, target = guarded.pair.source, guarded.pair.target
    create_topic(target, f"{guarded.alias}.{guarded.topic}")
    allow(source, guarded.app, ["read"], topic=guarded.topic)
    duty = guarded.duty()
    duty.round()
    duty.round()
    created = [r.getMessage() for r in caplog.records if "created" in r.getMessage()]
    assert created == [f"{guarded.alias}->B: 1 ACL created: {guarded.acl('READ')}"]
    allow(target, guarded.app, ["describe"], topic=f"{guarded.alias}.{guarded.topic}")
    forbid(source, guarded.app, ["read"], topic=guarded.topic)
    duty.round()
    eventually(lambda: guarded.there() == {guarded.acl("READ"), guarded.acl("DESCRIBE")})


def test_check_says_which_acls_would_be_made_and_makes_none(guarded: Guarded) -> None:
    allow(guarded.pair.source, guarded.app, ["read"], topic=guarded.topic)
    (report,) = check(load(guarded.config(), environment={})).flows
    assert report.changes == [f"1 ACL to be created: {guarded.acl('READ')}"]
    eventually(lambda: guarded.there() == set())


def test_diff_shows_which_acls_the_target_lacks(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(guarded.pair.target, f"{guarded.alias}.{guarded.topic}")
    allow(guarded.pair.source, guarded.app, ["read"], topic=guarded.topic)
    command = ["diff", str(guarded.config("heartbeats.replication.enabled = false"))]
    assert run(command) == 1
    said = capsys.readouterr().out
    assert f"{guarded.acl('READ')}" in said
    assert "missing" in said
    # the missing right concerns another topic, so it is not reported
    assert run([*command, "--topics", "other"]) == 0
    duty = guarded.duty()
    duty.round()
    duty.close()
    assert run(command) == 0


def test_prefixes_and_removal_on_request(guarded: Guarded) -> None:
    source, target = guarded.pair.source, guarded.pair.target
    create_topic(target, f"{guarded.alias}.{guarded.topic}")
    allow(source, guarded.app, ["read"], topic=guarded.topic[:-3], prefixed=True)
    allow(source, guarded.app, ["read"], topic=guarded.topic)
    duty = guarded.duty(
        "twinlog.sync.topic.acls.prefixed = true", "twinlog.sync.topic.acls.removal = true"
    )
    allow(target, guarded.app, ["write"], topic=f"{guarded.alias}.{guarded.topic}")
    allow(target, guarded.app, ["read"], topic=f"{guarded.alias}.other")
    duty.round()
    kept = {guarded.acl("WRITE"), guarded.acl("READ", "other")}
    prefix = guarded.acl("READ", f"{guarded.topic[:-3]}*")
    eventually(lambda: guarded.there() == kept | {prefix, guarded.acl("READ")})
    forbid(source, guarded.app, ["read"], topic=guarded.topic)
    duty.round()
    eventually(lambda: guarded.there() == kept | {prefix})


@pytest.mark.witness("a source without an authorizer has no ACLs to copy")
def test_without_an_authorizer_there_is_nothing_to_do(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The source has no authorizer, so there are no ACLs to copy. Two rounds of the ACL sync log
    this once at INFO, and report no problem.
    """
    caplog.set_level(logging.INFO, "twinlog.control")
    create_topic(source_cluster, fresh_topic)
    create_topic(target_cluster, f"A.{fresh_topic}")
    config = tmp_path / "mm2.properties"
    config.write_text(
        "clusters = A, B\nA->B.enabled = true\nreplication.factor = 1\n"
        f"topics = {fresh_topic}\n"
        f"A.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n"
    )
    flow, told = led_flow(config)
    duty = acl_sync(flow)
    assert duty is not None
    duty.round()
    duty.round()
    lines = [r for r in caplog.records if "no ACLs to copy" in r.getMessage()]
    assert [(r.levelno, "SECURITY_DISABLED" in r.getMessage()) for r in lines] == [
        (logging.INFO, True)
    ]
    assert "cluster A" in lines[0].getMessage()
    assert told == []


def test_many_acls_go_in_several_requests(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.cluster.topics.acls.ACLS_PER_REQUEST", 2)
    flow, _ = led_flow(guarded.config("twinlog.sync.topic.acls.removal = true"))
    acls = [
        TopicAcl(
            name=f"{guarded.topic}-{n}",
            pattern=Pattern.LITERAL,
            principal=f"User:{guarded.app}",
            host="*",
            operation=READ,
            permission=Permission.ALLOW,
        )
        for n in range(5)
    ]
    with ClusterClient(flow.source) as source, ClusterClient(flow.target) as target:
        create_topic_acls(source, acls)
        remotes = {acl.name: f"{guarded.alias}.{acl.name}" for acl in acls}
        found = find_acl_changes(flow.config, remotes, source, target)
        assert len(found.missing) == 5
        create_topic_acls(target, found.missing)
        assert find_acl_changes(flow.config, remotes, source, target).missing == ()
        delete_topic_acls(source, acls)
        left = find_acl_changes(flow.config, remotes, source, target).leftover
        assert left == found.missing
        delete_topic_acls(target, left)
        delete_topic_acls(target, left)  # deleting ACLs that no longer exist is no error
    eventually(lambda: guarded.there() == set())


@pytest.mark.parametrize(
    "line", ["sync.topic.acls.enabled = false", "topic.creation.enable = false"]
)
def test_it_can_be_turned_off(guarded: Guarded, line: str) -> None:
    flow, _ = led_flow(guarded.config(line))
    assert acl_sync(flow) is None
