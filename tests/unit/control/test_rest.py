"""`/api/v1` over a real socket, with flows whose numbers a test sets, and with unreachable
clusters.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.eventually import eventually
from tests.support.rest import Rest, StreamReader, rest_of
from tests.support.snapshots import PUBLISHED, flow, partition
from tools.pages import answers
from twinlog.client import steering
from twinlog.codes import PARTITION_STATES, conditions, severity_of
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.control.check import offline_status
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.duties.publication import published
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.web import server
from twinlog.control.web.api import app, inputs, leaders, shown, site
from twinlog.flow_log import FlowLog
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published import Proof, published_status

A_B = "/api/v1/flows/A-%3EB"
PASSWORD = "swordfish-1"
FILE = (
    "clusters = A, B, C\n"
    "A.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
    "C.bootstrap.servers = 127.0.0.1:3\n"
    "A->B.enabled = true\nC->B.enabled = true\ntopics = orders.*\n"
    "A.security.protocol = SASL_PLAINTEXT\nA.sasl.mechanism = PLAIN\n"
    "A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="mirror" password="{PASSWORD}";\n'
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limits, so that unreachable clusters are given up almost immediately."""
    monkeypatch.setattr(steering, "GIVES_UP_S", 0.5)
    monkeypatch.setattr(leaders, "GIVES_UP_S", 0.5)
    monkeypatch.setattr(offline_status, "GIVES_UP_S", 0.5)
    monkeypatch.setattr(leaders, "WAITED_S", 0.05)


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor()
    monitor.update(flows_now())
    return monitor


def flows_now(lag: int = 7) -> list[FlowSnapshot]:
    parts = [
        partition("orders", number, lag=number * 10, records=100 - number) for number in range(5)
    ]
    broken = partition("logs", 0, lag=lag, state="FAILED", code="RECORD_TOO_LARGE", message="no")
    return [
        flow(*parts, broken, loss_records=3, loss_ms=2500),
        flow(flow="C->B", state="STANDBY", generation=None, guarantee="", lanes=0),
    ]


@pytest.fixture
def rest(monitor: Monitor, tmp_path: Path) -> Iterator[Rest]:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    with rest_of(load(file, environment={}), file, monitor) as rest:
        yield rest


def test_flows_say_their_state_their_loss_and_how_old_that_is(rest: Rest) -> None:
    first, second = rest.get("/api/v1/flows")["flows"]
    assert (first["flow"], first["source"], first["target"]) == ("A->B", "A", "B")
    assert (first["state"], first["reportedBy"], first["lanes"]) == ("RUNNING", "here", 2)
    assert (first["partitions"], first["unusualPartitions"], first["lag"]) == (6, 1, 107)
    assert first["lagUnknownPartitions"] == 0
    assert (first["loss"]["records"], first["loss"]["ms"]) == (3, 2500)
    assert first["loss"]["objectiveMs"] is None
    assert first["sinceMs"] > 0
    assert 0 <= first["ageMs"] < 60_000
    assert first["asOfMs"] <= time.time() * 1000
    assert (second["flow"], second["state"], second["lag"]) == ("C->B", "STANDBY", None)
    assert rest.get(A_B)["flow"] == "A->B"
    assert rest.get("/api/v1/flows/A:B")["flow"] == "A->B"


def test_the_last_hour_is_shown_for_a_flow_led_by_this_process(rest: Rest) -> None:
    (row,) = rest.get(f"{A_B}/history")["rows"]
    assert 0 <= time.time() * 1000 - row.pop("atMs") < 60_000
    assert row == {
        **{"state": "RUNNING", "generation": 0, "lag": 107, "lossRecords": 3, "lossMs": 2500},
        **{"records": 590, "bytes": 60_000, "p50Ms": None, "p99Ms": None},
    }
    assert rest.get("/api/v1/flows/C->B/history")["rows"] == []
    assert rest.ask("/api/v1/flows/X->B/history").status == 404
    (row,) = rest.get(f"{A_B}/topics/orders/history")["rows"]
    assert (row["lag"], row["bytes"]) == (100, 50_000)
    assert rest.get(f"{A_B}/topics/nothing/history")["rows"] == []
    assert rest.ask("/api/v1/flows/X->B/topics/orders/history").status == 404


