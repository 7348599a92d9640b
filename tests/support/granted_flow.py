"""A flow between secured clusters whose users have rights from docs/security.md."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.rights import Grant, SecuredPair
from tests.support.topics import create_topic
from twinlog.mirror.names.naming import PROBE_TOPIC, STATE_TOPIC

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"

MIRRORED, REMOTE = "mirrored topics", "remote topics"

STATE, PROBE = f"`{STATE_TOPIC}`", f"`{PROBE_TOPIC}`"

MAP = "`mm2-twinlog-offset-map.A.internal`"

GROUP, CLUSTER = "group `twinlog-A->B`", "the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One right of the table, and the consequence if it is missing."""

    cluster: str
    operation: str
    on: str
    code: str = "TOPIC_UNAUTHORIZED"
    stops: str = ""
    """What stops without the right: `topic` or `flow`. Empty if the copy continues."""
    guarantee: str = "exact"
    checked: bool = True
    """True if `check` detects the missing right before the topic exists."""
    says: str = ""
    """Text in the error line, or empty if the line names the missing ACL in the usual way."""
    key: str = ""
    """The key that avoids the log line."""
    implied_by: str = ""
    """Another operation on the same resource that includes this one, so a user must lack both to
    lack the right.
    """

    def __str__(self) -> str:
        name = self.on.strip("`").removeprefix("mm2-twinlog-").replace(" ", "-")
        return f"{self.cluster}-{self.operation}-{name}"


FEATURES: Final = (
    "emit.checkpoints.enabled = false",
    "emit.heartbeats.enabled = false",
    "emit.offset-syncs.enabled = false",
    "twinlog.status.interval.seconds = 0",
)

numbers = itertools.count()


class Flow:
    """A flow that has its own aliases, topic and users."""

    def __init__(self, pair: SecuredPair, topic: str, folder: Path) -> None:
        number = next(numbers)
        self.pair = pair
        self.source, self.target = f"a{number}", f"b{number}"
        self.topic, self.remote = topic, f"{self.source}.{topic}"
        self.path = folder / "mm2.properties"
        self.users = ("", "")
        create_topic(pair.source, topic, 2, configs={"retention.ms": "77000"})
        self.fill()

    def fill(self) -> None:
        produce(self.pair.source, self.topic, [Outgoing(value=b"%d" % n) for n in range(30)])

    def grant(self, operation: str, on: str) -> Grant:
        kind, name = {
            MIRRORED: ("topic", f"{self.topic}*"),
            REMOTE: ("topic", f"{self.source}.*"),
            STATE: ("topic", STATE_TOPIC),
            PROBE: ("topic", PROBE_TOPIC),
            MAP: ("topic", f"mm2-twinlog-offset-map.{self.source}.internal"),
            GROUP: ("group", f"twinlog-{self.source}->{self.target}"),
            CLUSTER: ("cluster", ""),
        }[on]
        return Grant(operation=operation, kind=kind, name=name)

    def only(self, rights: list[Row], *lines: str) -> Path:
        """Write a configuration whose users have exactly these rights, and return its path."""
        users = [
            self.pair.user(
                cluster,
                [self.grant(row.operation, row.on) for row in rights if row.cluster == name],
            )
            for name, cluster in (("source", self.pair.source), ("target", self.pair.target))
        ]
        self.users = users[0], users[1]
        return self.write(self.users, *lines)

    def write(
        self,
        users: tuple[str, str],
        *lines: str,
        listener: str = "SASL_PLAINTEXT",
        mechanism: str | None = "PLAIN",
    ) -> Path:
        return self.pair.config(
            self.path,
            users,
            # features need further rights; test_feature_rights.py tests them
            [f"topics = {self.topic}", *FEATURES, *lines],
            listener=listener,
            mechanism=mechanism,
            aliases=(self.source, self.target),
        )

    def is_copied(self) -> bool:
        return read_all(self.pair.target, self.remote) == read_all(self.pair.source, self.topic)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
