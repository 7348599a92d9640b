"""The configuration and the conclusions of a drill, without brokers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.settings import settings_for
from twinlog.cli.commands.drill import interrupting
from twinlog.cluster.client import ClusterClient
from twinlog.config.config_file import read_raw
from twinlog.config.load import load
from twinlog.control.cutover.switchover import FenceKind
from twinlog.control.drill import cleaning
from twinlog.control.drill.cleaning import DRILL_NAME, DrillNames, Part
from twinlog.control.drill.drill import DrillPlan, DrillResult, TopicShape, drill_text, page
from twinlog.control.drill.rehearsal import Defect, Load, Measurements, findings, read_again
from twinlog.model import Flow, TopicPartition

TP = TopicPartition("orders", 0)
NAMES = DrillNames("twinlog-drill-0123abcd")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([0, 1, 2, 3], []),
        ([0, 1, 3], ["1 record lost: 2"]),
        ([0, 1, 1, 2, 3], ["1 record doubled: 1"]),
        ([0, 2, 1, 3], ["1 record moved: 1"]),
        ([0, 1, 2, 3, -1], ["1 record not written by the drill: -1", "1 record moved: -1"]),
        ([1, 1, 0], ["2 records lost: 2, 3", "1 record doubled: 1", "1 record moved: 0"]),
        ([], ["4 records lost: 0, 1, 2 and 1 more"]),
    ],
)
def test_each_record_once_and_in_order(found: list[int], said: list[str]) -> None:
    assert [one.what for one in findings("switchover", "log", TP, found, range(4))] == said


def test_records_read_twice() -> None:
    assert read_again([0, 1, 1, 2, 0]) == 2


def test_a_flow_under_names_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, A.B, C\nA.bootstrap.servers = a:1\nA.B.bootstrap.servers = b:1\n"
        "C.bootstrap.servers = c:1\nA.B.sasl.jaas.config = ${env:JAAS}\n"
        "A->A.B.enabled = true\nA->C.enabled = true\nA->A.B.topics = orders.*\n"
        "A->A.B.emit.checkpoints.interval.seconds = 7\nA->A.B.twinlog.rpo.enforce = quota\n"
        "A->A.B.transforms = all\nA->A.B.transforms.all.type = Filter\npredicates = p\n"
        "twinlog.rpo.seconds = 9\nlisteners = http://:8080\ntopics.exclude = .*\n"
    )
    raw = read_raw(path)
    text = drill_text(raw, Flow("A", "A.B"), NAMES, {Part.SWITCHOVER: 2, Part.FAILOVER: 1})
    made = tmp_path / "drill.properties"
    made.write_text(text)
    config = load(made, environment={"JAAS": "x"})
    first, second = config.flows
    assert first.flow == Flow("twinlog-drill-0123abcds-A", "twinlog-drill-0123abcds-A.B")
    assert second.flow.source == "twinlog-drill-0123abcdf-A"
    assert "${env:JAAS}" in text, "secrets stay where they are"
    for gone in (
        "orders",
        "8080",
        "enforce",
        "c:1",
        "topics.exclude = .*",
        "transforms",
        "predicates",
    ):
        assert gone not in text
    assert first.rpo_seconds == 9
    assert not first.rpo_enforced
    assert first.heartbeats == ()
    assert first.topics.matches("twinlog-drill-0123abcds-1.internal")
    assert not first.topics_exclude.matches("twinlog-drill-0123abcds-1.internal")
    assert not second.topics.matches("twinlog-drill-0123abcds-1.internal")
    assert first.groups.selects("twinlog-drill-0123abcds-0")


def test_only_its_own_names_are_removed() -> None:
    ours = [
        NAMES.topic(Part.FAILOVER, 0),
        f"{NAMES.alias(Part.SWITCHOVER, 'A')}.{NAMES.topic(Part.SWITCHOVER, 0)}",
        f"mm2-offset-syncs.{NAMES.alias(Part.SWITCHOVER, 'B')}.internal",
        f"twinlog-{NAMES.alias(Part.FAILOVER, 'A')}->{NAMES.alias(Part.FAILOVER, 'B')}",
    ]
    assert all(map(DRILL_NAME.search, ours))
    theirs = ["twinlog-drill-", "twinlog-drill-results", "orders", "twinlog-drill-0123abcd-x"]
    assert not any(map(DRILL_NAME.search, theirs))


def test_a_page_shows_the_results() -> None:
    plan = DrillPlan(
        flow="A->B",
        shapes=(TopicShape(topic="<orders>", partitions=1, replicas=1),),
        fence=FenceKind.ACL,
        load=Load(),
        parts=(Part.SWITCHOVER,),
    )
    result = DrillResult(plan=plan, mark=NAMES.mark, began_ms=0)
    assert result.is_green
    assert "<span class=green>green</span>" in page(result)
    finding = Defect(part="switchover", where="the log of <x>", what="1 record lost: 3")
    result.outcomes.append(Measurements(part=Part.SWITCHOVER, findings=[finding]))
    text = page(result)
    assert "<span class=red>red</span>" in text
    assert "the log of &lt;x&gt;: 1 record lost: 3" in text
    assert "<orders>" not in text


@pytest.mark.parametrize("broken", [{"problem": "the mirror ended"}, {"is_clean": False}])
def test_it_is_red_where_it_ended_early_or_left_something(broken: dict[str, object]) -> None:
    plan = DrillPlan(flow="A->B", shapes=(), fence=FenceKind.NONE, load=Load(), parts=())
    result = DrillResult(plan=plan, mark=NAMES.mark, began_ms=0)
    for name, value in broken.items():
        setattr(result, name, value)
    assert not result.is_green


def test_an_unreachable_cluster_during_the_cleanup_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster is unreachable while a drill cleans up. The cleanup must print this and not raise
    it. Otherwise the other cluster would not be cleaned up, and there would be no report.
    """
    monkeypatch.setattr(cleaning, "WITHIN_S", 0.0)
    said: list[str] = []
    with ClusterClient(settings_for("127.0.0.1:1"), api_timeout_s=0.3) as client:
        assert not cleaning.clean(client, "twinlog-drill-0123abcd", said.append)
    assert "left: cluster A: what a drill left there is unknown" in said[0]


def test_a_terminal_that_is_closed_ends_it_as_an_interrupt_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # with nohup, SIGHUP would be ignored
    try:
        with pytest.raises(KeyboardInterrupt), interrupting():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_closed_does_not_end_it_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupting():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
