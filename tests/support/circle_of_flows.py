"""Flows that form loops between three clusters, and checks of the clusters' content."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.client import Outgoing, produce, read_all
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, end_offsets, topic_names
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.sandbox import LocalCluster

IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
COUNT: Final = 20


class Circle:
    """Writes configuration files of flows between these clusters, with aliases and topics of this
    test.
    """

    def __init__(self, folder: Path, clusters: Sequence[LocalCluster]) -> None:
        self.clusters = clusters
        self.mark = f"m{secrets.token_hex(3)}"
        self._folder = folder

    def name(self, text: str) -> str:
        """Return an alias or topic name with this test's suffix."""
        return f"{text}{self.mark}"

    def topic(self, name: str = "pay") -> str:
        return f"{name}{self.mark}"

    def file(
        self, aliases: Mapping[str, int], flows: Sequence[str], name: str = "mm2", **keys: str
    ) -> Path:
        """Write a configuration file and return its path.

        `aliases`: the index of each alias's cluster. In the names of `keys`, `A_to_B` stands for
        `A->B`.
        """
        lines = [f"clusters = {', '.join(map(self.name, aliases))}"]
        lines += [
            f"{self.name(alias)}.bootstrap.servers = {self.clusters[at].bootstrap}"
            for alias, at in aliases.items()
        ]
        lines += [f"{self.flow(flow)}.enabled = true" for flow in flows]
        given = {
            "topics": f".*{self.mark}",
            "replication_factor": "1",
            "refresh_topics_interval_seconds": "1",
            "emit_heartbeats_enabled": "false",
            "emit_checkpoints_enabled": "false",
            **keys,
        }
        for key, value in given.items():
            flow, found, rest = key.partition("__")
            dotted = (rest if found else key).replace("_", ".")
            lines.append(f"{self.flow(flow) + '.' if found else ''}{dotted} = {value}")
        path = self._folder / f"{name}.properties"
        path.write_text("\n".join(lines) + "\n")
        return path

    def flow(self, text: str) -> str:
        source, _, target = text.replace("_to_", "->").partition("->")
        return f"{self.name(source)}->{self.name(target)}"

    def put(self, at: int, topic: str = "pay", count: int = COUNT, begin: int = 0) -> None:
        if self.topic(topic) not in topic_names(self.clusters[at]):
            create_topic(self.clusters[at], self.topic(topic))
        values = [Outgoing(value=f"{at} {n}".encode()) for n in range(begin, begin + count)]
        produce(self.clusters[at], self.topic(topic), values)

    def values(self, at: int, topic: str) -> list[bytes | None]:
        return [record.value for record in read_all(self.clusters[at], topic)]

    def mine(self, at: int) -> set[str]:
        """Return the topics of the cluster that have this test's suffix, except Twinlog's own."""
        names = topic_names(self.clusters[at])
        return {n for n in names if n.endswith(self.mark) and not n.startswith("mm2-")}

    def held(self) -> list[dict[str, dict[int, int]]]:
        """Return the log ends of every topic of every cluster, except of `__consumer_offsets`."""
        return [
            {
                name: end_offsets(cluster, name)
                for name in sorted(topic_names(cluster))
                if name != "__consumer_offsets"
            }
            for cluster in self.clusters
        ]


def once(config: Path) -> list[FlowSnapshot]:
    with Mirror(config, once=True, lanes=1) as mirror:
        return mirror.wait()


def copied(config: Path) -> None:
    """Run a mirror with --once. Check that no flow or partition fails."""
    for flow in once(config):
        assert flow.state != "FAILED", flow
        assert {(p.state, p.code) for p in flow.partitions} <= {("DONE", "")}, flow


def problems(config: Path) -> dict[str, list[str]]:
    """Return the problems that `check` finds, by flow."""
    report = check(load(config, environment={}))
    return {flow.flow: [str(problem) for problem in flow.problems] for flow in report.flows}


def refused(circle: Circle, config: Path, code: str, *flows: str) -> str:
    """Check that `check` and a start refuse these flows with the same message, and that nothing is
    written. Return the message.
    """
    before = circle.held()
    found = problems(config)
    ended = {flow.flow: flow for flow in once(config)}
    words = ""
    for flow in map(circle.flow, flows):
        assert found[flow], f"check has no problem with {flow}"
        words = found[flow][0]
        assert f"[{code}]" in words
        assert (ended[flow].state, ended[flow].code) == ("FAILED", code)
        reason = ended[flow].reason.partition("flow may be copied: ")[2] or ended[flow].reason
        assert reason.removeprefix(f"{flow}: ") == words.removeprefix(f"{flow}: ")
    assert circle.held() == before, "something was written"
    return words