def test_flows_that_clusters_leaves_to_others_are_shown_and_steered(
    monitor: Monitor, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(f"{FILE}A->C.enabled = true\n")
    config = load(file, ["C"], environment={})
    assert [str(one.flow) for one in config.flows] == ["A->C"]
    with rest_of(config, file, monitor) as rest:
        found = rest.get("/api/v1/flows")["flows"]
        assert [one["flow"] for one in found] == ["A->C", "A->B", "C->B"]
        assert rest.get("/api/v1/clusters")["clusters"][1]["targetOf"] == ["A->B", "C->B"]
        assert rest.ask(f"{A_B}/pause", "POST", {"dryRun": True}).status == 503, "B is away"


def test_an_error_of_another_processs_flow_stops_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(f"{FILE}A->C.enabled = true\nA->B.sync.topic.acls.interval.seconds = soon\n")
    config = load(file, ["C"], environment={})
    assert [str(one.flow) for one in config.every_flow] == ["A->C", "C->B"]
    (found,) = (one for one in config.warnings if one.code == "NOT_SHOWN")
    assert found.line is not None
    assert "A->B runs in other processes, and is not shown by this one" in str(found)


def test_an_unreachable_target_is_reported_and_delays_no_client(rest: Rest) -> None:
    eventually(lambda: "connection refused" in rest.get(A_B)["problem"])
    assert rest.get(A_B)["state"] == "RUNNING", "its own numbers are there all the same"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["logs-0", "orders-0", "orders-1", "orders-2", "orders-3", "orders-4"]),
        ("?topic=order&sort=-lag&limit=2", ["orders-4", "orders-3"]),
        ("?sort=-lag&offset=4", ["logs-0", "orders-0"]),
        ("?sort=records&limit=1", ["orders-4"]),
        ("?sort=-topic&limit=1", ["orders-4"]),
        ("?state=FAILED", ["logs-0"]),
        ("?code=RECORD_TOO_LARGE", ["logs-0"]),
        ("?code=UNREACHABLE", []),
        ("?offset=100", []),
    ],
)
def test_partitions_are_filtered_sorted_and_paged(
    rest: Rest, query: str, expected: list[str]
) -> None:
    found = rest.get(f"{A_B}/partitions{query}")
    assert [f"{one['topic']}-{one['partition']}" for one in found["partitions"]] == expected
    total = {"?topic=order&sort=-lag&limit=2": 5, "?state=FAILED": 1, "?code=RECORD_TOO_LARGE": 1}
    assert found["total"] == total.get(query, 0 if "UNREACHABLE" in query else 6)
    assert found["reportedBy"] == "here"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["logs", "orders"]),
        ("?sort=-topic&limit=1", ["orders"]),
        ("?sort=-lag", ["orders", "logs"]),
        ("?sort=-state", ["logs", "orders"]),
        ("?sort=-unusualPartitions&limit=1", ["logs"]),
        ("?sort=partitions&offset=1", ["orders"]),
        ("?topic=ord", ["orders"]),
        ("?state=FAILED", ["logs"]),
        ("?state=AT_END&code=RECORD_TOO_LARGE", []),
    ],
)
def test_topics_are_filtered_sorted_and_paged(rest: Rest, query: str, expected: list[str]) -> None:
    found = rest.get(f"{A_B}/topics{query}")
    assert [one["topic"] for one in found["topics"]] == expected
    assert found["total"] == (2 if "limit" in query or "offset" in query else len(expected))
    assert found["reportedBy"] == "here"


@pytest.mark.parametrize("path", ["partitions?sort=-lag&topic=order", "topics?topic=o"])
def test_next_leads_through_all_pages(rest: Rest, path: str) -> None:
    kind = path.partition("?")[0]
    whole = rest.get(f"{A_B}/{path}")
    assert whole["next"] is None
    page = rest.get(f"{A_B}/{path}&limit=1")
    found = page[kind]
    while page["next"] is not None:
        page = rest.get(page["next"])
        found += page[kind]
    assert found == whole[kind]
    assert len(found) == whole["total"] > 1


