"""The alert rules and the dashboard are complete, and refer only to existing series and pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support import prometheus
from tests.support.board import board, queries
from tests.support.prometheus import RULES
from twinlog import metrics
from twinlog.cli.main import COMMANDS
from twinlog.codes import FlowState, PartitionState

ROOT: Final = Path(__file__).resolve().parents[2]
(GROUP,) = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: Final = {rule["alert"]: rule for rule in GROUP["rules"]}
PROCESS: Final = {
    *("process_resident_memory_bytes", "process_cpu_seconds_total"),
    *("process_open_fds", "process_max_fds"),
}
"""Names of the series that the metrics library adds to the text."""


def series_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:twinlog|kafka|process)_\w+", expression))


EXPRESSIONS: Final = [q.expression for q in queries()] + [r["expr"] for r in ALERTS.values()]


NOT_ON_BOARD: Final[Mapping[str, str]] = {
    metrics.RECORDS.name: f"the parts of {metrics.FLOW_RECORDS.name}",
    metrics.BYTES.name: f"the parts of {metrics.FLOW_BYTES.name}",
    metrics.CLUSTER_RECORDS.name: f"the sum of {metrics.FLOW_RECORDS.name} by source, or by target",
    metrics.CLUSTER_BYTES.name: f"the sum of {metrics.FLOW_BYTES.name} by source, or by target",
    metrics.RECORD_COUNT.name: f"the number of {metrics.RECORDS.name}, by remote topic",
    metrics.RECORD_RATE.name: f"the rate of {metrics.RECORDS.name}, which the board computes",
    metrics.BYTE_COUNT.name: f"the number of {metrics.BYTES.name}, by remote topic",
    metrics.BYTE_RATE.name: f"the rate of {metrics.BYTES.name}, which the board computes",
    **{one.name: f"what {metrics.FLOW_GENERATION.name} says of each flow" for one in metrics.LED},
    **{one.name: f"the sum of {metrics.FLOW_LANES.name}" for one in metrics.CONNECTED},
    metrics.CERTIFICATE_EXPIRY.name: "of clusters with TLS alone, and its alert tells in time",
    **{one.name: f"the number of {metrics.LAG_RECORDS.name}" for one in metrics.BEHIND},
    **{one.name: f"the rate of {metrics.FLOW_RECORDS.name}" for one in metrics.TASK_RATES},
    **{one.name: f"another name of {name}" for name, one in metrics.PLUGIN_NAMES.items()},
    **{one.name: "for Strimzi's board; the doctor shows what slows a flow" for one in metrics.LOAD},
    **{one.name: "of Spark's JVM, through which no record passes" for one in metrics.JVM},
    metrics.FLOW_BATCH_LATENCY.name: (
        f"the batches of {metrics.FLOW_LATENCY_SECONDS.name}, for questions about longer times"
    ),
    metrics.FLOW_HELD_RATE.name: "only while a quota is set, which the log says",
}
"""For each series that is on no panel of deploy/grafana/twinlog-mirror.json, the reason why. All
other series are on a panel.
"""


def test_every_metric_is_on_a_panel_or_says_why_not() -> None:
    shown = set[str]().union(*(series_in(query.expression) for query in queries()))
    assert shown - PROCESS == {m.name for m in metrics.ALL} - set(NOT_ON_BOARD)
    assert set(NOT_ON_BOARD) <= {m.name for m in metrics.ALL}


def test_reasons_against_a_panel_name_series_that_exist() -> None:
    named = set[str]().union(*(series_in(reason) for reason in NOT_ON_BOARD.values()))
    assert named <= {m.name for m in metrics.ALL}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_series_and_states_are_those_of_the_catalogue(expression: str) -> None:
    found = series_in(expression)
    assert found
    assert found - PROCESS <= {m.name for m in metrics.ALL}
    states = set(re.findall(r'state!?="(\w+)"', expression))
    assert states <= {*FlowState, *PartitionState}


@pytest.mark.parametrize("query", queries())
def test_panels_follow_the_variables(query: Any) -> None:
    chosen = query.expression.count('{source=~"$source", target=~"$target"')
    # series about the process have no flow
    expected = 0 if "build_info" in query.expression else 1
    assert chosen == expected


def test_the_board_asks_for_its_data_source_and_flow() -> None:
    found = board()
    assert found["title"] == "Twinlog mirror"
    kinds = {one["name"]: one["type"] for one in found["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "source": "query", "target": "query"}
    used = re.findall(r"'uid': '([^']*)'", str(found["panels"]))
    assert set(used) == {"${datasource}"}


def test_panels_have_numbers_and_places_of_their_own() -> None:
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered = [(panel["title"], cells(panel["gridPos"])) for panel in panels]
    assert [(a, b) for (a, here), (b, there) in combinations(covered, 2) if here & there] == []


def cells(place: Mapping[str, int]) -> set[tuple[int, int]]:
    assert place["x"] + place["w"] <= 24
    return {
        (place["x"] + column, place["y"] + line)
        for column in range(place["w"])
        for line in range(place["h"])
    }


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_bad_it_is_and_where_to_look(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "run_first"}
    assert all(text and "\n" not in text for text in notes.values())
    runbook = re.fullmatch(r"docs/([\w-]+\.md)#([\w-]+)", notes["runbook_url"])
    assert runbook is not None
    page, anchor = runbook.groups()
    assert anchor in anchors(ROOT / "docs" / page)
    program, command, _ = notes["run_first"].split(" ", 2)
    assert program == "twinlog"
    assert command in COMMANDS


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as links use them."""
    titles = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("needed", "ends"), [(True, "fail"), (False, "skip")])
def test_without_promtool_tests_are_red_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, needed: bool, ends: str
) -> None:
    script = tmp_path / "scripts" / "promtool"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho it cannot be downloaded >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(prometheus, "ROOT", tmp_path)
    monkeypatch.setattr(prometheus, "IS_NEEDED", needed)
    with pytest.raises(getattr(pytest, ends).Exception, match="it cannot be downloaded"):
        prometheus.promtool()
    assert "export TWINLOG_PROMETHEUS=needed" in (ROOT / ".ci" / "run").read_text()


def test_the_page_names_every_alert() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert {alert for alert in ALERTS if f"`{alert}`" not in page} == set()
