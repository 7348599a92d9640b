"""Fixtures that every test may use: real clusters, new topics, and Kafka's Java classes."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import uuid
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

from tests.gate.tiers import TESTS, drop_other_cases, skip_what_runs_alone
from tests.support.clusters import (
    LENT,
    running_cluster,
    session_owner,
    shared_cluster,
)
from tests.support.eventually import PATIENCE_S
from tests.support.java import kafka_jvm
from tests.support.mirror import Mirror
from twinlog.cluster.groups.membership import Membership
from twinlog.sandbox import LocalCluster

# No deadline, because the tests share the machine with brokers. With TWINLOG_HYPOTHESIS=thorough,
# Hypothesis searches for a long time.
settings.register_profile("quick", deadline=None)
settings.register_profile("whole", deadline=None, max_examples=400)
settings.register_profile("thorough", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("TWINLOG_HYPOTHESIS", "quick"))

# Tests that share an expensive or breakable resource run in one process, one after the other.
_GROUPS = {"source3": "three-brokers", "target3": "three-brokers", "spark": "spark"}
_LONG = ("spark", "commands", "three-brokers", "mirror-maker-jvm", "loops", "guarded", "versions")
"""Groups of tests that take minutes one after the other. They begin first, so that no other tests
wait for them at the end. The group `spark` has its own Spark. Tests of `commands` run the command.
"""
_SHARED_IN_GATE = {"four_clusters": "loops", "guarded_pair": "guarded"}
"""Clusters that several files share if only the witnesses of these files run. If all tests run,
each file has its own group, because one group would take too long.
"""
_PAIR = {"fault_source", "fault_target"}
"""Fixtures that every process of the test run can have. Tests that use them may run in any process,
file by file.
"""
_PAIR_TURN = len(_LONG)
_BROKER_FIXTURES = {"source_cluster", "target_cluster", "source3", "target3"}
_LOGGED = re.compile(r"---|\d\d:\d\d:\d\d")
"""The beginning of a broker's log line that is not part of a stack trace."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without Python's garbage collector. Tests are never freed, and searching them
    for garbage would take a sixth of the time of each process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    drop_other_cases(items)
    skip_what_runs_alone(items)
    is_gate = bool(items) and items[0].config.getoption("--gate", default=False)
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if used & _BROKER_FIXTURES:
            item.add_marker(pytest.mark.broker)
        groups = {group for fixture, group in _GROUPS.items() if fixture in used}
        if used & _PAIR and not groups:
            groups = {_pair_of(item.path.stem) if is_gate else item.path.stem}
        for fixture in used & {*_SHARED_IN_GATE}:
            groups = {_SHARED_IN_GATE[fixture] if is_gate else item.path.stem}
        if is_gate and not groups:
            groups = _group_without_brokers(item)
        if groups and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(min(groups)))
    places = _mixed(items) if is_gate else {}
    items.sort(key=lambda item: (_turn(item), places.get(item.path, 0.0)))


def _mixed(items: list[pytest.Item]) -> dict[Path, float]:
    """Return a sort key for each file. Files of unit tests are spread among the other files, whose
    tests mostly wait for brokers. The last files are of unit tests, because these are short.
    """
    files = dict.fromkeys(item.path for item in items)
    unit = [file for file in files if _folder(file) == "unit"]
    others = [file for file in files if _folder(file) != "unit"]
    return {
        **{file: at / len(unit) for at, file in enumerate(unit)},
        **{file: 0.8 * at / len(others) for at, file in enumerate(others)},
    }


def _folder(file: Path) -> str:
    return file.relative_to(TESTS).parts[0]


def _pair_of(file: str) -> str:
    """Return one of two groups for a file, each with its own pair of brokers. An idle pair uses a
    twentieth of a core, and the gate has too few such tests for more pairs.
    """
    return f"pair-{crc32(file.encode()) % 2}"


def _group_without_brokers(item: pytest.Item) -> set[str]:
    """Return one group for all tests that need Kafka's Java classes, and one group for each file of
    other unit tests. If each test could run in any process, every process would start a JVM, and
    would create again what the tests of a file share.
    """
    if _folder(item.path) == "contract" or "java" in getattr(item, "fixturenames", ()):
        return {"contract"}
    return {str(item.path.relative_to(TESTS))} if _folder(item.path) == "unit" else set()


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker and marker.args else None


