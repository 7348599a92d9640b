"""Events are published for other processes, and read from other processes' rows."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.rest import Rest, rest_of
from tests.support.snapshots import DIVERGED, HAPPENED
from twinlog.config.load import load
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.watch.events import EventLog, last_events
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import leaders
from twinlog.flow_log import FlowLog
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind
from twinlog.mirror.state.published import PublishedEvents
from twinlog.mirror.state.verified import VerifyRun
from twinlog.model import TopicPartition

FILE = (
    "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
    "A->B.enabled = true\ntopics = .*\n"
)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLog]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    kept = EventLog(tmp_path / "mm2.properties")
    kept.start()
    yield kept
    kept.stop()


def test_unusual_events_and_commands_are_published(kept: EventLog) -> None:
    log = FlowLog(logging.getLogger("twinlog.test"), "A->B")
    log.info("of normal operation")
    log.info("no", partition=TopicPartition("orders", 3), code="DIVERGED")
    log.news("%s is paused", "pay", topic="pay", person="ann@east-1")
    FlowLog(logging.getLogger("twinlog.test"), "C->B").warning("of another flow")
    try:
        raise ValueError("with its lines")
    except ValueError:
        log.bug("a bug")
    own = kept.of_flow("A->B")
    assert own.where == kept.who
    seen = [(e.message, e.topic, e.partition, e.code, e.person) for e in own.events]
    assert seen == [
        ("A->B: no", "orders", 3, "DIVERGED", ""),
        ("A->B: pay is paused", "pay", None, "", "ann@east-1"),
        ("A->B: a bug", "", None, "", ""),
    ]


def test_each_foreign_event_is_read_once_and_own_ones_are_not(kept: EventLog) -> None:
    logging.getLogger("twinlog.test").warning("one")
    FlowLog(logging.getLogger("twinlog.test"), "A->B").warning("two")
    last = kept.since(0)[-1].number
    newer = structs.replace(
        HAPPENED, events=(DIVERGED, structs.replace(DIVERGED, number=8, message="A->B: again"))
    )
    other = structs.replace(HAPPENED, flow="C->B", events=(structs.replace(DIVERGED, number=5),))
    for _ in range(2):
        kept.add_published([kept.of_flow("A->B"), HAPPENED, newer, other])
    found = kept.since(last)
    assert [one.message for one in found] == [
        DIVERGED.message,
        "A->B: again",
        DIVERGED.message,
    ]
    assert [one.flow for one in found] == ["A->B", "A->B", "C->B"]
    assert found[0].who == "east-1 (process 77)"
    assert len({one.number for one in found}) == 3
    assert kept.since(found[-1].number) == []


def test_a_restarted_container_shows_the_events_of_its_last_process(kept: EventLog) -> None:
    """The new process of a restarted container has the same host name and process ID as the former
    one. It must show the former process's events. This includes events from rows of earlier
    releases, which identify their process only by host name and process ID.
    """
    FlowLog(logging.getLogger("twinlog.test"), "A->B").warning("of now")
    own = kept.of_flow("A->B")
    before = structs.replace(
        own, run="before", events=(structs.replace(DIVERGED, number=own.events[0].number),)
    )
    older = structs.replace(
        before, run="", events=(structs.replace(DIVERGED, number=1, message="older"),)
    )
    for _ in range(2):
        kept.add_published([before, own, older])
    assert [one.message for one in kept.since(0)] == [
        "A->B: of now",
        DIVERGED.message,
        "older",
    ]


def happens(writer: EventLog, text: str, at: float) -> PublishedEvents:
    """Write a log line at this time. Return the events that the process then publishes."""
    fields = {"created": at, "levelno": logging.WARNING, "levelname": "WARNING", "flow": "A->B"}
    writer.handle(logging.makeLogRecord({**fields, "msg": text}))
    return writer.of_flow("A->B")


def test_a_process_whose_predecessors_clock_was_ahead_is_read_immediately(
    kept: EventLog, tmp_path: Path
) -> None:
    """The former process of a container had a clock that was ahead, and the same process ID as the
    new one. Events of the new process must be shown immediately, although the former process's
    events have later times.
    """
    ahead, now = (EventLog(tmp_path / "mm2.properties") for _ in range(2))
    kept.add_published([happens(ahead, "of tomorrow", time.time() + 86_400)])
    rows = [ahead.of_flow("A->B"), happens(now, "of now", time.time())]
    # the former process publishes a last event
    rows += [happens(ahead, "the last of it", 0.0), happens(now, "and again", time.time())]
    for _ in range(2):
        kept.add_published(rows)
    assert {one.who for one in kept.since(0)} == {kept.who}
    assert [one.message for one in kept.since(0)] == [
        "of tomorrow",
        "the last of it",
        "of now",
        "and again",
    ]


def test_of_many_flows_the_newest_events_stay(kept: EventLog) -> None:
    def published(flow: int) -> PublishedEvents:
        at_ms = DIVERGED.at_ms - flow * 1000
        some = tuple(structs.replace(DIVERGED, number=n + 1, at_ms=at_ms + n) for n in range(20))
        return structs.replace(HAPPENED, flow=f"F{flow}->B", events=some)

    kept.add_published(map(published, range(150)))
    assert [one.flow for one in kept.since(0)[-40:]] == ["F1->B"] * 20 + ["F0->B"] * 20


def test_a_clock_that_is_set_back_makes_our_own_events_no_other_s(kept: EventLog) -> None:
    earlier = {"created": 1.0, "levelno": logging.WARNING, "levelname": "WARNING", "flow": "A->B"}
    logging.getLogger().handle(logging.makeLogRecord({**earlier, "msg": "one"}))
    kept.add_published([kept.of_flow("A->B")])
    assert [one.message for one in kept.since(0)] == ["one"]


def test_no_row_makes_threads_that_log_wait_forever(kept: EventLog) -> None:
    with pytest.raises(ValueError, match="out of range"):
        kept.add_published(
            [structs.replace(HAPPENED, events=(structs.replace(DIVERGED, at_ms=-(10**14) + 1),))]
        )
    other = threading.Thread(target=logging.getLogger("twinlog.test").warning, args=("one",))
    other.daemon = True
    other.start()
    other.join(5)
    assert not other.is_alive()
    assert kept.since(0)[-1].message == "one"


def test_a_file_of_an_earlier_release_is_read(kept: EventLog, tmp_path: Path) -> None:
    FlowLog(logging.getLogger("twinlog.test"), "A->B").warning("one")
    kept.save()
    (file,) = (tmp_path / "twinlog").glob("*.events")
    value = json.loads(file.read_text())
    for name in ("topic", "partition", "who", "person"):
        del value["events"][0][name]
    file.write_text(json.dumps(value))
    (process,) = last_events(tmp_path / "mm2.properties")
    assert [(one.message, one.topic, one.partition) for one in process.events] == [
        ("A->B: one", "", None)
    ]


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    """A REST server whose flow is led by another process."""
    found = {"A->B": ReportedFlow(status=None, intents=None, events=(HAPPENED,))}
    monkeypatch.setattr(leaders, "reports_of", lambda *_: found)
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    with rest_of(load(file, environment={}), file, Monitor()) as rest:
        yield rest


def test_rest_tells_those_of_a_flow_that_is_led_elsewhere_by_time(rest: Rest) -> None:
    logging.getLogger("twinlog.test").warning("here")
    for _ in range(2):
        found = rest.get("/api/v1/events")["events"]
        assert [one["message"] for one in found] == ["here", "A->B: orders-3: no"]
    number = found[-1].pop("number")
    assert found[-1] == {
        "atMs": 1_800_000_000_000,
        "level": "WARNING",
        "flow": "A->B",
        "topic": "orders",
        "partition": 3,
        "code": "DIVERGED",
        "message": "A->B: orders-3: no",
        "who": "east-1 (process 77)",
        "person": None,
    }
    assert rest.get(f"/api/v1/events?since={number}")["events"] == []


def test_halves_of_surrogate_pairs_hide_no_flow_and_no_event(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of the state topic, an argument or a user's name may contain half of a surrogate pair
    if it is not UTF-8. No flow and no event may disappear because of it.
    """
    half = "\ud800"
    pause = Intent(
        bytes_per_second=None,
        flow="A->B",
        kind=IntentKind.PAUSE,
        is_set=True,
        who=half,
        at_ms=1,
        reason=half,
    )
    run = VerifyRun(
        flow="A->B",
        began_ms=1,
        ended_ms=2,
        who=half,
        answer=half,
        topics=half,
        since=None,
        until=None,
        deep=False,
        partitions=1,
        equal_records=1,
        ranges={half: 1},
        not_compared=0,
        configs=0,
        groups=0,
        sha256="",
    )
    reported = ReportedFlow(
        status=None,
        intents=FlowIntents({pause.key: pause}),
        verify_runs=(run,),
        events=(structs.replace(HAPPENED, events=(structs.replace(DIVERGED, message=half),)),),
        problem=half,
    )
    monkeypatch.setattr(leaders, "reports_of", lambda *_: {"A->B": reported})
    FlowLog(logging.getLogger("twinlog.test"), "A->B").news("paused", person=half)
    (flow,) = rest.get("/api/v1/flows")["flows"]
    assert flow["problem"] == flow["wanted"][0]["who"] == "\\ud800"
    assert flow["verifyRuns"][0]["ranges"] == {"\\ud800": 1}
    found = rest.get("/api/v1/events")["events"]
    assert [found[0]["person"], found[1]["message"]] == ["\\ud800"] * 2
