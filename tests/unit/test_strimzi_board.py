"""docs/monitoring.md lists exactly the panels of Strimzi's dashboard that show data with Twinlog's
series.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.support.strimzi_board import (
    EXPORTER,
    LAYOUTS,
    REPORTER,
    Panels,
    Selected,
    documented,
    expressions,
    published,
    selected_by,
)
from twinlog import metrics

SCRAPE: Final = Path(__file__).parents[2] / "deploy" / "prometheus" / "twinlog.scrape.yml"
LABELS: Final = {metric.name: metric.labels for metric in metrics.ALL}
OTHER_TITLES: Final = {
    "Connector - Producer Available Buffer": "Source Connector - Producer Available Buffer"
}
"""Titles of the panels whose title differs in the other layout."""


def scraped() -> set[str]:
    """Return the labels that the scrape configuration adds to every series."""
    (job,) = yaml.safe_load(SCRAPE.read_text())["scrape_configs"]
    rules = job["relabel_configs"]
    return {rule["target_label"] for rule in rules if "target_label" in rule}


def is_served(one: Selected) -> bool:
    """Return True if the series exists with all labels that the panel needs."""
    needed = {*one.by, *(label for label, _, _ in one.matchers)}
    return one.name in LABELS and needed <= {*LABELS[one.name], *scraped()}


def filled(panels: Panels) -> set[str]:
    return {
        OTHER_TITLES.get(title, title) for title, of in panels.items() if all(map(is_served, of))
    }


def test_each_panel_is_explained_in_its_row() -> None:
    titles = {OTHER_TITLES.get(title, title) for panels in LAYOUTS.values() for title in panels}
    assert set(documented()) == titles


def test_a_row_says_whether_the_panel_shows_data() -> None:
    for_exporter, for_reporter = filled(EXPORTER), filled(REPORTER)
    said = {
        title: "yes"
        if title in for_exporter & for_reporter
        else "with the JMX exporter's names"
        if title in for_exporter
        else "with the Metrics Reporter's names"
        if title in for_reporter
        else "no"
        for title in documented()
    }
    # depends on the names of the pods, which only the operator of the cluster knows
    said["CPU Usage"] = "if the names match"
    assert said == {title: shows for title, (shows, _) in documented().items()}


def test_a_row_names_the_series_that_fill_its_panel() -> None:
    for title, (shows, why) in documented().items():
        for panels in (EXPORTER, REPORTER) if shows == "yes" else ():
            other = next((one for one, same in OTHER_TITLES.items() if same == title), title)
            for one in panels.get(title) or panels[other]:
                short = re.sub(
                    r"^kafka_connect_mirror_mirror\w+connector_|(_avg|_min|_max)$", "", one.name
                )
                assert f"`{short}`" in why, (title, one.name)


@pytest.mark.parametrize("path", LAYOUTS)
def test_facts_are_those_of_the_published_board(path: str) -> None:
    board = published(path)
    if board is None:
        pytest.skip("needs TWINLOG_STRIMZI, a checkout of strimzi-kafka-operator 1.2.0")
    found = defaultdict[str, set[Selected]](set)
    for title, expression in expressions(board):
        found[title].update(selected_by(expression))
    assert found == {
        title: {one._replace(matchers=tuple(sorted(one.matchers))) for one in of}
        for title, of in LAYOUTS[path].items()
    }
