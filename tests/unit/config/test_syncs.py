"""The lines that determine the syncs of configs and ACLs, and whether topics are created."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import flow_of, loader, refusal


@pytest.mark.parametrize("what", ["configs", "acls"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), (True, 600)),
        (("sync.topic.{}.enabled = false",), (False, 600)),
        (("sync.topic.{}.interval.seconds = 5",), (True, 5)),
        (
            ("A->B.sync.topic.{}.interval.seconds = 7", "sync.topic.{}.interval.seconds = 5"),
            (True, 7),
        ),
        (("sync.topic.{}.interval.seconds = -1",), (False, -1)),
    ],
)
def test_how_often(
    tmp_path: Path, what: str, lines: tuple[str, ...], expected: tuple[bool, int]
) -> None:
    flow = flow_of(loader(tmp_path)(*(line.format(what) for line in lines)))
    configs = flow.config_sync.enabled, flow.config_sync.interval_seconds
    acls = flow.acl_sync.enabled, flow.acl_sync.interval_seconds
    assert {"configs": configs, "acls": acls}[what] == expected
    assert {"configs": acls, "acls": configs}[what] == (True, 600)


@pytest.mark.parametrize("what", ["configs", "acls"])
def test_an_interval_of_nothing_is_refused(tmp_path: Path, what: str) -> None:
    key = f"sync.topic.{what}.interval.seconds"
    message = refusal(lambda: loader(tmp_path)(f"{key} = 0"))
    assert "the interval must not be 0" in message
    assert key in message


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), True),
        (("topic.creation.enable = false",), False),
        (("B.topic.creation.enable = false",), False),
        (("A.topic.creation.enable = false",), True),
        (("B.topic.creation.enable = false", "A->B.topic.creation.enable = true"), True),
        (("topic.creation.enable = false", "B.topic.creation.enable = true"), True),
    ],
)
def test_whether_topics_are_made(tmp_path: Path, lines: tuple[str, ...], expected: bool) -> None:
    """`topic.creation.enable` is a key of Kafka Connect's workers. MirrorMaker 2 runs a worker for
    the target, so usually the target's line decides whether topics are created.
    """
    assert flow_of(loader(tmp_path)(*lines)).new_topics.enabled is expected


def test_our_own_keys_on_acls(tmp_path: Path) -> None:
    load = loader(tmp_path)
    plain = flow_of(load())
    assert (plain.acl_sync.prefixed, plain.acl_sync.removal) == (False, False)
    keys = "twinlog.sync.topic.acls.prefixed = true", "twinlog.sync.topic.acls.removal = TRUE"
    flow = flow_of(load(*keys))
    assert (flow.acl_sync.prefixed, flow.acl_sync.removal) == (True, True)
