"""Prometheus itself evaluates the alert rules and the dashboard on the metrics of a real mirror."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.board import queries
from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import commit
from tests.support.mirror import Mirror
from tests.support.monitor import Series, ask, series, served
from tests.support.prometheus import RULES, Prometheus, check, promtool, steady
from tests.support.rig import Rig
from tests.support.strimzi_board import (
    EXPORTER,
    LAYOUTS,
    documented,
    expressions,
    published,
    with_variables,
)
from twinlog.config.series import ALL_SERIES, SeriesConfig
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.server import WebServer
from twinlog.spark.jvm_use import JvmUse

pytestmark = [pytest.mark.faults, pytest.mark.broker]

STRIMZI: Final = {
    "namespace": "kafka",
    "strimzi_io_kind": "KafkaMirrorMaker2",
    "strimzi_io_cluster": "shop",
    "kubernetes_pod_name": "shop-0",
}
"""Labels that the scrape configuration of Strimzi's examples adds to every series of a pod. Here
`twinlog.metrics.labels` adds them.
"""

SPARK: Final = JvmUse(heap_bytes=1, nonheap_bytes=1, threads=1, collection_s=(("Copy", 0.1),))
"""Resource use of Spark's JVM, as it appears in the metrics. The mirror of these tests has no JVM
(`spark/test_service.py` tests a real one).
"""


@contextmanager
def mirrored(rig: Rig, serves: SeriesConfig = ALL_SERIES) -> Iterator[WebServer]:
    """A mirror that has copied ten records, and writes checkpoints of a group whose offset is at
    their end.
    """
    rig.create()
    rig.put(range(10))
    group = f"shop-{rig.alias}"
    commit(rig.source, group, rig.topic, 10)
    keys = {
        f"{rig.flow}.groups": group,
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "twinlog.rpo.seconds": "300",
    }
    monitor = Monitor(series=serves)
    monitor.note_jvm(SPARK)
    with Mirror(rig.config(keys), lanes=1, on_snapshot=monitor.update), served(monitor) as server:
        rig.copied(10)
        yield server


def stop_partition(rig: Rig) -> None:
    """Write to the remote topic as another client, so that the partition stops."""
    produce(rig.target, rig.remote, [Outgoing(b"x", b"u900")])
    rig.put(range(10, 15))


def when(server: WebServer, name: str) -> Series:
    """Return all series as soon as one has this name."""

    def look() -> Series:
        found = series(ask(server.address, "/metrics").body)
        assert any(one == name for one, _ in found)
        return found

    return eventually(look)


def test_every_panel_shows_something_of_a_real_flow(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # retention is checked as soon as a partition has any lag
    for name in ("BEHIND_FOR_S", "BEHIND_EVERY_S"):
        monkeypatch.setattr(f"twinlog.control.risk.source_watch.{name}", 1)
    monkeypatch.setattr("twinlog.control.duties.verification.ROUND_S", 0.5)
    promtool()  # skips the test before anything is started if promtool is missing
    with (
        mirrored(rig, SeriesConfig(labels=tuple(STRIMZI.items()))) as server,
        Prometheus(tmp_path, server.address) as prometheus,
    ):
        # a stopped partition is not verified, so wait for a verification before stopping it
        when(server, "twinlog_verified_timestamp_seconds")
        stop_partition(rig)
        for query in queries():
            yields(prometheus, query.of(rig.alias, rig.target_alias))
        for expression in strimzi_expressions():
            yields(prometheus, expression)
        (code,) = prometheus.query("twinlog_partition_error == 1")
        assert (code.labels["topic"], code.labels["code"]) == (rig.topic, "EXTRA_RECORDS")

        def evaluated() -> list[Mapping[str, Any]]:
            rules = prometheus.rules()
            assert all(rule["health"] != "unknown" for rule in rules)
            return rules

        assert {rule["name"]: rule.get("lastError", "") for rule in eventually(evaluated)} == {
            rule["alert"]: "" for rule in rules_of_file()
        }


def strimzi_expressions() -> Iterator[str]:
    """Return the expressions of Strimzi's dashboards that have data according to
    docs/monitoring.md. They are read from the published dashboards if available; otherwise the
    series that the dashboards select are returned.
    """
    shows = {title: says for title, (says, _) in documented().items()}
    for path, panels in LAYOUTS.items():
        board = published(path)
        for title, of in panels.items():
            says = shows.get(title) or shows[f"Source {title}"]
            if says == "yes" or (panels is EXPORTER and "exporter" in says):
                found = (one.expression for one in of)
                if board is not None:
                    found = (text for at, text in expressions(board) if at == title)
                yield from (with_variables(one, "shop", "kafka") for one in found)


def yields(prometheus: Prometheus, expression: str) -> None:
    """Wait until the expression has a value. Rates need two scrapes, and some series appear
    late.
    """
    eventually(lambda: prometheus.query(expression), what=expression)


def rules_of_file() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


SCRAPE: Final = {"job": "twinlog", "instance": "localhost:9405"}
MINUTES: Final = 300
"""Length of the simulated time in minutes. It is longer than the `for` duration of every alert."""
ENDS_AFTER: Final = 250
LATER: Final = "280m"
"""Time of the evaluation. A series that ended at `ENDS_AFTER` minutes is still shown, because
alerts look back for an hour.
"""


def unchanged(found: Series) -> Series:
    return found


def all_are(name: str, value: float) -> Callable[[Series], Series]:
    """Return a change that sets every series of this name to this value."""
    return lambda found: {key: value if key[0] == name else was for key, was in found.items()}


def in_state(state: str) -> Callable[[Series], Series]:
    """Return a change that puts the flow into another state."""
    name = "twinlog_flow_state"
    return lambda found: {
        key: float(("state", state) in key[1]) if key[0] == name else was
        for key, was in found.items()
    }


def topics_are_paused(found: Series) -> Series:
    """Return the series as they are after the partition's topic was paused."""
    name = "twinlog_partitions"
    ((key, labels),) = (key for key in found if key[0] == name)
    paused = tuple(sorted((dict(labels) | {"state": "PAUSED"}).items()))
    return {one: was for one, was in found.items() if one[0] != name} | {(key, paused): 1.0}