def _turn(item: pytest.Item) -> int:
    group = _group(item)
    if group in _LONG:
        return _LONG.index(group)
    return _PAIR_TURN if _PAIR & set(getattr(item, "fixturenames", ())) else _PAIR_TURN + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test the log lines of its mirrors and commands, and the last lines of its
    brokers' logs.
    """
    report = yield
    if report.failed and call.when == "call":
        for number, mirror in enumerate(Mirror.started):
            report.sections.append((f"mirror {number}", mirror.explained()))
        fixtures: dict[str, Any] = getattr(item, "funcargs", {})
        folder: Path | None = fixtures.get("tmp_path")
        for file in [] if folder is None else sorted(folder.rglob("stderr")):
            last = "\n".join(file.read_text(errors="replace").splitlines()[-60:])
            report.sections.append((f"command in {file.parent.name}", last))
        for name, cluster in fixtures.items():
            if isinstance(cluster, LocalCluster) and cluster.folder is not None:
                lines = [one for one in cluster.logs().splitlines() if _LOGGED.match(one)]
                shown = "\n".join(one[:200] for one in lines)
                report.sections.append((f"brokers of {name}", shown))
    return report


@pytest.fixture(autouse=True)
def no_mirrors() -> None:
    """Remove the mirrors of the previous test, whose log lines would be added to a failed test."""
    Mirror.started.clear()


@pytest.fixture(autouse=True)
def logging_as_it_was(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Restore logging after a command in this process has changed it.

    Log lines of a mirror are recorded from INFO on, and shown if the test fails. `caplog` records
    only warnings, unless the test sets another level.
    """
    loggers = [logging.getLogger(name) for name in ("", "twinlog", "py4j", "pyspark")]
    levels = [logger.level for logger in loggers]
    handlers = [(h, h.level, h.formatter, h.filters[:]) for h in loggers[0].handlers]
    loggers[1].setLevel(logging.INFO)
    caplog.handler.setLevel(logging.WARNING)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for handler, level, formatter, filters in handlers:
        handler.setLevel(level)
        handler.setFormatter(formatter)
        handler.filters = filters


@pytest.fixture(autouse=True)
def plain_py4j() -> None:
    """Undo the change that a Spark session of an earlier test made to py4j for the whole process.

    PySpark replaces py4j's function that raises errors by one that needs a running SparkContext.
    The JVM of the `java` fixture has no SparkContext.
    """
    context = sys.modules.get("pyspark.core.context")
    if context is not None and context.SparkContext._jvm is None:
        gateway, protocol = sys.modules["py4j.java_gateway"], sys.modules["py4j.protocol"]
        vars(gateway)["get_return_value"] = vars(protocol)["get_return_value"]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def source_cluster(run_folder: Path) -> Iterator[LocalCluster]:
    """The source: one broker, shared by all tests. Tests use topics of their own, and must not
    disturb the broker.
    """
    yield from _shared("source", run_folder)


@pytest.fixture(scope="session")
def target_cluster(run_folder: Path) -> Iterator[LocalCluster]:
    """The target: another broker, shared by all tests. The rules of `source_cluster` apply."""
    yield from _shared("target", run_folder)


def _shared(name: str, folder: Path) -> Iterator[LocalCluster]:
    running = os.environ.get(f"TWINLOG_TEST_{name.upper()}")
    if running:
        yield running_cluster(name, running)
        return
    with shared_cluster(name, folder / name, session_owner()) as cluster:
        yield cluster


@pytest.fixture
def source3() -> LocalCluster:
    """A source of three brokers, which tests may kill, freeze and restart. A test must leave all of
    them running.
    """
    return LENT.three("source3")


@pytest.fixture
def target3() -> LocalCluster:
    """A target of three brokers. The rules of `source3` apply."""
    return LENT.three("target3")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Stop the clusters that the next test does not need. Stop Spark as well, because a process can
    have only one.
    """
    yield
    if "spark" not in getattr(nextitem, "fixturenames", ()):
        LENT.give_back("spark")
    if nextitem is None or _group(item) != _group(nextitem):
        needs_pair = nextitem is not None and _turn(nextitem) <= _PAIR_TURN
        LENT.give_back_all(but=_PAIR if needs_pair else ())


@pytest.fixture
def lasting_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mirror remain the leader while the target's brokers restart, although they coordinate
    its group. So its lanes continue, as if the coordinator were a broker that does not restart.
    """
    lasting = partial(Membership, session_timeout_ms=int(PATIENCE_S * 1000))
    monkeypatch.setattr("twinlog.control.leading.lead.Membership", lasting)


@pytest.fixture
def fresh_topic() -> str:
    """A name for a topic that no other test uses. The topic does not exist yet."""
    return f"test-{uuid.uuid4()}"


@pytest.fixture(scope="session")
def java() -> Iterator[Any]:
    """Kafka's own Java classes: `java.org.apache.kafka...`."""
    with kafka_jvm() as jvm:
        yield jvm