def test_a_topic_sums_its_partitions_and_counts_unknown_ones() -> None:
    parts = [
        partition("orders", 0, lag=5, lag_ms=70, loss_records=2, loss_ms=30, left_ms=900, bytes=1),
        partition("orders", 1, lag=None, loss_records=None, is_left_known=False, bytes=2),
        partition("orders", 2, lag=4, state="FAILED", code="DIVERGED", left_ms=400, bytes=3),
        partition("pay", 0, lag=1000, loss_records=0, bytes=0, state="PAUSED"),
    ]
    total, rows = shown.topic_page(parts, inputs.TopicQuery())
    one = answers.Topic.model_validate(rows[0])
    assert (total, one.topic, one.target_topic, one.partitions) == (2, "orders", "A.orders", 3)
    assert (one.state, one.codes, one.unusual_partitions) == ("FAILED", ["DIVERGED"], 1)
    assert (one.lag, one.lag_unknown_partitions, one.lag_ms) == (9, 1, 70)
    assert (one.loss_records, one.loss_unknown_partitions, one.loss_ms) == (2, 2, 30)
    assert (one.kept_ms, one.kept_known, one.bytes) == (400, False, 6)
    query = inputs.TopicQuery.model_validate({"sort": "-lag"})
    names = [row["topic"] for row in shown.topic_page(parts, query)[1]]
    assert names == ["orders", "pay"], "may be worst"
    (row,) = shown.topic_page(parts, inputs.TopicQuery(code="", topic="pay"))[1]
    pay = answers.Topic.model_validate(row)
    assert (pay.kept_ms, pay.kept_known, pay.loss_records, pay.loss_ms) == (None, True, 0, None)


def test_every_state_is_ranked_and_no_good_one_is_worse_than_a_bad_one() -> None:
    assert sorted(shown.WORST_FIRST) == sorted(PARTITION_STATES)
    found = [severity_of(state) for state in shown.WORST_FIRST]
    assert found == sorted(found, key=["bad", "warn", "good"].index)


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """Excludes the objects of earlier tests from garbage collection, which else takes longer than
    the response, because their heap is much larger than that of a mirror.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen_heap")
def test_of_ten_thousand_topics_a_page_is_made_at_once(rest: Rest, monitor: Monitor) -> None:
    parts = [partition(f"topic-{n // 10:05}", n % 10, lag=n % 977) for n in range(100_000)]
    monitor.update([flow(*parts)])
    begun = time.process_time()  # because other tests run on the same cores
    found = rest.get(f"{A_B}/topics?sort=-lag&limit=200")
    took = time.process_time() - begun
    assert (found["total"], len(found["topics"])) == (10_000, 200)
    assert took < 1, "20 times what it takes"
    assert rest.get(f"{A_B}/partitions?ofTopic=topic-00001")["total"] == 10


@pytest.mark.usefixtures("frozen_heap")
def test_a_standby_of_ten_thousand_topics_answers_at_once(
    rest: Rest, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby's response uses the row that the leader publishes and the last read of both
    clusters. It does not wait for new queries, which take seconds.
    """
    parts = [partition(f"topic-{n // 10:05}", n % 10, lag=n % 977) for n in range(100_000)]
    now_ms = int(time.time() * 1000)
    row = published(flow(*parts, taken_ms=now_ms), every_ms=5000).encode()
    is_slow, resumes = threading.Event(), threading.Event()

    def reports(flows: list[str], *_: object) -> dict[str, ReportedFlow]:
        status = published_status("A->B", [row])
        return dict.fromkeys(flows, ReportedFlow(status=status, intents=FlowIntents()))

    def asked(_: MirrorConfig) -> list[FlowSnapshot]:
        if is_slow.is_set():
            assert resumes.wait(60)
        return [flow(*parts)]

    monkeypatch.setattr(leaders, "reports_of", reports)
    monkeypatch.setattr(site, "offline_status", asked)
    monitor.update([flow(state="STANDBY", generation=None), flow(flow="C->B")])
    assert len(row[1]) < 2000
    eventually(lambda: rest.get(A_B)["partitions"] == 100_000)
    most_waits = f"{A_B}/topics?sort=-lag&limit=200"
    assert rest.get(most_waits)["reportedBy"] == "clusters"
    is_slow.set()
    monkeypatch.setattr(site, "QUERY_INTERVAL_S", 0.0)
    # the CPU time of this process, because other tests run on the same cores
    begun, took = time.monotonic(), {}
    for path in ("/api/v1/flows", A_B, most_waits, f"{A_B}/partitions?ofTopic=topic-00001"):
        cpu_s = time.process_time()
        found = rest.get(path)
        took[path] = time.process_time() - cpu_s
    waited_s = time.monotonic() - begun
    resumes.set()
    assert found["total"] == 10
    assert max(took.values()) < 1, took
    assert waited_s < 30, "a response has waited for a new query"
    eventually(lambda: rest.get(most_waits)["ageMs"] < found["ageMs"], what="newer numbers")