def rpo_is_exceeded(found: Series) -> Series:
    changed = all_are("twinlog_flow_loss_seconds", 600)(found)
    return all_are("twinlog_flow_rpo_exceeded", 1)(changed)


def retention_is_near(found: Series) -> Series:
    """Return the series as they are when waiting records are about to be deleted by retention."""
    waiting = (labels for name, labels in found if name == "twinlog_lag_records")
    return {**found, **{("twinlog_retention_left_seconds", one): 600.0 for one in waiting}}


def certificate_ends(found: Series) -> Series:
    """Return the series with a certificate that is about to expire. The time of these tests begins
    in 1970.
    """
    (source,) = {dict(labels)["source"] for name, labels in found if name == "twinlog_flow_ready"}
    labels = (("cluster", source), ("what", CERTIFICATE))
    return {**found, ("twinlog_certificate_expiry_timestamp_seconds", labels): 280 * 60.0 + 600}


CERTIFICATE: Final = "client certificate"
FLOW: Final = ("source", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A change of the series that causes exactly one alert. `labels` are the labels of this
    alert.
    """

    change: Callable[[Series], Series]
    labels: tuple[str, ...] = FLOW
    value: str = "1"
    """The value that the alert's description must contain."""
    ends: str | None = None
    """Text that occurs in the names of the series that end before the evaluation; None if no series
    ends.
    """
    with_it: tuple[str, ...] = ()
    """Names of further alerts that the same change raises."""


TROUBLES: Final = {
    "TwinlogStandsStill": Trouble(
        change=all_are("twinlog_flow_ready", 0), labels=(*FLOW, *SCRAPE), value="0"
    ),
    "TwinlogPartitionStopped": Trouble(change=unchanged, labels=(*FLOW, "topic", "code")),
    "TwinlogLag": Trouble(
        change=all_are("twinlog_lag_seconds", 600), labels=(*FLOW, "topic"), value="10m 0s"
    ),
    "TwinlogRpo": Trouble(change=rpo_is_exceeded, labels=(*FLOW, *SCRAPE), value="10m 0s"),
    "TwinlogCopyDiffers": Trouble(
        change=all_are("twinlog_verified_differences_total", 3), value="3"
    ),
    "TwinlogRetention": Trouble(change=retention_is_near, labels=(*FLOW, "topic"), value="10m 0s"),
    "TwinlogNoLeader": Trouble(change=in_state("STANDBY"), value="0"),
    "TwinlogFlowGone": Trouble(change=unchanged, ends="source="),
    "TwinlogGone": Trouble(change=unchanged, labels=(), ends="", with_it=("TwinlogFlowGone",)),
    "TwinlogCertificateEnds": Trouble(
        change=certificate_ends, labels=("cluster", "what"), value="10m 0s"
    ),
    "TwinlogPaused": Trouble(change=in_state("PAUSED")),
    "TwinlogTopicsPaused": Trouble(change=topics_are_paused),
    "TwinlogDegraded": Trouble(change=in_state("DEGRADED")),
    "TwinlogThrottled": Trouble(change=in_state("THROTTLED")),
}


@pytest.mark.witness("each alert fires for its problem")
def test_each_alert_fires_for_its_trouble_and_no_other(rig: Rig, tmp_path: Path) -> None:
    check("check", "rules", RULES)
    with mirrored(rig) as server:
        eventually(lambda: ask(server.address, "/readyz").status == 200)
        sound = when(server, "twinlog_flow_loss_seconds")
        stop_partition(rig)
        stopped = when(server, "twinlog_partition_error")
    known = {
        **SCRAPE,
        **{"source": rig.alias, "target": rig.target_alias},
        **{"topic": rig.topic, "code": "EXTRA_RECORDS"},
        **{"cluster": rig.alias, "what": CERTIFICATE},
    }
    rules = {rule["alert"]: rule for rule in rules_of_file()}
    assert set(TROUBLES) == set(rules)
    tests = [rule_test("nothing is wrong", sound, Trouble(change=unchanged), [])]
    for alert, trouble in TROUBLES.items():
        rule = rules[alert]
        labels = {name: known[name] for name in trouble.labels}
        notes = {
            name: rendered(text, labels, trouble.value)
            for name, text in rule["annotations"].items()
        }
        scrape = stopped if alert == "TwinlogPartitionStopped" else sound
        test = rule_test(alert, trouble.change(scrape), trouble, [alert, *trouble.with_it])
        test["alert_rule_test"] = [
            {
                "eval_time": LATER,
                "alertname": alert,
                "exp_alerts": [{"exp_labels": labels | rule["labels"], "exp_annotations": notes}],
            }
        ]
        tests.append(test)
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    check("test", "rules", file)


def rule_test(name: str, scrape: Series, trouble: Trouble, firing: list[str]) -> dict[str, Any]:
    """Return a test for promtool: the same scrape repeated for the whole time, and the alerts that
    must fire at the end.
    """
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {
                "series": one,
                "values": f"{value:f}+0x{ENDS_AFTER} stale"
                if trouble.ends is not None and trouble.ends in one
                else f"{value:f}+0x{MINUTES}",
            }
            for one, value in steady(scrape, SCRAPE).items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": LATER,
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(firing)
                ],
            }
        ],
    }


def rendered(text: str, labels: Mapping[str, str], value: str) -> str:
    """Render an annotation of an alert rule. Raises KeyError if the rule uses a label that the
    alert lacks.
    """
    text = re.sub(
        r"\{\{ with \$labels\.(\w+) \}\}([^{]*)\{\{ \. \}\}\{\{ end \}\}",
        lambda found: f"{found[2]}{labels[found[1]]}" if found[1] in labels else "",
        text,
    )
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", value, text)
