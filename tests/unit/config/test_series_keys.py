"""`twinlog.metrics.*`: labels of every series, and whether single partitions have series."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import BASE, Loader
from twinlog.config.load import load_all
from twinlog.config.series import ALL_SERIES, MetricNames, SeriesConfig
from twinlog.errors import ConfigError


def test_without_a_key_everything_is_served_as_it_is(read: Loader) -> None:
    assert read().series == ALL_SERIES


def test_both_keys(read: Loader) -> None:
    found = read(
        "twinlog.metrics.labels = strimzi_io_kind=KafkaMirrorMaker2, namespace = kafka-1",
        "twinlog.metrics.partitions = false",
    )
    assert found.warnings == read().warnings
    assert found.series == SeriesConfig(
        labels=(("namespace", "kafka-1"), ("strimzi_io_kind", "KafkaMirrorMaker2")),
        has_partitions=False,
    )


def test_formats_of_names_are_those_of_mirror_maker_2_for_each_flow(read: Loader) -> None:
    both = {MetricNames.LEGACY, MetricNames.NEW}
    for lines, expected in (
        ([], {MetricNames.LEGACY}),
        (["metric.names.formats = legacy, new"], both),
        (["metric.names.formats = new", "A->B.metric.names.formats = new,legacy"], both),
        (["A->B.metric.names.formats = new"], {MetricNames.NEW}),
    ):
        found = read(*lines)
        assert found.flows[0].metric_names == expected
        assert found.warnings == read().warnings


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("twinlog.metrics.labels = namespace", "'namespace' is not a label"),
        ("twinlog.metrics.labels = namespace=", "is not a label"),
        ("twinlog.metrics.labels = name-space=a", "is not a label"),
        ("twinlog.metrics.labels = __name__=a", "is not a label"),
        ("twinlog.metrics.labels = a=1, a=2", "a is given twice"),
        ("twinlog.metrics.labels = topic=a", "topic is already a label of a series"),
        ("twinlog.metrics.partitions = no", "true"),
        ("metric.names.formats = newest", "'newest' is not a format of metric names"),
        ("metric.names.formats =", "has no format of metric names"),
        ("twinlog.metrics.label = a=b", r"did you mean twinlog\.metrics\.labels"),
        ("A->B.twinlog.metrics.labels = a=b", r"write twinlog\.metrics\.labels"),
    ],
)
def test_contradictory_keys_are_refused(read: Loader, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(line)


def test_files_of_one_process_say_the_same_or_one_of_them(tmp_path: Path) -> None:
    first = tmp_path / "first.properties"
    first.write_text("\n".join((*BASE, "twinlog.metrics.labels = a=b")))
    second = tmp_path / "second.properties"
    other = [
        "clusters = C, D",
        "C.bootstrap.servers = c:9092",
        "D.bootstrap.servers = d:9092",
        "C->D.enabled = true",
    ]
    second.write_text("\n".join(other))
    assert load_all([second, first]).series.labels == (("a", "b"),)
    second.write_text("\n".join((*other, "twinlog.metrics.labels = a=c")))
    with pytest.raises(ConfigError, match=r"twinlog\.metrics\.\*: differs from"):
        load_all([first, second])