@pytest.mark.parametrize(
    ("cost_s", "age_s", "is_new", "is_too_old"),
    [
        (0.0, 4.9, True, False),
        (0.0, 5.1, False, False),
        (0.0, 119.0, False, False),
        (0.0, 121.0, False, True),
        (1.0, 19.0, True, False),
        (1.0, 21.0, False, False),
        (17.0, 339.0, True, False),
        (17.0, 341.0, False, False),
        (17.0, 681.0, False, True),
    ],
)
def test_both_clusters_are_asked_for_all_partitions_as_often_as_it_costs_little(
    tmp_path: Path, *, cost_s: float, age_s: float, is_new: bool, is_too_old: bool
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    config, at = load(file, environment={}).flows[0], time.monotonic() - age_s
    found = site.Parts(partitions=(), at=at, is_here=False, config=config, cost_s=cost_s)
    assert (found.is_new, found.is_too_old) == (is_new, is_too_old)


def test_unknown_values_are_shown_and_sorted_as_the_worst() -> None:
    parts = [
        partition("orders", number, lag=lag, loss_records=lag)
        for number, lag in enumerate((5, None))
    ]
    for column in ("lag", "lossRecords"):
        query = inputs.PartitionQuery.model_validate({"sort": f"-{column}"})
        assert [one["partition"] for one in shown.page(parts, query)[1]] == [1, 0]
    found = answered(shown._snapshot_fields(flow(*parts), 0, 0.0))
    assert (found.lag, found.lag_unknown_partitions) == (5, 1)


def answered(fields: dict[str, Any]) -> answers.Flow:
    """Return a flow's response with these fields. They are from its snapshot or its leader's
    row.
    """
    names: dict[str, Any] = {"flow": "A->B", "source": "A", "target": "B", "problem": ""}
    unknown = dict.fromkeys(answers.Flow.model_fields)
    return answers.Flow.model_validate({**unknown, **names, **fields})


def test_of_a_flow_led_elsewhere_the_row_tells_lag_objective_and_proof() -> None:
    proof = Proof(mode="full", at_ms=5, records=9, differences=0, is_complete=True)
    status = structs.replace(
        PUBLISHED, lag=12, lag_unknown=1, rpo_ms=1000, rpo_excess="why", proof=proof
    )
    status = structs.replace(status, p50_ms=7, p99_ms=95)
    found = answered(shown._report_fields(status, PUBLISHED.at_ms))
    assert (found.lag, found.lag_unknown_partitions) == (12, 1)
    assert (found.loss.objective_ms, found.loss.excess) == (1000, "why")
    assert found.verified == answers.Verified(
        mode="full", at_ms=5, records=9, differences=0, is_complete=True
    )
    assert found.latency == answers.Latency(p50_ms=7, p99_ms=95)
    assert found.retention is None, "its leader is of an earlier release"
    earlier = answered(shown._report_fields(PUBLISHED, PUBLISHED.at_ms))
    assert (earlier.lag, earlier.lag_unknown_partitions, earlier.verified) == (None, None, None)
    assert earlier.latency is None


def test_the_earliest_deletion_of_a_flow_is_reported() -> None:
    parts = [partition("a"), partition("b", lag=1, left_ms=900)]
    parts.append(partition("c", lag=9, left_ms=70, needs_ms=80, is_near_deletion=True))
    found = answered(shown._snapshot_fields(flow(*parts), 0, 0.0)).retention
    soonest = answers.Retention(kept_ms=70, kept_known=True, topic="c", near_deletion=["c"])
    assert found == soonest
    row = published(flow(*parts), every_ms=5000)
    assert answered(shown._report_fields(row, 0)).retention == soonest, "and so for other processes"
    none = answers.Retention(kept_ms=None, kept_known=True, topic=None, near_deletion=[])
    assert answered(shown._snapshot_fields(flow(parts[0]), 0, 0.0)).retention == none
    parts.append(partition("d", lag=1, is_left_known=False))
    found = answered(shown._snapshot_fields(flow(*parts), 0, 0.0)).retention
    assert found is not None
    assert (found.kept_ms, found.kept_known) == (70, False)
    standby = shown._snapshot_fields(flow(*parts, state="STANDBY"), 0, 0.0)
    assert answered(standby).retention is None


def test_partitions_that_no_cluster_tells_are_no_empty_page(rest: Rest) -> None:
    answer = rest.ask("/api/v1/flows/C-%3EB/partitions")
    assert (answer.status, answer.json["code"]) == (503, "UNREACHABLE")
    assert "connection refused" in answer.json["what"]


def test_events_are_numbered_and_filtered_by_flow(rest: Rest) -> None:
    log = logging.getLogger("twinlog.test")
    FlowLog(log, "A->B").warning("one")
    FlowLog(log, "C->B").warning("two")
    log.warning("three")
    found = rest.get("/api/v1/events")
    assert [one["message"].rpartition(": ")[2] for one in found["events"]] == [
        "one",
        "two",
        "three",
    ]
    assert [one["flow"] for one in found["events"]] == ["A->B", "C->B", ""]
    assert all(0 <= time.time() * 1000 - one["atMs"] < 60_000 for one in found["events"])
    later = rest.get(f"/api/v1/events?since={found['events'][1]['number']}")
    assert [one["message"] for one in later["events"]] == ["three"]
    for name in ("C-%3EB", "C:B"):
        assert [one["flow"] for one in rest.get(f"/api/v1/events?flow={name}")["events"]] == [
            "C->B"
        ]
    assert rest.get(f"/api/v1/events?since={found['last']}") == {
        "events": [],
        "last": found["last"],
    }


def test_events_of_an_older_process_that_serves_next_are_behind_those_before(
    rest: Rest, tmp_path: Path
) -> None:
    older = EventLog(tmp_path / "mm2.properties")
    older.handle(logging.makeLogRecord({"msg": "long ago", "created": time.time() - 60}))
    logging.getLogger("twinlog.test").warning("one")
    last = rest.get("/api/v1/events")["last"]
    older.handle(logging.makeLogRecord({"msg": "two", "created": time.time() + 0.1}))
    assert [one.message for one in older.since(last)] == ["two"]


def test_events_after_a_restart_are_behind_those_before(rest: Rest, tmp_path: Path) -> None:
    logging.getLogger("twinlog.test").warning("one")
    last = rest.get("/api/v1/events")["last"]
    again = EventLog(tmp_path / "mm2.properties")
    again.handle(logging.makeLogRecord({"msg": "two", "levelname": "WARNING"}))
    assert [one.message for one in again.since(last)] == ["two"]


def test_codes_and_clusters(rest: Rest) -> None:
    assert [one["code"] for one in rest.get("/api/v1/codes")["codes"]] == sorted(conditions())
    states = rest.get("/api/v1/codes")["partitionStates"]
    assert [one["state"] for one in states] == [*PARTITION_STATES]
    found = {one["state"]: one["severity"] for one in states}
    assert (found["DRAINING"], found["RETRYING"], found["FAILED"]) == ("good", "warn", "bad")
    one = rest.get("/api/v1/codes/GAP_WRITTEN")
    assert one["meaning"] == conditions()["GAP_WRITTEN"].meaning
    clusters = rest.get("/api/v1/clusters")["clusters"]
    assert clusters[1] == {
        "alias": "B",
        "bootstrapServers": ["127.0.0.1:2"],
        "sourceOf": [],
        "targetOf": ["A->B", "C->B"],
    }


GETS = [
    *("/api/v1/flows", A_B, f"{A_B}/partitions", "/api/v1/events", "/api/v1/codes"),
    *("/api/v1/clusters", "/api/v1/openapi.json", "/connectors?expand=info&expand=status"),
    *("/connectors/A->B.MirrorSourceConnector/config"),
]


WANTED: dict[str, Any] = {
    "paused": True,
    "bytesPerSecond": None,
    "pausedTopics": [],
    "releasedTopics": [],
}


def test_no_secret_is_in_any_answer(rest: Rest) -> None:
    for path in GETS:
        assert PASSWORD.encode() not in rest.ask(path.replace(">", "%3E")).body, path


@pytest.mark.parametrize(
    ("path", "method", "body", "status", "code", "what"),
    [
        ("/api/v1/nothing", "GET", None, 404, "NOT_FOUND", "no such path: /api/v1/nothing"),
        ("/api/v1/flows/X-%3EY", "GET", None, 404, "NOT_FOUND", "there are A->B, C->B"),
        ("/api/v1/codes/NONE", "GET", None, 404, "NOT_FOUND", "no code NONE"),
        ("/api/v1/flows", "POST", {}, 405, "METHOD_NOT_ALLOWED", "accepts only"),
        (f"{A_B}/pause", "GET", None, 405, "METHOD_NOT_ALLOWED", "accepts only POST"),
        (f"{A_B}/partitions?sort=x", "GET", None, 400, "REQUEST_INVALID", "sort: must be 'topic'"),
        (f"{A_B}/partitions?limit=0", "GET", None, 400, "REQUEST_INVALID", "limit: must be great"),
        (f"{A_B}?x=1", "GET", None, 400, "REQUEST_INVALID", "x: unknown name; this path takes"),
        (f"{A_B}/diff?all=1&all=1", "GET", None, 400, "REQUEST_INVALID", "given twice"),
        (f"{A_B}/diff?topics=(", "GET", None, 400, "USAGE", "topics: ( is not a supported regular"),
        (f"{A_B}/diff?topics=(%3F%3Da)a", "GET", None, 400, "USAGE", "is not supported"),
        (f"{A_B}/pause", "POST", b"{", 400, "REQUEST_INVALID", "double quotes at line 1, column 2"),
        (f"{A_B}/pause", "POST", [], 400, "REQUEST_INVALID", "body: must be a JSON object"),
        (f"{A_B}/pause", "POST", {"dryRun": "no"}, 400, "REQUEST_INVALID", "must be a valid"),
        (f"{A_B}/pause", "POST", {"dry_run": True}, 400, "REQUEST_INVALID", "did you mean dryRun?"),
        (f"{A_B}/pause", "POST", {"why": "x"}, 400, "REQUEST_INVALID", "there are reason, dryRun"),
        (f"{A_B}/limit", "POST", {}, 400, "REQUEST_INVALID", "body: bytesPerSecond: is missing"),
        (f"{A_B}/limit", "POST", {"bytesPerS": 1}, 400, "REQUEST_INVALID", "did you mean bytesPer"),
        (f"{A_B}/limit", "POST", {"bytesPerSecond": 5}, 400, "REQUEST_INVALID", "1024"),
        (f"{A_B}/topics/pause", "POST", {"topics": []}, 400, "REQUEST_INVALID", "body: topics"),
        (f"{A_B}/topics/pause", "POST", {"topics": ["a("]}, 400, "USAGE", "topics: this ( is not"),
        (f"{A_B}/wanted", "PUT", {"paused": True}, 400, "REQUEST_INVALID", "bytesPerSecond: is"),
        (f"{A_B}/wanted", "PUT", WANTED | {"paused": 1}, 400, "REQUEST_INVALID", "body: paused: "),
        (f"{A_B}/wanted", "PUT", WANTED, 503, "UNREACHABLE", "connection refused"),
        (f"{A_B}/wanted", "GET", None, 503, "UNREACHABLE", "commands in effect for A->B are unkn"),
        (f"{A_B}/wanted", "POST", {}, 405, "METHOD_NOT_ALLOWED", "accepts only GET, HEAD, PUT"),
        (f"{A_B}/pause", "POST", {"reason": "x" * 70_000}, 413, "REQUEST_TOO_LARGE", "65536"),
        (f"{A_B}/pause", "POST", {}, 503, "UNREACHABLE", "connection refused"),
    ],
)  # fmt: skip
def test_refusals_have_reason_place_and_remedy(
    rest: Rest, path: str, method: str, body: Any, status: int, code: str, what: str
) -> None:
    answer = rest.ask(path, method, body)
    assert (answer.status, answer.json["code"]) == (status, code), answer
    assert what in answer.json["what"]
    assert not answer.json["what"].startswith("--"), "an option of the command line"
    found = path.partition("?")[0]
    assert (answer.json["instance"], answer.json["where"]) == (found, found.replace("%3E", ">"))
    assert answer.json["detail"] == answer.json["what"]
    assert (answer.json["type"], answer.json["status"]) == (f"/api/v1/codes/{code}", status)
    assert conditions()[code].meaning.startswith(answer.json["title"])
    assert (answer.json["do"] != "") is bool(conditions()[code].advice)
    assert not answer.json["do"].startswith("exit code"), "which a client has none of"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.headers["Allow"] is not None) == (status == 405)
    assert (answer.headers["Retry-After"] is not None) == (status == 503)


