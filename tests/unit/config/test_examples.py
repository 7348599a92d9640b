"""Configuration files from documentation and articles, including their mistakes. Each is loaded
with warnings that name the lines, or refused with the line.
"""

from __future__ import annotations

import pytest

from tests.support.config_examples import EXAMPLES, EXAMPLES_SAY
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.errors import ConfigError

REFUSED = {
    "overview": (15, "us-west->us-east.enabled", "put it on a line of its own"),
    "three-data-centres-unfinished": (3, "west-1.bootstrap.servers", '"..." is not host:port'),
    "comments-in-values": (6, "backup.security.protocol", "part of the value"),
    "group-offsets-numbered": (1, "1clusters", "did you mean clusters?"),
}


def example(name: str) -> MirrorConfig:
    return load(EXAMPLES / f"{name}.properties", environment={})


def test_every_example_is_here() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == {*EXAMPLES_SAY, *REFUSED}


@pytest.mark.parametrize("name", EXAMPLES_SAY)
def test_it_loads_with_its_warnings(name: str) -> None:
    said = example(name).warnings
    expected = sorted(EXAMPLES_SAY[name], key=lambda one: one[0])
    found = sorted(said, key=lambda one: one.line or 0)
    assert [(w.line, w.code) for w in found] == [(line, code) for line, code, _ in expected]
    for warning, (_, _, hint) in zip(found, expected, strict=True):
        assert hint in warning.message


@pytest.mark.parametrize("name", REFUSED)
def test_the_line_that_cannot_be_is_named(name: str) -> None:
    line, key, hint = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        example(name)
    assert f"{name}.properties:{line}: {key}: " in str(caught.value)
    assert hint in str(caught.value)
    assert caught.value.exit_code == 2


def test_flows_of_the_three_data_centres() -> None:
    config = example("three-data-centres")
    assert len(config.flows) == 12
    nearby = load(EXAMPLES / "three-data-centres.properties", ["west-1", "west-2"], environment={})
    assert sorted(str(one.flow) for one in nearby.flows) == [
        "east-1->west-1",
        "north-1->west-1",
        "west-1->west-2",
        "west-2->west-1",
    ]


def test_a_star_means_every_topic_and_the_other_flow_has_its_own_list() -> None:
    here, there = example("patterns").flows
    assert here.topics.matches("anything-at.all")
    assert there.topics.matches("app1-orders")
    assert not there.topics.matches("orders")


def test_the_admin_clients_own_address_acts() -> None:
    (flow,) = example("clients").flows
    assert flow.clients.source_admin["bootstrap.servers"] == "localhost:9092"
    assert flow.clients.source_consumer["bootstrap.servers"] == "broker-1:9092"
