"""Removes a drill's topics, groups, ACLs, and rows in state topics from both clusters.

Only objects whose names contain the mark of a drill, such as `twinlog-drill-1a2b3c4d`, are removed.
Each step is idempotent.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import delete_groups, list_groups
from twinlog.cluster.topics.acls import delete_topic_acls, topic_acls
from twinlog.cluster.topics.internal_log import append_rows, read_to_end
from twinlog.cluster.topics.topic_admin import delete_topic
from twinlog.control.cutover.fence import fence_acl
from twinlog.control.cutover.scope import Say
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import STATE_TOPIC, STATUS_TOPIC
from twinlog.model import TopicPartition
from twinlog.quantities import first_few, plural

# Names of a drill begin with its mark. Everything that has such a name belongs to the drill, and is
# removed. Topics end in `.internal`, so that mirrors with the usual `topics.exclude` skip them.

PREFIX: Final = "twinlog-drill-"
SUFFIX: Final = ".internal"


class Part(StrEnum):
    """The parts of a drill, which are rehearsed one after the other."""

    SWITCHOVER = "switchover"
    FAILOVER = "failover"


@dataclass(frozen=True, slots=True)
class DrillNames:
    """The names of one drill. All of them contain `mark`, such as `twinlog-drill-1a2b3c4d`."""

    mark: str

    @classmethod
    def new(cls) -> DrillNames:
        return cls(f"{PREFIX}{secrets.token_hex(4)}")

    def alias(self, part: Part, alias: str) -> str:
        """Return the alias of a cluster in the drill's configuration. `alias`: the flow's alias."""
        return f"{self.mark}{part.value[0]}-{alias}"

    def topic(self, part: Part, number: int) -> str:
        """Return the name of the drill's source topic with this number."""
        return f"{self.mark}{part.value[0]}-{number}{SUFFIX}"

    def group(self, part: Part, number: int) -> str:
        """Return the name of the consumer group that reads the drill's topic with this number."""
        return f"{self.mark}{part.value[0]}-{number}"


DRILL_NAME: Final = re.compile(rf"({PREFIX}[0-9a-f]{{8}})[sf]-")
WITHIN_S: Final = 60.0
"""Seconds for which a clean-up is retried. Within this time a killed member has left its group, and
all brokers know of a deleted topic.
"""
AGAIN_S: Final = 1.0
SOON_S: Final = 0.1
"""Pause before the check that nothing is left, because brokers may still list deleted topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Remains of drills on one cluster."""

    cluster: str
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    """Marks of drills whose mirror or clients are running, because they have an active group."""
    fences: tuple[str, ...] = ()
    """Topics with an ACL that a drill created."""
    rows: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """Keys of drills' rows in Twinlog's state and status topics, by topic."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups or self.fences or any(self.rows.values()))

    @property
    def marks(self) -> set[str]:
        """The marks of the drills that have left something."""
        keys = (key.decode(errors="replace") for keys in self.rows.values() for key in keys)
        names = (*self.topics, *self.groups, *self.fences, *keys)
        return {match[1] for name in names for match in DRILL_NAME.finditer(name)}

    def lines(self) -> Iterator[str]:
        """Yield the remains as lines of text."""
        for kind, names in (("topic", self.topics), ("group", self.groups), ("ACL", self.fences)):
            if names:
                total = plural(len(names), kind)
                yield f"cluster {self.cluster}: {total} of drills: {first_few(names)}"
        if rows := sum(map(len, self.rows.values())):
            yield f"cluster {self.cluster}: {plural(rows, 'row')} of the state"


def leftovers(client: ClusterClient, mark: str = "") -> Leftovers:
    """Return the remains of the drill with this mark on a cluster, or those of all drills if `mark`
    is empty. Raises TwinlogError if the cluster cannot be queried.
    """

    def is_drill_name(name: str) -> bool:
        return DRILL_NAME.search(name) is not None and mark in name

    topics = client.metadata(None).topics
    try:
        denied = {acl.name for acl in topic_acls(client) if acl == fence_acl(acl.name)}
    except TwinlogError:
        # without an authorizer or permission to list ACLs, no drill can have created a fence here
        denied = set()
    listed = list_groups(Coordinators(client)).values()
    groups = {group.name: group.is_active for group in listed if is_drill_name(group.name)}
    active = (DRILL_NAME.search(name) for name, is_active in groups.items() if is_active)
    running = {match[1] for match in active if match is not None}
    return Leftovers(
        cluster=client.alias,
        topics=tuple(sorted(filter(is_drill_name, topics))),
        groups=tuple(sorted(groups)),
        running=tuple(sorted(running)),
        fences=tuple(sorted(filter(is_drill_name, denied))),
        rows={
            topic: tuple(_rows(client, topic, is_drill_name))
            for topic in (STATE_TOPIC, STATUS_TOPIC)
            if topic in topics
        },
    )


def clean(client: ClusterClient, mark: str, say: Say) -> bool:
    """Delete the remains of a drill. Return True if nothing is left, or report the remains and
    return False after WITHIN_S. An unreachable cluster is reported without raising an error, so
    that the caller can clean the other cluster.
    """
    deadline = time.monotonic() + WITHIN_S
    while True:
        remains: Leftovers | None = None
        try:
            remains = leftovers(client, mark)
            if not remains:
                return True
            problems = list(_delete(client, remains))
        except TwinlogError as error:
            problems = [f"cluster {client.alias}: what a drill left there is unknown: {error}"]
        if time.monotonic() > deadline:
            for line in (*(remains.lines() if remains else ()), *problems):
                say(f"left: {line}")
            return False
        time.sleep(AGAIN_S if problems else SOON_S)


def _delete(client: ClusterClient, remains: Leftovers) -> Iterator[str]:
    """Delete the remains that were found. Yield an error for each deletion that failed."""
    try:
        if remains.fences:
            delete_topic_acls(client, [fence_acl(topic) for topic in remains.fences])
        if remains.groups:
            results = delete_groups(Coordinators(client), remains.groups)
            yield from (str(error) for error in results.values() if error is not None)
        for topic in remains.topics:
            try:
                delete_topic(client, topic)
            except TwinlogError as error:  # continue with the next topic
                yield str(error)
        for topic, keys in remains.rows.items():
            tombstones = [(key, None) for key in keys]
            append_rows(client, TopicPartition(topic, 0), tombstones, int(time.time() * 1000))
    except TwinlogError as error:
        yield str(error)


def _rows(
    client: ClusterClient, topic: str, is_drill_name: Callable[[str], bool]
) -> Iterator[bytes]:
    """Yield the keys of drills whose newest row in a compacted topic is not a tombstone."""
    newest: dict[bytes, bool] = {}
    for record in read_to_end(client, topic, 0):
        if record.key is not None:
            newest[bytes(record.key)] = record.value is not None
    for key, is_there in newest.items():
        if is_there and is_drill_name(key.decode(errors="replace")):
            yield key