def test_a_bug_is_reported_without_its_text(rest: Rest, monitor: Monitor) -> None:
    monitor.update([flow(partition(lag="many"))])
    answer = rest.ask(A_B)
    assert (answer.status, answer.json["code"]) == (500, "INTERNAL")
    assert "many" not in answer.json["what"]
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_stream_sends_flows_and_events_as_they_come(rest: Rest, monitor: Monitor) -> None:
    log = logging.getLogger("twinlog.test")
    log.warning("before")
    reader = StreamReader(rest)
    assert reader.answer.headers["Content-Type"] == "text/event-stream"
    eventually(lambda: "flows" in reader.kinds())
    log.warning("after")
    eventually(
        lambda: [one["message"] for kind, one in reader.found if kind == "event"] == ["after"]
    )
    monitor.update(flows_now(lag=5))
    eventually(
        lambda: reader.found[-1][0] == "flows" and reader.found[-1][1]["flows"][0]["lag"] == 105
    )
    again = StreamReader(rest, last="0")
    eventually(lambda: again.kinds().count("event") == 2, what="those that are kept")
    for one in (reader, again):
        one.close()


def test_streams_are_bounded_and_end_with_the_process(
    monitor: Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MOST_STREAMS", 2)
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    with rest_of(load(file, environment={}), file, monitor) as rest:
        readers = [StreamReader(rest), StreamReader(rest)]
        eventually(lambda: all(one.found for one in readers))
        answer = rest.ask("/api/v1/stream")
        assert (answer.status, answer.json["code"]) == (503, "REST_BUSY")
        assert answer.headers["Retry-After"]
    eventually(lambda: all(one.ended for one in readers))


def test_a_hundred_clients_that_come_at_once_are_all_answered(rest: Rest) -> None:
    with ThreadPoolExecutor(100) as clients:
        asked = list(clients.map(lambda _: rest.ask("/api/v1/flows").status, range(200)))
    assert asked == [200] * 200


def test_many_clients_are_answered_from_one_encoding_until_something_changes(
    rest: Rest, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually(
        lambda: "could not be queried" in rest.get(A_B)["problem"], what="its target is away"
    )
    monkeypatch.setattr(app, "KEPT_S", 60.0)
    shows, shown_flows = shown.flow, []

    def counted(config: Any, *said: Any) -> dict[str, Any]:
        shown_flows.append(str(config.flow))
        return shows(config, *said)

    monkeypatch.setattr(shown, "flow", counted)
    monitor.update(flows_now(lag=8))
    for _ in range(20):
        assert rest.get(A_B)["lag"] == 108
        assert [one["lag"] for one in rest.get("/api/v1/flows")["flows"]] == [108, None]
    assert sorted(shown_flows) == ["A->B", "A->B", "C->B"]
    monitor.update(flows_now(lag=9))
    assert rest.get(A_B)["lag"] == 109
    assert rest.ask(f"{A_B}?lag=1").status == 400, "what is kept answers no other question"
    assert rest.ask(A_B, "HEAD").body == b""
    assert rest.ask(A_B, "POST").status == 405


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no priority of a thread")
def test_lanes_have_priority_over_clients(rest: Rest) -> None:
    (thread,) = (one for one in threading.enumerate() if one.name == "twinlog-web")
    assert thread.native_id is not None
    eventually(lambda: os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) >= server.NICE)
    assert rest.ask("/healthz").status == 200


def test_ages_grow_though_nothing_changes(rest: Rest) -> None:
    eventually(lambda: rest.get(A_B)["ageMs"] > 2000)


def test_a_reload_is_seen(rest: Rest, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE.replace("C->B.enabled = true", "C->B.enabled = false"))
    rest.current.replace(load(file, environment={}))
    assert [one["flow"] for one in rest.get("/api/v1/flows")["flows"]] == ["A->B"]
