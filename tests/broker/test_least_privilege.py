"""The rights of a flow on secured clusters, as in the table of docs/security.md, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import read_all
from tests.support.eventually import eventually
from tests.support.granted_flow import (
    CLUSTER,
    GROUP,
    MAP,
    MIRRORED,
    PAGE,
    PROBE,
    REMOTE,
    STATE,
    Flow,
    Row,
    warned,
)
from tests.support.groups import commit, committed
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.rights import SECRET, Grant, SecuredPair
from tests.support.settings import settings_for
from tests.support.topics import (
    allow,
    create_topic,
    delete_topic,
    topic_configs,
    topic_names,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.check.offline_status import offline_status
from twinlog.control.compare import compare_flows
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import Unauthorized

pytestmark = pytest.mark.broker

ROW: Final = re.compile(
    r"^\| ([^|]+) \| (source|target) \| `(\w+)` on ([^|]+) \| ([^|]+) \|$", re.M
)


UNTRIED: Final = "at least once"
ROWS: Final = (
    Row(
        cluster="source",
        operation="READ",
        on=MIRRORED,
        code="",
        stops="topic",
        says="does not exist on {source}, or Twinlog's user may not DESCRIBE it (READ is enough)",
    ),
    Row(cluster="source", operation="DESCRIBE_CONFIGS", on=MIRRORED),
    Row(cluster="target", operation="CREATE", on=REMOTE, stops="topic"),
    Row(cluster="target", operation="WRITE", on=REMOTE, stops="topic", checked=False),
    Row(cluster="target", operation="READ", on=REMOTE, stops="topic", checked=False),
    Row(cluster="target", operation="ALTER", on=REMOTE, stops="topic"),
    Row(
        cluster="target",
        operation="DESCRIBE_CONFIGS",
        on=REMOTE,
        checked=False,
        implied_by="ALTER_CONFIGS",
    ),
    Row(cluster="target", operation="CREATE", on=STATE, stops="flow"),
    Row(cluster="target", operation="READ", on=STATE, stops="flow"),
    Row(cluster="target", operation="WRITE", on=STATE, stops="flow"),
    Row(cluster="target", operation="DESCRIBE_CONFIGS", on=STATE),
    Row(cluster="target", operation="CREATE", on=MAP, stops="flow"),
    Row(cluster="target", operation="READ", on=MAP, stops="flow", checked=False),
    Row(cluster="target", operation="WRITE", on=MAP, stops="flow", checked=False),
    Row(cluster="target", operation="DESCRIBE_CONFIGS", on=MAP),
    Row(cluster="target", operation="CREATE", on=PROBE, guarantee=UNTRIED),
    Row(cluster="target", operation="READ", on=PROBE, guarantee=UNTRIED),
    Row(cluster="target", operation="WRITE", on=PROBE, guarantee=UNTRIED),
    Row(cluster="target", operation="READ", on=GROUP, stops="flow", code="GROUP_UNAUTHORIZED"),
    Row(
        cluster="target",
        operation="DESCRIBE_CONFIGS",
        on=CLUSTER,
        code="CLUSTER_UNAUTHORIZED",
        says="DESCRIBE_CONFIGS on the cluster",
        key="twinlog.target.producer.id.expiration.ms",
    ),
    Row(
        cluster="target",
        operation="ALTER_CONFIGS",
        on=REMOTE,
        key="sync.topic.configs.enabled=false",
    ),
    Row(
        cluster="source",
        operation="DESCRIBE",
        on=CLUSTER,
        code="CLUSTER_UNAUTHORIZED",
        key="sync.topic.acls.enabled=false",
    ),
    Row(
        cluster="target",
        operation="ALTER",
        on=CLUSTER,
        code="CLUSTER_UNAUTHORIZED",
        key="sync.topic.acls.enabled=false",
    ),
)


AMQ_SOURCE: Final = (
    Grant(operation="READ", kind="topic", name="*"),
    Grant(operation="DESCRIBE_CONFIGS", kind="topic", name="*"),
    Grant(operation="DESCRIBE", kind="group", name="*"),
    Grant(operation="DESCRIBE", kind="cluster"),
)
AMQ_TARGET: Final = (
    Grant(operation="ALL", kind="topic", name="*"),
    Grant(operation="ALL", kind="group", name="*"),
    Grant(operation="DESCRIBE", kind="cluster"),
)


@pytest.fixture
def flow(guarded_pair: SecuredPair, fresh_topic: str, tmp_path: Path) -> Flow:
    return Flow(guarded_pair, fresh_topic, tmp_path)


def once(config: Path) -> FlowSnapshot:
    with Mirror(config, once=True) as mirror:
        (found,) = mirror.wait()
    return found


# -- the table -----------------------------------------------------------------------------


@pytest.mark.witness("the rights page lists each permission that a flow needs")
def test_the_page_has_exactly_these_rows() -> None:
    written = {
        (c, operation, on): text for _, c, operation, on, text in ROW.findall(PAGE.read_text())
    }
    assert list(written) == [(row.cluster, row.operation, row.on) for row in ROWS]
    for row, text in zip(ROWS, written.values(), strict=True):
        assert f"`{row.code or 'TOPIC_UNAUTHORIZED'}`" in text, row
        assert ("The flow does not run" in text) == (row.stops == "flow"), row
        avoided_by = re.findall(r"The key `([^`]+)` avoids it", text)
        assert avoided_by == ([row.key] if row.key else []), row


def test_these_rights_are_enough(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    config = flow.only(list(ROWS))
    (report,) = check(load(config, environment={})).flows
    assert (report.problems, report.notes) == ([], [])
    for _ in range(2):  # the second start reads what the first one has written
        found = once(config)
        assert {(p.state, p.code) for p in found.partitions} == {("DONE", "")}
        assert found.guarantee == "exact"
        assert flow.is_copied()
        flow.fill()
    assert warned(caplog) == []
    assert topic_configs(flow.pair.target, flow.remote)["retention.ms"] == "77000"


@pytest.mark.witness(
    "a missing permission is reported with the ACL that grants it",
    case="source-DESCRIBE_CONFIGS-mirrored-topics",
)
@pytest.mark.parametrize("missing", ROWS, ids=str)
def test_without_this_right(missing: Row, flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    target = flow.pair.target
    taken = (missing.operation, missing.implied_by)
    rights = [row for row in ROWS if row.on != missing.on or row.operation not in taken]
    config = flow.only(rights)
    _prepare(missing, flow)
    acl = flow.grant(missing.operation, missing.on)
    resource = "the cluster" if acl.kind == "cluster" else f"{acl.kind} {acl.name}"
    if missing.on == MIRRORED:
        resource = f"topic {flow.topic}"
    elif missing.on == REMOTE:
        resource = f"topic {flow.remote}"
    says = missing.says.format(source=flow.source) or f"grant {missing.operation} on {resource}"

    (report,) = check(load(config, environment={})).flows
    problems = [problem.message for problem in report.problems]
    if not missing.checked:
        assert problems == []
    elif missing.stops and missing.code:
        (problem,) = problems
        assert says in problem
        assert report.problems[0].code == missing.code
    else:
        assert len(report.notes) == 1, report.notes
        (note,) = report.notes
        assert says in note
        assert missing.key in note
        assert problems == []

    found = once(config)
    lines = warned(caplog)
    if missing.stops == "flow":
        assert (found.state, found.code) == ("FAILED", missing.code)
        assert says in found.reason
        assert flow.remote not in topic_names(target)
        return
    assert found.guarantee == missing.guarantee
    if missing.stops == "topic" and missing.code:
        states = {(p.state, p.code) for p in found.partitions}
        # if only the topic cannot grow, its existing partitions are copied
        assert states - {("DONE", "")} == {("FAILED", missing.code)}
        assert (("DONE", "") in states) == (missing.operation == "ALTER")
        assert all(says in p.message for p in found.partitions if p.code)
        return
    (line,) = [line for line in lines if not missing.implied_by or missing.implied_by not in line]
    assert says in line
    assert missing.key in line
    assert (f"[{missing.code}]" in line) == bool(missing.code)
    assert flow.is_copied() == (not missing.stops)


def _prepare(missing: Row, flow: Flow) -> None:
    """Create the situation in which the flow needs this right."""
    target = flow.pair.target
    if missing.operation == "CREATE" and missing.on in (STATE, PROBE):
        if missing.on.strip("`") in topic_names(target):
            delete_topic(target, missing.on.strip("`"))
    elif missing.on in (STATE, PROBE) and missing.on.strip("`") not in topic_names(target):
        create_topic(target, missing.on.strip("`"), configs={"cleanup.policy": "compact"})
    elif missing.operation == "ALTER" and missing.on == REMOTE:
        create_topic(target, flow.remote, 1)
    elif missing.operation == "ALTER_CONFIGS":
        create_topic(target, flow.remote, 2, configs={"retention.ms": "66000"})
    elif missing.on == CLUSTER:
        allow(flow.pair.source, "somebody", ["read"], topic=flow.topic)
    elif missing.operation == "DESCRIBE_CONFIGS" and missing.on == MAP:
        create_topic(target, flow.grant("READ", MAP).name, configs={"cleanup.policy": "compact"})


@pytest.mark.witness("existing topics need no permission to create")
def test_create_is_not_needed_for_existing_topics(
    flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    config = flow.only(list(ROWS))
    once(config)
    flow.fill()
    config = flow.only([row for row in ROWS if row.operation != "CREATE"])
    (report,) = check(load(config, environment={})).flows
    assert (report.problems, report.notes) == ([], [])
    assert once(config).guarantee == "exact"
    assert flow.is_copied()
    assert warned(caplog) == []


def test_a_right_that_is_given_later_is_noticed(flow: Flow) -> None:
    rights = [row for row in ROWS if row.on != GROUP]
    with Mirror(flow.only(rights)) as mirror:
        eventually(lambda: "GROUP_UNAUTHORIZED" in mirror.supervisor.snapshots()[0].reason)
        flow.grant("READ", GROUP).give(flow.pair.target, flow.users[1])
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        assert flow.is_copied()
        mirror.stop()


def test_a_user_who_may_not_read_the_state_is_not_told_that_the_flow_never_ran(flow: Flow) -> None:
    assert {one.state for one in once(flow.only(list(ROWS))).partitions} == {"DONE"}
    loaded = load(flow.only([row for row in ROWS if row.on != STATE]), environment={})
    (status,) = offline_status(loaded)
    assert (status.state, status.code) == ("UNKNOWN", "TOPIC_UNAUTHORIZED")
    assert f"grant READ on topic {STATE.strip('`')}" in status.reason
    with pytest.raises(Unauthorized, match="grant READ on topic"):
        list(compare_flows(loaded, lambda _: True, with_left_alone=False, say=print))


# -- the two users of a migration ----------------------------------------------------------


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("SASL_SSL", "SCRAM-SHA-512"), ("SSL", None)], ids=["scram", "mtls"]
)
def test_the_users_of_a_migration(
    flow: Flow,
    listener: str,
    mechanism: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = flow.pair
    users = pair.user(pair.source, AMQ_SOURCE), pair.user(pair.target, AMQ_TARGET)
    group = f"shop-{flow.source}"
    commit(pair.source, group, flow.topic, 7)
    groups = (
        f"{flow.source}->{flow.target}.emit.checkpoints.enabled = true",
        "sync.group.offsets.enabled = true",
        f"groups = {group}",
    )
    config = flow.write(users, *groups, listener=listener, mechanism=mechanism)
    at_source = topic_names(pair.source)

    loaded = load(config, environment={})
    report = check(loaded, with_probe=True)
    assert (report.problems, report.flows[0].guarantee) == ((), "exact")
    (note,) = report.flows[0].notes
    assert "twinlog.target.producer.id.expiration.ms" in note

    found = once(config)
    assert {(p.state, p.code) for p in found.partitions} == {("DONE", "")}
    assert committed(pair.target, group, flow.remote) == 7
    assert f"{flow.source}.checkpoints.internal" in topic_names(pair.target)
    flow.fill()
    with Mirror(config) as mirror:
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        flow.fill()
        mirror.eventually(lambda parts: sum(p.records for p in parts) == 60)
        assert flow.is_copied()
        mirror.stop()
    (status,) = offline_status(loaded)
    assert {p.state for p in status.partitions} == {"AT_END"}

    # the test's own consumer has created the offsets topic
    assert topic_names(pair.source) - {"__consumer_offsets"} == at_source - {"__consumer_offsets"}
    assert topic_configs(pair.target, flow.remote)["retention.ms"] == "77000"
    lines = warned(caplog)
    assert [line for line in lines if "DESCRIBE_CONFIGS on the cluster" not in line] == []
    assert len(lines) == 2, "one line for each of the two runs"
    assert SECRET not in f"{report}{status}{lines}"


def test_a_known_producer_expiry_needs_no_right_and_no_line(
    flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    pair = flow.pair
    users = pair.user(pair.source, AMQ_SOURCE), pair.user(pair.target, AMQ_TARGET)
    key = f"{flow.source}->{flow.target}.twinlog.target.producer.id.expiration.ms = 86400000"
    config = flow.write(users, key)
    assert check(load(config, environment={})).flows[0].notes == []
    assert {p.state for p in once(config).partitions} == {"DONE"}
    assert warned(caplog) == []


def test_a_producer_id_needs_write_on_any_topic(
    guarded_pair: SecuredPair, fresh_topic: str
) -> None:
    pair = guarded_pair
    read = Grant(operation="READ", kind="topic", name=fresh_topic)
    write = Grant(operation="WRITE", kind="topic", name=fresh_topic)
    with client_of(pair, [read]) as reader, pytest.raises(Unauthorized, match="WRITE on a topic"):
        init_producer_id(reader)
    with client_of(pair, [write]) as writer:
        assert init_producer_id(writer).producer_id >= 0


def client_of(pair: SecuredPair, grants: list[Grant]) -> ClusterClient:
    user = pair.user(pair.target, grants)
    properties = pair.target.client_properties("SASL_PLAINTEXT", user, mechanism="PLAIN")
    plain = settings_for(properties["bootstrap.servers"])
    settings = ClusterSettings(
        alias=plain.alias,
        bootstrap=plain.bootstrap,
        security=load_security(properties, where="B"),
        client_id="test",
    )
    return ClusterClient(settings)


def test_each_right_that_a_migration_lacks_is_a_line_and_a_key_avoids_it(
    flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    """A migration has all default features enabled but lacks some rights. `check` and the mirror
    report each missing right in one line. The line names the key that disables the feature which
    needs the right. With these keys there is no such line, and nothing is written to the source.
    """
    pair, a, b = flow.pair, flow.source, flow.target
    users = pair.user(pair.source, AMQ_SOURCE), pair.user(pair.target, AMQ_TARGET)
    allow(pair.source, "somebody", ["read"], topic=flow.topic)
    on = (
        f"{a}->{b}.emit.checkpoints.enabled = true",
        f"{a}->{b}.emit.heartbeats.enabled = true",
        f"{b}->{a}.emit.heartbeats.enabled = true",
        f"{a}->{b}.emit.offset-syncs.enabled = true",
        "emit.heartbeats.interval.seconds = 1",
        f"groups = shop-{a}",
    )
    keys = {
        "DESCRIBE_CONFIGS on the cluster": "twinlog.target.producer.id.expiration.ms",
        "grant ALTER on the cluster": "sync.topic.acls.enabled=false",
        f"CREATE on topic mm2-offset-syncs.{b}.internal": "offset-syncs.topic.location=target",
        "grant CREATE on topic heartbeats": "emit.heartbeats.enabled=false",
    }
    config = flow.write(users, *on)
    notes = check(load(config, environment={})).flows[0].notes
    _emit(flow, config, lambda: len(warned(caplog)) >= len(keys))
    for said in (notes, warned(caplog)):
        assert len(said) == len(keys), said
        for acl, key in keys.items():
            (line,) = [line for line in said if acl in line]
            assert key in line

    caplog.clear()
    avoided = (
        f"{a}->{b}.twinlog.target.producer.id.expiration.ms=86400000",
        "sync.topic.acls.enabled=false",
        "offset-syncs.topic.location=target",
        f"{b}->{a}.emit.heartbeats.enabled=false",
    )
    config = flow.write(users, *(line for line in on if not line.startswith(f"{b}->")), *avoided)
    assert check(load(config, environment={})).flows[0].notes == []
    _emit(flow, config)
    assert warned(caplog) == []
    assert f"mm2-offset-syncs.{a}.internal" in topic_names(pair.target)
    assert not {"heartbeats", f"mm2-offset-syncs.{b}.internal"} & topic_names(pair.source)


def _emit(flow: Flow, config: Path, is_written: Callable[[], bool] = lambda: True) -> None:
    """Run a mirror until it has copied everything, has written some heartbeats, and `is_written`
    returns True.
    """

    def beats() -> int:
        target = flow.pair.target
        return len(read_all(target, "heartbeats")) if "heartbeats" in topic_names(target) else 0

    before = beats()
    flow.fill()
    with EmittingMirror(config) as mirror:
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        eventually(lambda: beats() > before + 2)
        eventually(is_written)
        mirror.stop()
    assert flow.is_copied()
