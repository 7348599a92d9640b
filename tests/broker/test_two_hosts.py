"""Two processes on two hosts reach the clusters but not each other. Both show the same flows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.client import Outgoing, produce
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.hosts import Host, hosts
from tests.support.mirror_process import Driver
from tests.support.monitor import ask
from tests.support.topics import create_topic
from twinlog.addresses import Address
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

PAGE: Final = Address("127.0.0.1", 9405)
"""Address of the page on each host. Each host has its own loopback, so both can use the same one.
"""


def file_of(folder: Path, mark: str, west: str, east: str) -> Path:
    folder.mkdir()
    file = folder / "mm2.properties"
    file.write_text(
        f"clusters = w{mark}, e{mark}\n"
        f"w{mark}.bootstrap.servers = {west}\n"
        f"e{mark}.bootstrap.servers = {east}\n"
        f"w{mark}->e{mark}.enabled = true\ne{mark}->w{mark}.enabled = true\n"
        f"topics = orders-{mark}\nreplication.factor = 1\n"
        "emit.heartbeats.enabled = false\nheartbeats.replication.enabled = false\n"
        "twinlog.status.interval.seconds = 1\n"
    )
    return file


def flows_of(host: Host) -> list[Any]:
    """Return the flows in the REST response of the host."""
    told = host.within(lambda: ask(PAGE, "/api/v1/flows", timeout_s=60))
    found: list[Any] = told.json["flows"]
    return found


def over_rest(host: Host) -> Mapping[str, tuple[Any, ...]]:
    """Return the status of each flow as the host's REST reports it, without the reporting process
    and the age.
    """
    names = ("state", "sinceMs", "generation", "records", "partitions", "lag")
    return {flow["flow"]: tuple(flow[name] for name in names) for flow in flows_of(host)}


def tellers(host: Host) -> dict[str, str]:
    """Return for each flow the process that reports it: `here`, or a host and a process."""
    return {flow["flow"]: flow["reportedBy"] for flow in flows_of(host)}


def by_command(host: Host, file: Path, folder: Path) -> dict[str, tuple[str, int]]:
    """Return the state and generation of each flow in the output of `twinlog status FILE` on the
    host.
    """
    with Command(folder, "status", str(file), "--format", "json", host=host) as status:
        assert status.wait() in {0, 1}, status.stderr
    flows = [flow for mirror in json.loads(status.stdout)["mirrors"] for flow in mirror["flows"]]
    return {flow["flow"]: (flow["state"], flow["generation"]) for flow in flows}


def test_two_hosts_that_share_nothing_but_the_clusters_show_the_same_flows(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    mark = f"{time.time_ns():x}"[-8:]
    clusters = (source_cluster.bootstrap, target_cluster.bootstrap)
    east_flow, west_flow = f"w{mark}->e{mark}", f"e{mark}->w{mark}"
    for cluster, count in ((source_cluster, 10), (target_cluster, 4)):
        create_topic(cluster, f"orders-{mark}", 2)
        produce(cluster, f"orders-{mark}", [Outgoing(value=b"x") for _ in range(count)])
    files = [file_of(tmp_path / name, mark, *clusters) for name in ("west", "east")]
    with (
        hosts("west", "east") as (west, east),
        west.reaches(*clusters),
        east.reaches(*clusters),
        Driver(files[0], listen=PAGE, clusters=[f"w{mark}"], emits=True, host=west) as first,
        Driver(files[1], listen=PAGE, clusters=[f"e{mark}"], emits=True, host=east) as second,
    ):
        assert (first.served(), second.served()) == (PAGE, PAGE)

        def all_is_copied() -> bool:
            seen = over_rest(west)
            assert {flow: (one[0], one[3]) for flow, one in seen.items()} == {
                east_flow: ("RUNNING", 10),
                west_flow: ("RUNNING", 4),
            }
            return over_rest(east) == seen

        eventually(all_is_copied)
        at_west, at_east = f"west (process {first.pid})", f"east (process {second.pid})"
        assert tellers(west) == {west_flow: "here", east_flow: at_east}
        assert tellers(east) == {west_flow: at_west, east_flow: "here"}
        assert by_command(west, files[0], tmp_path / "s1") == by_command(
            east, files[1], tmp_path / "s2"
        )
        pause = ("flow", "pause", str(files[1]), "--flow", west_flow, "--reason", "a repair")
        with Command(tmp_path / "pause", *pause, host=east) as command:
            assert command.wait() == 0, command.stderr

        def both_know() -> bool:
            seen = over_rest(west)
            assert (seen[west_flow][0], seen[east_flow][0]) == ("PAUSED", "RUNNING")
            return over_rest(east) == seen

        eventually(both_know)
