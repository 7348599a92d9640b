"""The text of the metrics. The metrics library must parse the same values from it, and writing it
must cost less than with the library.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.support.snapshots import flow, partition
from twinlog import metrics
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.series.exposition import SeriesText

OPENMETRICS = "application/openmetrics-text"
LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
SOME = (metrics.RECORDS, metrics.LAG_RECORDS)

Read = Callable[[str], Any]


def samples(text: str, read: Read) -> list[tuple[str, dict[str, str], float]]:
    return [(s.name, dict(s.labels), s.value) for family in read(text) for s in family.samples]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(SOME),
            st.tuples(LABELS, LABELS, LABELS, LABELS),
            st.one_of(st.integers(0, 1 << 60), st.floats(0, 1e12)),
        ),
        unique_by=lambda one: (one[0].name, one[1]),
        max_size=8,
    ),
    st.booleans(),
)
def test_written_series_are_read_back(
    given: list[tuple[metrics.Metric, tuple[str, str, str, str], float]], is_openmetrics: bool
) -> None:
    text = SeriesText(SOME, is_openmetrics=is_openmetrics)
    for metric, labels, value in given:
        text.add(metric, labels, value)
    written = text.encode().decode()
    if is_openmetrics:
        found = samples(f"{written}# EOF\n", read_openmetrics)
    else:
        found = samples(written, read_text)
    in_order = sorted(given, key=lambda one: SOME.index(one[0]))
    assert found == [
        (metric.name, dict(zip(metric.labels, labels, strict=True)), value)
        for metric, labels, value in in_order
    ]


def test_a_number_that_is_none_is_written_as_the_format_says() -> None:
    text = SeriesText(SOME, is_openmetrics=False)
    text.add(metrics.LAG_RECORDS, ("A", "B", "orders", "0"), math.nan)
    ((_, _, value),) = samples(text.encode().decode(), read_text)
    assert math.isnan(value)
    assert b"} NaN\n" in text.encode()


@pytest.mark.parametrize(
    ("read", "end"), [(read_text, ""), (read_openmetrics, "# EOF\n")], ids=["text", "open"]
)
def test_a_histogram_is_read(read: Read, end: str) -> None:
    metric = metrics.FLOW_BATCH_LATENCY
    text = SeriesText([metric], is_openmetrics=bool(end), fixed=(("site", "x"),))
    text.add_histogram(metric, ("A", "B"), [(0.5, 2), (math.inf, 3)], 1.75)
    (family,) = read(text.encode().decode() + end)
    assert family.type == "histogram"
    of = {"source": "A", "target": "B", "site": "x"}
    assert [
        (one.name.removeprefix(metric.name), one.labels, one.value) for one in family.samples
    ] == [
        ("_bucket", {**of, "le": "0.5"}, 2),
        ("_bucket", {**of, "le": "+Inf"}, 3),
        ("_count", of, 3),
        ("_sum", of, 1.75),
    ]


@pytest.mark.parametrize(
    ("accept", "read"), [("", read_text), (OPENMETRICS, read_openmetrics)], ids=["text", "open"]
)
def test_both_formats_say_the_same(accept: str, read: Read) -> None:
    monitor = Monitor()
    monitor.update([flow(partition(topic='a "quoted" \\ topic', code="X"))])
    answer = monitor.answer("/metrics", accept)
    assert answer is not None
    found = samples(answer.body.decode(), read)
    assert {name for name, labels, _ in found if labels.get("topic") == 'a "quoted" \\ topic'} >= {
        "twinlog_records_total",
        "twinlog_partition_error",
    }


def costs_s() -> tuple[float, float]:
    """Return the CPU seconds that a response for a thousand partitions takes with Twinlog, and with
    the library.
    """
    monitor = Monitor()
    monitor.update([flow(*(partition(topic=f"topic-{n}") for n in range(1000)))])
    answer = monitor.answer("/metrics")
    assert answer is not None
    families = list(read_text(answer.body.decode()))

    class Known:
        def collect(self) -> Any:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Known())

    def took_s(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    pairs = [
        (took_s(lambda: monitor.answer("/metrics")), took_s(lambda: generate_latest(registry)))
        for _ in range(10)
    ]
    ours, library = zip(*pairs, strict=True)
    return min(ours), min(library)


def test_many_partitions_cost_less_than_half_of_what_the_library_takes() -> None:
    """Writing the metrics takes less than half of the library's time. The library takes 2.1 s for
    10,000 partitions, too long for a process that also copies. A separate process measures both,
    because the heap of other tests slows Twinlog down more than the library.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own:
        ours, library = own.submit(costs_s).result()
    assert ours < library / 2, (ours, library)
