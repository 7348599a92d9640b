"""The paths that the flows of one configuration form together."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.properties import IDENTITY, flows_of
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.loops import neighbours
from twinlog.control.loops.neighbours import SiblingFlows
from twinlog.model import Flow


def way(flows: dict[str, FlowConfig], first: str, topic: str, **ids: str) -> tuple[str, ...]:
    neighbours = SiblingFlows(flows.values())
    neighbours.learn(ids)
    return neighbours.return_path(flows[first], topic)


def test_a_cluster_that_does_not_respond_does_not_delay_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = list[threading.Thread]()

    def answer(settings: ClusterSettings) -> str:
        asking.append(threading.current_thread())
        return f"id of {settings.alias}"

    monkeypatch.setattr(neighbours, "_id_of", answer)
    settings = {a: ClusterSettings(alias=a, bootstrap=(("localhost", 1),)) for a in "AB"}
    known = SiblingFlows(flows_of(tmp_path, "A->B.topics = pay").values(), settings)
    known.query_unknown()
    assert known._ids == {"A": "id of A", "B": "id of B"}
    assert [thread.daemon for thread in asking] == [True, True]


def test_names_that_are_kept_come_back(tmp_path: Path) -> None:
    flows = flows_of(tmp_path, "A->B.topics = pay", "B->A.topics = .*", IDENTITY)
    assert way(flows, "A->B", "pay") == ("A->B", "B->A")


def test_topics_of_their_own_do_not(tmp_path: Path) -> None:
    flows = flows_of(tmp_path, "A->B.topics = pay", "B->A.topics = ship", IDENTITY)
    assert way(flows, "A->B", "pay") == ()


def test_a_ring_of_three_comes_back(tmp_path: Path) -> None:
    flows = flows_of(tmp_path, "A->B.topics = .*", "B->C.topics = .*", "C->A.topics = .*", IDENTITY)
    assert way(flows, "B->C", "pay") == ("B->C", "C->A", "A->B")


def test_aliases_of_one_cluster_are_one(tmp_path: Path) -> None:
    flows = flows_of(tmp_path, "A->B.topics = .*", "B->Z.topics = .*", IDENTITY)
    assert way(flows, "A->B", "pay") == ()
    assert way(flows, "A->B", "pay", A="one", Z="one") == ("A->B", "B->Z")


def test_one_that_keeps_names_and_one_that_does_not(tmp_path: Path) -> None:
    """A->B has the default policy, and B->A keeps names. `A.pay` on B shows that it is a copy from
    A, so B->A does not copy it back. `pay` on A does not show that it is a copy from B, so the path
    back to B is found.
    """
    flows = flows_of(tmp_path, "A->B.topics = .*", "B->A.topics = .*", f"B->A.{IDENTITY}")
    assert way(flows, "A->B", "A.pay") == ()
    assert way(flows, "B->A", "pay") == ("B->A", "A->B")


def test_default_names_never_come_back(tmp_path: Path) -> None:
    flows = flows_of(tmp_path, "A->B.topics = .*", "B->A.topics = .*")
    assert way(flows, "A->B", "A.pay") == ()


@pytest.mark.parametrize(
    ("flow", "topic", "is_copy"),
    [
        ("B->A", "A_pay", True),
        ("B->A", "A_", False),
        ("B->A", "A-pay", False),
        ("B->A", "Apay", False),
        ("A->B", "B-pay", True),
        ("A->B", "A_B-pay", True),
        ("A->B", "x.B-pay", False),
    ],
)
def test_another_separator_each_way(
    tmp_path: Path, flow: str, topic: str, *, is_copy: bool
) -> None:
    flows = flows_of(
        tmp_path, "A->B.replication.policy.separator = _", "B->A.replication.policy.separator = -"
    )
    assert SiblingFlows(flows.values()).is_named_copy(flows[flow], topic) is is_copy


def test_two_flows_that_are_one(tmp_path: Path) -> None:
    flows = flows_of(tmp_path, "A->B.topics = pay, ship", "Z->B.topics = pay")
    neighbours = SiblingFlows(flows.values())
    neighbours.learn({"A": "one", "B": "two", "Z": ""})
    assert neighbours.duplicate_of(flows["A->B"], "pay") is None
    neighbours.learn({"Z": "one"})
    assert neighbours.duplicate_of(flows["A->B"], "pay") is flows["Z->B"]
    assert neighbours.duplicate_of(flows["Z->B"], "pay") is flows["A->B"]
    assert neighbours.duplicate_of(flows["A->B"], "ship") is None


@pytest.mark.parametrize("line", ["A->B.twinlog.beside = Z->B", "Z->B.twinlog.beside = A->B"])
def test_two_flows_beside_each_other(tmp_path: Path, line: str) -> None:
    flows = flows_of(tmp_path, "A->B.topics = pay, ship", "Z->B.topics = pay, ship", line)
    neighbours = SiblingFlows(flows.values())
    neighbours.learn({"A": "one", "B": "two", "Z": "one"})
    assert (
        neighbours.duplicate_of(flows["A->B"], "pay")
        is neighbours.duplicate_of(flows["Z->B"], "pay")
        is None
    )
    assert neighbours.is_beside(flows["A->B"], Flow("Z", "B"))
    assert neighbours.is_beside(flows["Z->B"], Flow("A", "B"))
    assert not neighbours.is_beside(flows["Z->B"], Flow("B", "A"))
    every = ("A->B.topics = .*", "Z->B.topics = .*")
    same = flows_of(tmp_path, *every, line, "source.cluster.alias = A")
    neighbours.change(same.values(), {})
    assert neighbours.duplicate_of(same["A->B"], "pay") is same["Z->B"], "one topic for both"


def test_a_name_without_its_alias_comes_back_by_the_default_policy_too(tmp_path: Path) -> None:
    """`B.pay` on A is a copy from B. If A->C renames it to `pay`, its name on C shows only A, so it
    could come back to B. Such a path is found, also with the default policy.
    """
    ring = ["A->C.topics = B.pay", "C->B.topics = .*"]
    whole = flows_of(tmp_path, *ring)
    assert not way(whole, "A->C", "A.B.pay")
    renamed = flows_of(tmp_path, *ring, "A->C.twinlog.rename = B\\\\.(.*):$1", "B->A.topics = .*")
    assert way(renamed, "A->C", "A.pay") == ()
    assert way(renamed, "B->A", "B.pay") == ("B->A", "A->C", "C->B")


def strip(flow: str) -> list[str]:
    """Return the lines of a Kafka Connect router that removes the alias of the flow's source."""
    lines = ("transforms = x", "transforms.x.type = RegexRouter", "transforms.x.replacement = $1")
    return [*(f"{flow}.{one}" for one in lines), f"{flow}.transforms.x.regex = {flow[0]}\\\\.(.*)"]


@pytest.mark.parametrize("back", [strip("B->A"), []], ids=["routed", "default"])
def test_a_router_that_removes_the_alias_closes_a_loop(tmp_path: Path, back: list[str]) -> None:
    both = ["A->B.topics = .*", "B->A.topics = .*"]
    flows = flows_of(tmp_path, *both, *strip("A->B"), *back)
    assert way(flows, "A->B", "pay") == ("A->B", "B->A")
    assert way(flows, "B->A", "pay" if back else "B.pay") == (("B->A", "A->B") if back else ())


def test_renamed_under_identity_comes_back_under_the_new_name(tmp_path: Path) -> None:
    flows = flows_of(
        tmp_path, "A->B.topics = pay", "B->A.topics = .*", IDENTITY, "A->B.twinlog.rename = pay:eu"
    )
    assert way(flows, "A->B", "eu") == ("A->B", "B->A")
